"""Sessions all of whose decisions are kept for some minutes, as somebody wants to see what becomes of each request."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.decisions.kept_sessions import KeptSessions as Keeping
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import known_fields
from fairlead_api.infra.callers import Caller
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.sessions import KeepSessionRequest, KeptSession, KeptSessions


def kept_session_routes(guard: Guard, keeping: Keeping, clock: Callable[[], datetime]) -> APIRouter:
    """/v1/pools/{namespace}/{name}/kept-sessions."""
    routes = APIRouter(prefix="/v1", tags=["history"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type
    path = "/pools/{namespace}/{name}/kept-sessions"

    @routes.get(path, response_model=KeptSessions)
    async def get_kept_sessions(namespace: str, name: str, caller: Viewer) -> Any:
        """Sessions of a pool all of whose decisions are kept now."""
        return answer(await keeping.kept(PoolKey(namespace=namespace, name=name), clock()))

    @routes.post(path, status_code=201, dependencies=[Depends(known_fields(KeepSessionRequest))])
    async def keep_session(namespace: str, name: str, body: KeepSessionRequest, caller: Operator) -> KeptSession:
        """Keeps all decisions of a session for so many minutes from now; it ends by itself."""
        return await keeping.keep(PoolKey(namespace=namespace, name=name), body, caller, clock())

    @routes.delete(path + "/{session:path}", status_code=204)
    async def let_session_go(namespace: str, name: str, session: str, caller: Operator) -> None:
        """Keeps decisions of the session like those of others again."""
        await keeping.let_go(PoolKey(namespace=namespace, name=name), session, caller, clock())

    return routes
