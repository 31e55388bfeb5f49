"""Plan → apply → undo, for callers whose role allows the kind of change. Also a pool's rollout, and its revisions to
which a rollback is possible, from the Kubernetes API.
"""

import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer, seen
from fairlead_api.http.bodies import known_fields
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import Fetch, From, To, listing
from fairlead_api.http.routes import Routes
from fairlead_api.http.tags import IfMatch, require_unchanged
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.session_names import SessionNames
from fairlead_api.infra.spans import Sight
from fairlead_api.infra.times import parse_range
from fairlead_api.plans.kinds.catalogue import kind_of
from fairlead_api.plans.objects import ClusterGateway, PlannedObjects, Target
from fairlead_api.plans.plans import Plans
from fairlead_api.plans.rollouts import rollout_of
from fairlead_api.plans.store.evidence import PostgresEvidence
from fairlead_api.plans.store.plans import PlanFilter, PostgresPlanList, PostgresPlans
from fairlead_api.plans.store.session_homes import PostgresSessionHomes
from fairlead_api.plans.stored_plans import Expecting
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.expectations import PlanExpectation
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import ApplyRequest, HandOverResult, Plan, PlanState, needed_role
from fairlead_client.resources.rollouts import Rollout, TemplateRevision


class PlanExpecting(Protocol):
    """Finds the effect that a simulation predicts for a plan."""

    async def of(self, plan: Plan) -> PlanExpectation: ...


def plan_routes(
    guard: Guard, plans: Plans, expectations: PlanExpecting, reader: PostgresPlanList, names: SessionNames, clock: Callable[[], datetime]
) -> Routes:
    """Return the routes of plans under /v1."""
    routes = Routes(prefix="/v1", tags=["plans"])
    viewer = guard.needs(AccessRole.VIEWER, somewhere=True)
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR, somewhere=True))]  # noqa: N806 - it is a type

    async def chosen(
        pool: str | None = None, kind: PlanKind | None = None, created_by: str | None = None, start: From = None, end: To = None
    ) -> Fetch:
        begun, ended = parse_range(start, end, clock())
        wanted = PlanFilter(pool=pool, kind=kind, created_by=created_by, start=begun, end=ended)
        return lambda span: reader.plans(wanted, span)

    listing(routes, "/plans", Plan, viewer, chosen, by="-created_at")

    async def seen_plan(plan_id: str, caller: Caller) -> Plan:
        return seen(caller, await plans.get(plan_id, clock()), "plan", plan_id)

    async def changeable(plan_id: str, request: Request, caller: Caller) -> Plan:
        plan = await seen_plan(plan_id, caller)
        await guard.require(request, caller, needed_role(plan), plan.pool)
        return plan

    @routes.post("/pools/{namespace}/{name}/plans", status_code=201, response_model=Plan, dependencies=[Depends(known_fields(PlanRequest))])
    async def create_plan(namespace: str, name: str, body: PlanRequest, request: Request, caller: Operator) -> Any:
        """Previews a change and its effect, checked by a dry run against the Kubernetes API. Changes nothing."""
        pool = PoolKey(namespace=namespace, name=name)
        await guard.require(request, caller, body.kind.facts.role, str(pool))
        if body.session is not None:
            body = replace(body, session=await names.identity(pool, body.session))
        if kind_of(body.kind).may_need_admin:
            await guard.require(request, caller, await plans.needed(pool, body, clock()), str(pool))
        return answer(await plans.plan(pool, body, caller, clock()), 201)

    @routes.get("/plans/{plan_id}", response_model=Plan)
    async def get_plan(plan_id: str, caller: Viewer) -> Any:
        """A plan in its present state."""
        return answer(await seen_plan(plan_id, caller))

    @routes.get("/plans/{plan_id}/expectation", response_model=PlanExpectation)
    async def get_plan_expectation(plan_id: str, caller: Viewer) -> Any:
        """The effect of the plan according to a simulation of the pool's recorded traffic, or why it is unknown."""
        return answer(await expectations.of(await seen_plan(plan_id, caller)))

    @routes.get("/plans/{plan_id}/hand-over", response_model=HandOverResult)
    async def get_plan_hand_over(plan_id: str, caller: Viewer) -> Any:
        """The part of the leaving instances' caches that sessions are expected to keep under the plan, and the part
        that they have kept.
        """
        return answer(await reader.hand_over(await seen_plan(plan_id, caller)))

    @routes.post("/plans/{plan_id}/apply", response_model=Plan, dependencies=[Depends(known_fields(ApplyRequest))])
    async def apply_plan(plan_id: str, body: ApplyRequest, request: Request, caller: Operator, if_match: IfMatch = None) -> Any:
        """Applies the plan once. The same request, sent again, gets the same response."""
        plan = await changeable(plan_id, request, caller)
        if plan.state is PlanState.OPEN:  # a repeated call has the tag of before it was applied
            require_unchanged(if_match, f"plan {plan_id}", plan)
        return answer(await plans.apply(plan_id, body, caller, clock()))

    @routes.post("/plans/{plan_id}/undo", status_code=201, response_model=Plan)
    async def undo_plan(plan_id: str, request: Request, caller: Operator, if_match: IfMatch = None) -> Any:
        """Makes the inverse plan, which is reviewed and applied like any other plan.

        This is possible for an hour, as long as nothing else has changed the object.
        """
        plan = await changeable(plan_id, request, caller)
        require_unchanged(if_match, f"plan {plan_id}", plan)
        return answer(await plans.undo(plan_id, caller, clock()), 201)

    @routes.post("/plans/{plan_id}/again", status_code=201, response_model=Plan)
    async def plan_again(plan_id: str, request: Request, caller: Operator) -> Any:
        """Plans the change of an expired or outdated plan again. The new plan is for the object in its present
        state.
        """
        await changeable(plan_id, request, caller)
        return answer(await plans.again(plan_id, caller, clock()), 201)

    return routes


def rollout_routes(guard: Guard, cluster: ClusterGateway) -> Routes:
    """Return the route GET /v1/pools/{namespace}/{name}/rollout."""
    routes = Routes(prefix="/v1", tags=["pools"])

    async def get_rollout(namespace: str, name: str) -> Ask:
        """How far the rollout of the pool's present template has come, and for each revision the changes that a
        rollback to it would make.
        """
        pool = PoolKey(namespace=namespace, name=name)

        async def ask(sight: Sight) -> Rollout:
            found = await cluster.read(Target.of_pool(pool))
            return rollout_of(pool, found.spec, found.status, await cluster.revisions(pool))

        return ask

    path, needs = "/pools/{namespace}/{name}/rollout", guard.needs(AccessRole.VIEWER)
    document(routes, path, Rollout, needs, get_rollout, TemplateRevision, lambda found: found.revisions)
    return routes


def plans_of(infra: Infra, cluster: ClusterGateway, expectations: Expecting) -> Plans:
    """Return the use cases of plans, for Kubernetes objects and for the bindings of sessions."""
    planned = PlannedObjects(cluster, PostgresSessionHomes(infra.control, infra.clock))
    new_id = partial(secrets.token_hex, 8)
    return Plans(PostgresPlans(infra.control), PostgresEvidence(infra.reads), planned, infra.policies, new_id, expectations)


def feature(infra: Infra, guard: Guard, cluster: ClusterGateway, plans: Plans, expectations: PlanExpecting) -> Feature:
    """Return the feature of plans and rollouts."""
    listed, names = PostgresPlanList(infra.reads, infra.clock), SessionNames(infra.reads)
    return Feature(routes=(plan_routes(guard, plans, expectations, listed, names, infra.clock), rollout_routes(guard, cluster)))
