"""Earlier answers that are served while the database is unavailable."""

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead_api.http import problems
from fairlead_api.http.stale import StaleReads
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import ClusterUnavailable, StoreBusy, StoreUnavailable
from fairlead_client.resources.access import AccessRole, Identity
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport

ANN = Caller(identity=Identity(subject="ann", role=AccessRole.VIEWER, source="token", expires_at=None), key=b"ann", request_id="r1")


class Known:
    """Middleware that identifies every caller as ann."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "state": {"caller": ANN}}, receive, send)


@pytest.mark.parametrize(
    ("problem", "status", "stale"),
    [
        (StoreUnavailable("away"), 200, "database-unavailable"),
        (StoreBusy("busy"), 200, "database-unavailable"),
        (ClusterUnavailable("away"), 503, None),
    ],
    ids=["database away", "database busy", "Kubernetes API away"],
)
async def test_only_what_the_database_cannot_tell_now_is_answered_as_of_before(problem: Exception, status: int, stale: str | None) -> None:
    app = FastAPI()
    wrong: list[Exception] = []

    @app.get("/v1/thing")
    async def thing() -> str:
        if wrong:
            raise wrong[0]
        return "good"

    problems.install(app)
    app.add_middleware(StaleReads)
    app.add_middleware(Known)
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(app)) as http:
        assert (await http.get("/v1/thing")).json() == "good"
        wrong.append(problem)
        answered = await http.get("/v1/thing")
    assert (answered.status_code, answered.headers.get("x-fairlead-stale")) == (status, stale)
    assert ("good" in answered.text) == (status == 200)
