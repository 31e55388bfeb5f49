"""Refused requests by cause."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends

from fairlead_api.routes.answers import answer
from fairlead_api.routes.guards import Guard
from fairlead_api.routes.listing import Fetch, From, To, exporting
from fairlead_api.services.access.access import Caller
from fairlead_api.services.history.times import parse_range
from fairlead_api.services.spans import Span
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.pages import Page
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport


class RejectionReader(Protocol):
    """The source of refusals."""

    async def rejections(self, pool: str | None, start: datetime, end: datetime, priority_class: str | None = None) -> RejectionReport: ...


def rejection_routes(guard: Guard, reader: RejectionReader, clock: Callable[[], datetime]) -> APIRouter:
    """Rejections under /v1."""
    routes = APIRouter(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER)

    def rejections(
        pool: str | None = None, priority_class: str | None = None, start: From = None, end: To = None
    ) -> Callable[[], Awaitable[RejectionReport]]:
        now = clock()
        begun, ended = parse_range(start or "now-1h", end or "now", now)
        return lambda: reader.rejections(pool, begun or now - timedelta(hours=1), ended or now, priority_class)

    Chosen = Annotated[Callable[[], Awaitable[RejectionReport]], Depends(rejections)]  # noqa: N806 - it is a type

    def groups(report: Chosen) -> Fetch:
        async def fetch(span: Span) -> Page[RejectionGroup]:
            return Page(items=(await report()).groups)

        return fetch

    @routes.get("/rejections", response_model=RejectionReport)
    @routes.get("/rejections.json", include_in_schema=False)
    async def get_rejections(caller: Annotated[Caller, Depends(viewer)], report: Chosen) -> Any:
        """Refusals by cause and priority class, with 60-bucket sparklines and the newest samples.

        Of the last hour unless asked otherwise.
        """
        return answer(await report())

    exporting(routes, "/rejections", RejectionGroup, viewer, groups)
    return routes
