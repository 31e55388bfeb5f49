"""Sampled decisions: why a request went where it went."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends

from fairlead.reports.decisions import DecisionReason
from fairlead_api.routes.answers import answer, seen
from fairlead_api.routes.guards import Guard
from fairlead_api.routes.listing import Fetch, From, To, listing
from fairlead_api.services.access.callers import Caller
from fairlead_api.services.history.filters import DecisionFilter
from fairlead_api.services.history.times import parse_range
from fairlead_api.services.spans import Span
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.pages import Page


class DecisionReader(Protocol):
    """The source of decisions."""

    async def decisions(self, wanted: DecisionFilter, span: Span) -> Page[RoutingDecision]: ...

    async def decision(self, decision_id: str) -> RoutingDecision:
        """One decision. Raises NotFound."""


def decision_routes(guard: Guard, reader: DecisionReader, clock: Callable[[], datetime]) -> APIRouter:
    """Decisions under /v1."""
    routes = APIRouter(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)

    async def chosen(
        pool: str | None = None,
        instance: str | None = None,
        session: str | None = None,
        reason: DecisionReason | None = None,
        priority_class: str | None = None,
        start: From = None,
        end: To = None,
    ) -> Fetch:
        begun, ended = parse_range(start, end, clock())
        wanted = DecisionFilter(
            pool=pool, instance=instance, session=session, reason=reason, priority_class=priority_class, start=begun, end=ended
        )
        return lambda span: reader.decisions(wanted, span)

    listing(routes, "/decisions", RoutingDecision, viewer, chosen, by="-at")

    @routes.get("/decisions/{decision_id:path}", response_model=RoutingDecision)
    async def get_decision(decision_id: str, caller: Annotated[Caller, Depends(viewer)]) -> Any:
        """One sampled decision with its candidates."""
        return answer(seen(caller, await reader.decision(decision_id), "decision", decision_id))

    return routes
