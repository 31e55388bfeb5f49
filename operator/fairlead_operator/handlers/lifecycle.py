"""Start and stop of the operator process."""

from typing import Any

import kopf

from fairlead_operator.startup import start, stop


@kopf.on.startup()
async def started(memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Wait for the Kubernetes API and for the Lease; until this returns kopf watches nothing."""
    await start(memo, settings)


@kopf.on.login()
async def logged_in(memo: kopf.Memo, **_: Any) -> kopf.AiohttpSession:
    """Give kopf a session with the operator's credentials and a bounded number of connections."""
    session: kopf.AiohttpSession = await memo.login()
    return session


@kopf.on.cleanup()
async def stopped(memo: kopf.Memo, **_: Any) -> None:
    """Release the Lease and close the connections."""
    await stop(memo)
