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
from fairlead_api.plans.changes import annotation_patch, check_shape, checked, spec_patch
from fairlead_api.plans.engine_changes import engines_patch
from fairlead_api.plans.merge_patches import merged
from fairlead_api.plans.reverting import revert_patch, rollback_patch
from fairlead_api.plans.schedule_changes import is_for_admins
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.expectations import ExpectationState, PlanExpectation
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanState, needed_role
from fairlead_client.resources.problems import ChangeMeanwhile, PlanConflict
from fairlead_testing.fakes.public_api.access import Access
from fairlead_testing.fakes.public_api.answers import Refusal, as_json, list_routes
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
            *list_routes("/v1/plans", self._all, guard),
            Route(f"{POOL}/plans", guard(self._plan, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/plans/{plan}", guard(self._show_plan)),
            Route("/v1/plans/{plan}/expectation", guard(self._expectation)),
            Route("/v1/plans/{plan}/apply", guard(self._apply, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/plans/{plan}/again", guard(self._again, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/plans/{plan}/undo", guard(self._undo, AccessRole.OPERATOR), methods=["POST"]),
        ]

    async def _plan(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=PlanRequest)
        self._reaches(request, asked.kind.facts.role)
        pool = pool_named(request)
        spec, who = self._world.spec(pool), self._access.identity(request).subject
        try:
            check_shape(asked)
            if asked.session is not None:
                home = next((one.instance for one in self._world.sessions() if (one.pool, one.session) == (pool, asked.session)), None)
                if home is None:
                    raise Refusal(404, "No such session", f"There is no session {asked.session} in {pool}.")
                change = {"instance": asked.instance}
                return as_json(self._book.plan(pool, asked.kind, change, who, session=(asked.session, home)), 201)
            if asked.kind is PlanKind.DELETE:
                return as_json(self._book.plan(pool, asked.kind, {}, who), 201)
            if asked.instance is not None:
                if asked.instance not in INSTANCES[pool]:
                    raise Refusal(404, "No such instance", f"There is no instance {asked.instance} in {pool}.")
                return as_json(self._book.plan(pool, asked.kind, annotation_patch(asked), who, instance=asked.instance), 201)
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
            if asked.kind is PlanKind.REVERT:
                change = revert_patch(asked.revision or 0, spec, self._world.spec(pool, asked.revision))
            else:
                change = (
                    rollback_patch(asked, spec, self._world.template_revisions(pool))
                    if is_rollback
                    else spec_patch(asked, spec, self._clock())
                )
            checked(spec, change, BUILT_IN)
            if asked.kind is PlanKind.SCHEDULE and is_for_admins(spec, merged(spec, change)):
                self._reaches(request, AccessRole.ADMIN)
        except InvalidInput as error:
            raise Refusal(422, "Not acceptable", str(error), "invalid-input", error.remedy, error.field) from error
        return as_json(self._book.plan(pool, asked.kind, change, who), 201)

    def _all(self, request: Request) -> list[Plan]:
        found = sorted(self._book.plans.values(), key=lambda plan: plan.created_at, reverse=True)
        wanted = {name: request.query_params[name] for name in ("pool", "kind", "created_by") if name in request.query_params}
        return [plan for plan in found if all(getattr(plan, name) == value for name, value in wanted.items())]

    async def _show_plan(self, request: Request) -> Response:
        return as_json(self._known(request))

    async def _expectation(self, request: Request) -> Response:
        plan = self._known(request)
        known = self._book.expectations.get(plan.id)
        reason = "12 requests were recorded in the last hour, and 200 are needed"
        return as_json(known or PlanExpectation(plan=plan.id, state=ExpectationState.UNKNOWN, reason=reason))

    async def _apply(self, request: Request) -> Response:
        plan, body = self._known(request), msgspec.json.decode(await request.body(), type=ApplyRequest)
        self._reaches(request, needed_role(plan))
        who = self._access.identity(request).subject
        if plan.state is PlanState.APPLIED and plan.applied_by == who:
            return as_json(plan)
        if plan.state is not PlanState.OPEN or plan.expires_at <= self._clock():
            meanwhile = ChangeMeanwhile(
                by="grace", at=self._clock(), reason="cheaper", diff=[{"op": "replace", "path": "/spec/replicas", "before": 8, "after": 9}]
            )
            raise Refusal(
                409,
                "The plan can no longer be applied",
                "The pool was changed by grace at 10:04 (replicas 8 → 9).",
                "object-changed",
                conflict=PlanConflict(plan=plan.id, planned=plan.diff, meanwhile=[meanwhile]),
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
        self._reaches(request, needed_role(plan))
        _, back = self._book.changes[plan.id]
        who, instance = self._access.identity(request).subject, plan.target.rpartition("/")[2] if plan.target.startswith("Pod ") else None
        return as_json(self._book.plan(plan.pool, plan.kind, back, who, instance=instance, undo_of=plan.id), 201)

    async def _again(self, request: Request) -> Response:
        plan = self._known(request)
        self._reaches(request, needed_role(plan))
        if plan.state in {PlanState.APPLIED, PlanState.UNDONE}:
            raise Refusal(409, "Already applied", f"Plan {plan.id} was applied by {plan.applied_by}.", "already-applied")
        change, _ = self._book.changes[plan.id]
        who, instance = self._access.identity(request).subject, plan.target.rpartition("/")[2] if plan.target.startswith("Pod ") else None
        return as_json(self._book.plan(plan.pool, plan.kind, change, who, instance=instance), 201)

    def _reaches(self, request: Request, role: AccessRole) -> None:
        identity = self._access.identity(request)
        if not identity.role.reaches(role):
            raise Refusal(403, "Role too low", f"This needs the role {role}; {identity.subject} is {identity.role}.", "denied")

    def _known(self, request: Request) -> Plan:
        plan = self._book.plans.get(request.path_params["plan"])
        if plan is None:
            raise Refusal(404, "No such plan", f"There is no plan {request.path_params['plan']}.")
        return plan
