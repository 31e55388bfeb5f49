"""Start and stop of the operator process."""

from typing import Any

import kopf

from fairlead_operator.wiring import start, stop


@kopf.on.startup()
async def started(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Wire everything before the first event arrives."""
    await start(memo, settings)


@kopf.on.cleanup()
async def stopped(memo: kopf.Memo, **_: Any) -> None:
    """Stop the queues and close the connections."""
    await stop(memo)
