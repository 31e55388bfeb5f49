"""Plan → apply → undo, for those whose role reaches the kind of change."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from fairlead.tables import PoolKey
from fairlead_api.routes.answers import answer
from fairlead_api.routes.bodies import known_fields
from fairlead_api.routes.guards import Guard
from fairlead_api.services.access.access import Caller
from fairlead_api.services.plans.plans import Plans
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plans import NEEDED_ROLE, ApplyRequest, Plan, PlanKind, PlanRequest


def plan_routes(guard: Guard, plans: Plans, clock: Callable[[], datetime]) -> APIRouter:
    """Plans under /v1."""
    routes = APIRouter(prefix="/v1", tags=["plans"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type

    async def reaches(request: Request, caller: Caller, kind: PlanKind) -> None:
        await guard.require(request, caller, NEEDED_ROLE[kind])

    @routes.post("/pools/{namespace}/{name}/plans", status_code=201, response_model=Plan, dependencies=[Depends(known_fields(PlanRequest))])
    async def create_plan(namespace: str, name: str, body: PlanRequest, request: Request, caller: Operator) -> Any:
        """Previews a change and its effect, checked by a dry run against the Kubernetes API. Changes nothing."""
        await reaches(request, caller, body.kind)
        return answer(await plans.plan(PoolKey(namespace=namespace, name=name), body, caller, clock()), 201)

    @routes.get("/plans/{plan_id}", response_model=Plan)
    async def get_plan(plan_id: str, caller: Viewer) -> Any:
        """A plan in its present state."""
        return answer(await plans.get(plan_id, clock()))

    @routes.post("/plans/{plan_id}/apply", response_model=Plan, dependencies=[Depends(known_fields(ApplyRequest))])
    async def apply_plan(plan_id: str, body: ApplyRequest, request: Request, caller: Operator) -> Any:
        """Applies the plan once; sending it again gives the same answer."""
        await reaches(request, caller, (await plans.get(plan_id, clock())).kind)
        return answer(await plans.apply(plan_id, body, caller, clock()))

    @routes.post("/plans/{plan_id}/undo", status_code=201, response_model=Plan)
    async def undo_plan(plan_id: str, request: Request, caller: Operator) -> Any:
        """The inverse plan, to be reviewed and applied like any other.

        Possible for an hour, as long as nothing else has changed the object.
        """
        await reaches(request, caller, (await plans.get(plan_id, clock())).kind)
        return answer(await plans.undo(plan_id, caller, clock()), 201)

    return routes
