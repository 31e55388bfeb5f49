"""Routes of scaling decisions: the recommendation, its reasons, and whether the operator followed it."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends

from fairlead.instances import Role
from fairlead.scaling.recommendations import Controller, Verdict
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer, seen
from fairlead_api.http.listing import Fetch, From, To, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.times import parse_range
from fairlead_api.scaling.store import PostgresScaling, ScalingFilter
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.scaling import ScalingDecisionItem


def scaling_routes(guard: Guard, reader: PostgresScaling, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of scaling decisions under /v1."""
    routes = Routes(prefix="/v1", tags=["history"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)

    async def chosen(
        pool: str | None = None,
        role: Role | None = None,
        controller: Controller | None = None,
        verdict: Verdict | None = None,
        start: From = None,
        end: To = None,
    ) -> Fetch:
        begun, ended = parse_range(start, end, clock())
        wanted = ScalingFilter(pool=pool, role=role, controller=controller, verdict=verdict, start=begun, end=ended)
        return lambda span: reader.scaling_decisions(wanted, span)

    listing(routes, "/scaling-decisions", ScalingDecisionItem, viewer, chosen, by="-at")

    @routes.get("/scaling-decisions/{decision_id}", response_model=ScalingDecisionItem)
    async def get_scaling_decision(decision_id: str, caller: Annotated[Caller, Depends(viewer)]) -> Any:
        """One scaling decision with the signals on which it was based."""
        return answer(seen(caller, await reader.scaling_decision(decision_id), "scaling decision", decision_id))

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of scaling decisions."""
    return Feature(routes=(scaling_routes(guard, PostgresScaling(infra.reads), infra.clock),))
