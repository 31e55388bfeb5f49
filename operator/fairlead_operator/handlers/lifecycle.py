"""Start, stop and health of the operator process."""

from typing import Any

import kopf

from fairlead_operator.wiring import start, stop


@kopf.on.startup()
async def started(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Wire everything before the first event arrives."""
    await start(memo, settings)


@kopf.on.cleanup()
async def stopped(memo: kopf.Memo, **_: Any) -> None:
    """Stop the loops and close the connections."""
    await stop(memo)


@kopf.on.probe(id="pools")
async def pools(memo: kopf.Memo, **_: Any) -> int:
    """How many pools are looked after; shown by the health endpoint."""
    return len(memo.loops.pools())
