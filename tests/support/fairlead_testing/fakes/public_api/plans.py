"""Plans over HTTP: made, shown, applied and undone; `PlanBook` keeps them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.errors import InvalidInput
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_api.services.plans.changes import annotation_patch, check_shape, checked, spec_patch
from fairlead_api.services.plans.engine_changes import engines_patch
from fairlead_api.services.plans.rollbacks import rollback_patch
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plans import NEEDED_ROLE, ApplyRequest, Plan, PlanKind, PlanRequest, PlanState
from fairlead_testing.fakes.public_api.access import Access
from fairlead_testing.fakes.public_api.answers import Refusal, as_json
from fairlead_testing.fakes.public_api.plan_book import PlanBook
from fairlead_testing.fakes.public_api.pools import POOL, pool_named
from fairlead_testing.fakes.public_data.loads import INSTANCES
from fairlead_testing.fakes.public_data.world import World


class Plans:
    def __init__(self, world: World, book: PlanBook, access: Access, clock: Callable[[], datetime]) -> None:
        self._world = world
        self._book = book
        self._access = access
        self._clock = clock

    def routes(self) -> list[Route]:
        guard = self._access.guard
        return [
            Route(f"{POOL}/plans", guard(self._plan, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/plans/{plan}", guard(self._show_plan)),
            Route("/v1/plans/{plan}/apply", guard(self._apply, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/plans/{plan}/undo", guard(self._undo, AccessRole.OPERATOR), methods=["POST"]),
        ]

    async def _plan(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=PlanRequest)
        self._reaches(request, asked.kind)
        pool = pool_named(request)
        spec, who = self._world.spec(pool), self._access.identity(request).subject
        try:
            check_shape(asked)
            if asked.instance is not None:
                if asked.instance not in INSTANCES[pool]:
                    raise Refusal(404, "No such instance", f"There is no instance {asked.instance} in {pool}.")
                return as_json(self._book.plan(pool, asked.kind, annotation_patch(asked.kind), who, instance=asked.instance), 201)
            if asked.kind is PlanKind.ENGINES:
                file = self._world.engines_files.get(pool)
                if file is None:
                    raise Refusal(
                        409,
                        "Conflict",
                        "the pool has no list of engines, its instances are pods; scale it, or its workload",
                        "engines-are-pods",
                    )
                engines = {name: {"url": f"http://{name}:8000"} for name in INSTANCES[pool]}
                return as_json(self._book.plan(pool, asked.kind, engines_patch(asked.fields or {}, engines), who, engines=engines), 201)
            is_rollback = asked.kind is PlanKind.ROLLBACK
            change = rollback_patch(asked, spec, self._world.template_revisions(pool)) if is_rollback else spec_patch(asked, spec)
            checked(spec, change, BUILT_IN)
        except InvalidInput as error:
            raise Refusal(422, "Not acceptable", str(error), "invalid-input", error.remedy, error.field) from error
        return as_json(self._book.plan(pool, asked.kind, change, who), 201)

    async def _show_plan(self, request: Request) -> Response:
        return as_json(self._known(request))

    async def _apply(self, request: Request) -> Response:
        plan, body = self._known(request), msgspec.json.decode(await request.body(), type=ApplyRequest)
        self._reaches(request, plan.kind)
        who = self._access.identity(request).subject
        if plan.state is PlanState.APPLIED and plan.applied_by == who:
            return as_json(plan)
        if plan.state is not PlanState.OPEN or plan.expires_at <= self._clock():
            raise Refusal(
                409, "The plan can no longer be applied", "The pool was changed by grace at 10:04 (replicas 8 → 9).", "plan-changed"
            )
        if plan.effect.heavy and (body.confirm != plan.pool.split("/")[1] or not body.reason):
            raise Refusal(
                422,
                "Confirmation needed",
                f"confirm: write {plan.pool.split('/')[1]!r} and give a reason.",
                "confirmation",
                field="confirm",
            )
        self._book.carry_out(plan)
        now = self._clock()
        done = replace(plan, state=PlanState.APPLIED, applied_at=now, applied_by=who, undo_until=now + timedelta(hours=1))
        self._book.plans[plan.id] = done
        return as_json(done)

    async def _undo(self, request: Request) -> Response:
        plan = self._known(request)
        if plan.state is not PlanState.APPLIED:
            raise Refusal(409, "Nothing to undo", "This plan has not been applied.", "not-applied")
        self._reaches(request, plan.kind)
        _, back = self._book.changes[plan.id]
        who, instance = self._access.identity(request).subject, plan.target.rpartition("/")[2] if plan.target.startswith("Pod ") else None
        return as_json(self._book.plan(plan.pool, plan.kind, back, who, instance=instance, undo_of=plan.id), 201)

    def _reaches(self, request: Request, kind: PlanKind) -> None:
        identity, role = self._access.identity(request), NEEDED_ROLE[kind]
        if not identity.role.reaches(role):
            raise Refusal(403, "Role too low", f"This needs the role {role}; {identity.subject} is {identity.role}.", "denied")

    def _known(self, request: Request) -> Plan:
        plan = self._book.plans.get(request.path_params["plan"])
        if plan is None:
            raise Refusal(404, "No such plan", f"There is no plan {request.path_params['plan']}.")
        return plan
