"""Routes of sessions: the instance that holds each session, and the instances that held it earlier."""

from typing import Annotated, Any

from fastapi import Depends

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.listing import Fetch, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.session_names import SessionNames
from fairlead_api.sessions.store.lists import PostgresSessions, SessionFilter
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.sessions import SessionDetail, SessionSummary


def session_routes(guard: Guard, reader: PostgresSessions, names: SessionNames) -> Routes:
    """Return the routes of sessions under /v1."""
    routes = Routes(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)

    async def chosen(pool: str | None = None, instance: str | None = None, q: str | None = None) -> Fetch:
        wanted = SessionFilter(pool=pool, instance=instance, q=q)
        return lambda span: reader.sessions(wanted, span)

    listing(routes, "/sessions", SessionSummary, viewer, chosen, by="-last_seen_at", exported_by="pool and name")

    @routes.get("/sessions/{namespace}/{name}/{session:path}", response_model=SessionDetail)
    async def get_session(namespace: str, name: str, session: str, caller: Annotated[Caller, Depends(viewer)]) -> Any:
        """A session and every instance that has held it, newest first. The session is named by its identity, or by its
        client's name if sessions of only one gateway key have this name.
        """
        pool = PoolKey(namespace=namespace, name=name)
        return answer(await reader.session(pool, await names.identity(pool, session)))

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of sessions."""
    return Feature(routes=(session_routes(guard, PostgresSessions(infra.reads), SessionNames(infra.reads)),))
