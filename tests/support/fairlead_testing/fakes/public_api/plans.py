"""Plans over HTTP: they are made, shown, applied and undone here, and kept in `PlanBook`."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead.errors import InvalidInput
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.plans.changes import Asked, check_shape
from fairlead_api.plans.kinds.catalogue import kind_of
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.expectations import ExpectationState, PlanExpectation
from fairlead_client.resources.plan_kinds import PlanRequest
from fairlead_client.resources.plans import ApplyRequest, HandOverResult, Plan, PlanState, needed_role
from fairlead_client.resources.problems import ChangeMeanwhile, PlanConflict
from fairlead_testing.fakes.public_api.access import Access
from fairlead_testing.fakes.public_api.answers import Refusal, as_json, list_routes
from fairlead_testing.fakes.public_api.plan_book import PlanBook, WorldCluster
from fairlead_testing.fakes.public_api.pools import POOL, pool_named
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
            Route("/v1/plans/{plan}/hand-over", guard(self._hand_over)),
            Route("/v1/plans/{plan}/apply", guard(self._apply, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/plans/{plan}/again", guard(self._again, AccessRole.OPERATOR), methods=["POST"]),
            Route("/v1/plans/{plan}/undo", guard(self._undo, AccessRole.OPERATOR), methods=["POST"]),
        ]

    async def _plan(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=PlanRequest)
        self._reaches(request, asked.kind.facts.role)
        pool = "{namespace}/{name}".format(**request.path_params) if asked.kind.facts.creates else pool_named(request)
        who = self._access.identity(request).subject
        cluster = WorldCluster(self._world)
        try:
            check_shape(asked)
            kind, key = kind_of(asked.kind), PoolKey.parse(pool)
            change = await kind.change(
                Asked(pool=key, request=asked, cluster=cluster, spec_of=cluster.spec_of, policies=BUILT_IN, now=self._clock())
            )
            kind.questions(change, BUILT_IN)
            if kind.is_for_admins(change.part, change.after):
                self._reaches(request, AccessRole.ADMIN)
        except InvalidInput as error:
            raise Refusal(422, "Not acceptable", str(error), "invalid-input", error.remedy, error.field) from error
        except NotFound as error:
            raise Refusal(404, f"No such {error.kind}", f"There is no {error.kind} {error.name} in {pool}.") from error
        except Conflict as error:
            raise Refusal(409, "Conflict", str(error), error.code) from error
        return as_json(self._book.of_change(pool, asked, change, who), 201)

    def _all(self, request: Request) -> list[Plan]:
        found = sorted(self._book.plans.values(), key=lambda plan: plan.created_at, reverse=True)
        wanted = {name: request.query_params[name] for name in ("pool", "kind", "created_by") if name in request.query_params}
        return [plan for plan in found if all(getattr(plan, name) == value for name, value in wanted.items())]

    async def _show_plan(self, request: Request) -> Response:
        return as_json(self._known(request))

    async def _expectation(self, request: Request) -> Response:
        plan = self._known(request)
        known = self._book.expectations.get(plan.id)
        reason = "12 requests were recorded in the hour until 10:20 UTC, and 200 are needed"
        return as_json(known or PlanExpectation(plan=plan.id, state=ExpectationState.UNKNOWN, reason=reason))

    async def _hand_over(self, request: Request) -> Response:
        plan = self._known(request)
        result = HandOverResult(plan=plan.id, expected=plan.effect.hand_over)
        return as_json(
            result if plan.applied_at is None else replace(result, until=self._clock(), attainment_before=0.81, attainment_after=0.97)
        )

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
        self._book.plans[plan.id], self._world.reported[plan.pool] = done, now
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
