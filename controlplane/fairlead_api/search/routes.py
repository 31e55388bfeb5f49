"""The route of search: one query over every kind of object that has a page."""

from typing import Annotated, Any

from fastapi import Depends, Query

from fairlead_api.access.guards import Guard
from fairlead_api.decisions.routes import decisions_of
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.search.store import PostgresSearch
from fairlead_api.sessions.store.lists import PostgresSessions
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.search import SearchReport


def search_routes(guard: Guard, reader: PostgresSearch) -> Routes:
    """Return the routes of search under /v1."""
    routes = Routes(prefix="/v1", tags=["search"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)

    @routes.get("/search", response_model=SearchReport)
    async def search(
        caller: Annotated[Caller, Depends(viewer)],
        q: Annotated[str, Query(max_length=200, description="Any part of a name or id.")] = "",
        limit: Annotated[int, Query(ge=1, le=50, description="Maximum number of results of each kind.")] = 8,
    ) -> Any:
        """Pools, instances, sessions, requests, plans and audit entries whose name or id contains this text.

        All sessions are searched if the text has three letters or more; a request is found by its whole id, however old
        it is. Everything else is searched in the newest rows only; `since` is the time of the oldest searched row.
        """
        return answer(await reader.search(q.strip(), limit, caller.sight))

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of search."""
    days = infra.settings.retention.decisions_days
    return Feature(routes=(search_routes(guard, PostgresSearch(infra.reads, PostgresSessions(infra.reads), decisions_of(infra), days)),))
