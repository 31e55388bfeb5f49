"""Plan → apply → undo: a change to a pool is previewed with its effect, applied exactly as
previewed, and can be undone.

Writes go to the Kubernetes object, the single source of truth. A plan can be applied as long as the object's spec is
the one the plan was made for; status updates in between do not matter. For an object that a GitOps tool owns, the plan
is only shown, with the patch to commit there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from fairlead.errors import InvalidInput
from fairlead.pools import MAX_REPLICAS
from fairlead.tables import PoolKey
from fairlead_api.services.access.access import Caller
from fairlead_api.services.audit.chain import AuditDraft
from fairlead_api.services.errors import Conflict, ServiceError
from fairlead_api.services.plans.effects import ScaleBasis, scale_effect
from fairlead_api.services.plans.marks import CHANGE_REASON, CHANGED_BY, PLAN
from fairlead_api.services.plans.owners import owner_of
from fairlead_client.resources.audit import AuditAction, AuditResult
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanKind, PlanState, ScalePlanRequest

LIFE = timedelta(minutes=10)
UNDO = timedelta(hours=1)
_TRIES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPool:
    """An InferencePool as the Kubernetes API has it. `managers` are the field managers that wrote its spec."""

    uid: str
    resource_version: str
    generation: int
    spec: Mapping[str, Any]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    managers: tuple[str, ...]

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 1))


class ClusterGateway(Protocol):
    """The two calls we make to the Kubernetes API. Raises ClusterUnavailable, NotFound, Denied."""

    async def read(self, pool: PoolKey) -> ClusterPool: ...

    async def scale(
        self, pool: PoolKey, replicas: int, resource_version: str, annotations: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterPool:
        """Merge-patches spec.replicas and annotations.

        Raises Conflict (`object-changed`) when the resource version is not the newest, InvalidInput when the API
        server refuses the value.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan with the fields that only the server needs."""

    plan: Plan
    uid: str
    generation: int
    replicas_before: int
    replicas_after: int
    applied_generation: int


class PlanStore(Protocol):
    """Plans in the database; each write appends its audit entry in the same transaction."""

    async def basis(self, pool: PoolKey, now: datetime) -> ScaleBasis:
        """Present sessions and traffic. Raises NotFound."""

    async def add(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> None: ...

    async def get(self, plan_id: str) -> StoredPlan:
        """The stored plan. Raises NotFound."""

    async def finish(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> StoredPlan:
        """Marks an open plan applied, and other open plans of the pool superseded; returns the plan as stored
        afterwards.

        If the plan was closed meanwhile, nothing changes.
        """

    async def set_state(self, plan_id: str, state: PlanState) -> None: ...

    async def record(self, draft: AuditDraft, now: datetime) -> None: ...


class Plans:
    """Use cases for people who operate pools. `new_id` makes the plans' ids."""

    def __init__(self, store: PlanStore, cluster: ClusterGateway, new_id: Callable[[], str]) -> None:
        self._store = store
        self._cluster = cluster
        self._new_id = new_id

    async def plan_scale(self, pool: PoolKey, request: ScalePlanRequest, caller: Caller, now: datetime, undo_of: str | None = None) -> Plan:
        """Previews a number of replicas, after a dry run in which the API server accepted it."""
        if not 0 <= request.replicas <= MAX_REPLICAS:
            raise InvalidInput("replicas", request.replicas, f"write 0 to {MAX_REPLICAS}")
        found = await self._cluster.read(pool)
        if found.replicas == request.replicas:
            raise InvalidInput("replicas", request.replicas, "the pool has that many already; write another number")
        owner = owner_of(found.labels, found.annotations, found.managers)
        if owner is None:
            await self._patch(pool, found, request.replicas, {}, dry_run=True)
        basis = await self._store.basis(pool, now)
        plan = Plan(
            id=self._new_id(),
            pool=str(pool),
            kind=PlanKind.SCALE,
            created_at=now,
            created_by=caller.identity.subject,
            expires_at=now + LIFE,
            state=PlanState.OPEN,
            diff=[{"op": "replace", "path": "/spec/replicas", "before": found.replicas, "after": request.replicas}],
            effect=scale_effect(basis, found.replicas, request.replicas),
            owner=owner,
            patch=f"spec:\n  replicas: {request.replicas}\n",
            undo_of=undo_of,
        )
        stored = StoredPlan(
            plan=plan,
            uid=found.uid,
            generation=found.generation,
            replicas_before=found.replicas,
            replicas_after=request.replicas,
            applied_generation=0,
        )
        draft = replace(
            caller.draft(AuditAction.PLAN_CREATED, str(pool)), plan=plan.id, after={"kind": PlanKind.SCALE, "replicas": request.replicas}
        )
        await self._store.add(stored, draft, now)
        return plan

    async def get(self, plan_id: str, now: datetime) -> Plan:
        return await self._settled(await self._store.get(plan_id), now)

    async def apply(self, plan_id: str, request: ApplyRequest, caller: Caller, now: datetime) -> Plan:
        """Applies once, however often the same person sends it.

        Raises Conflict (plan-expired, plan-superseded, already-applied, owned-elsewhere, object-changed), InvalidInput
        for a heavy plan without confirmation.
        """
        stored = await self._store.get(plan_id)
        plan = await self._settled(stored, now)
        if plan.state in {PlanState.APPLIED, PlanState.UNDONE}:
            return _mine(plan, caller)
        if plan.state is not PlanState.OPEN:
            raise Conflict(f"plan-{plan.state}", f"plan {plan.id} is {plan.state}; make a new one")
        if plan.owner is not None:
            raise Conflict("owned-elsewhere", f"{plan.pool} is owned by {plan.owner}; commit the plan's patch there")
        _confirmed(plan, request)
        pool = PoolKey.parse(plan.pool)
        marks = {CHANGED_BY: caller.identity.subject, CHANGE_REASON: request.reason, PLAN: plan.id}
        draft = replace(
            caller.draft(AuditAction.PLAN_APPLIED, plan.pool, reason=request.reason),
            plan=plan.id,
            before={"replicas": stored.replicas_before},
            after={"replicas": stored.replicas_after},
        )
        try:
            written = await self._write(pool, stored, marks)
        except (ServiceError, InvalidInput) as error:
            await self._store.record(replace(draft, result=AuditResult.FAILED, reason=str(error)), now)
            raise
        applied = replace(
            stored,
            plan=replace(plan, state=PlanState.APPLIED, applied_at=now, applied_by=caller.identity.subject, undo_until=now + UNDO),
            applied_generation=written.generation,
        )
        return _mine((await self._store.finish(applied, draft, now)).plan, caller)

    async def undo(self, plan_id: str, caller: Caller, now: datetime) -> Plan:
        """The inverse plan, to be applied like any other.

        Raises Conflict (not-applied, undo-expired, object-changed).
        """
        stored = await self._store.get(plan_id)
        plan = stored.plan
        if plan.state is not PlanState.APPLIED or plan.undo_until is None:
            raise Conflict("not-applied", f"plan {plan.id} is {plan.state}; only an applied plan can be undone")
        if now > plan.undo_until:
            raise Conflict("undo-expired", f"plan {plan.id} could be undone until {plan.undo_until.isoformat()}; make a new plan")
        pool = PoolKey.parse(plan.pool)
        found = await self._cluster.read(pool)
        if found.uid != stored.uid or found.generation != stored.applied_generation:
            raise Conflict("object-changed", f"{plan.pool} was changed since plan {plan.id}; make a new plan")
        request = ScalePlanRequest(kind=PlanKind.SCALE, replicas=stored.replicas_before)
        return await self.plan_scale(pool, request, caller, now, undo_of=plan.id)

    async def _settled(self, stored: StoredPlan, now: datetime) -> Plan:
        if stored.plan.state is PlanState.OPEN and now > stored.plan.expires_at:
            await self._store.set_state(stored.plan.id, PlanState.EXPIRED)
            return replace(stored.plan, state=PlanState.EXPIRED)
        return stored.plan

    async def _write(self, pool: PoolKey, stored: StoredPlan, marks: Mapping[str, str | None]) -> ClusterPool:
        """Patches the object if its spec is still the planned one, and tries again when only its status changed.

        An object that carries this plan's mark was written by an earlier try whose answer was lost.
        """
        for attempt in range(1, _TRIES + 1):
            found = await self._cluster.read(pool)
            if found.uid == stored.uid and found.annotations.get(PLAN) == stored.plan.id and found.replicas == stored.replicas_after:
                return found
            if found.uid != stored.uid or found.generation != stored.generation:
                await self._store.set_state(stored.plan.id, PlanState.SUPERSEDED)
                raise Conflict("object-changed", f"{pool} was changed since the plan was made; make a new plan")
            try:
                return await self._cluster.scale(pool, stored.replicas_after, found.resource_version, marks, dry_run=False)
            except Conflict:
                if attempt == _TRIES:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _patch(
        self, pool: PoolKey, found: ClusterPool, replicas: int, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterPool:
        for _ in range(_TRIES - 1):
            try:
                return await self._cluster.scale(pool, replicas, found.resource_version, marks, dry_run=dry_run)
            except Conflict:
                found = await self._cluster.read(pool)
        return await self._cluster.scale(pool, replicas, found.resource_version, marks, dry_run=dry_run)


def _mine(plan: Plan, caller: Caller) -> Plan:
    if plan.applied_by != caller.identity.subject:
        raise Conflict("already-applied", f"plan {plan.id} was applied by {plan.applied_by}")
    return plan


def _confirmed(plan: Plan, request: ApplyRequest) -> None:
    if not plan.effect.heavy:
        return
    name = plan.pool.partition("/")[2]
    if request.confirm != name:
        raise InvalidInput("confirm", request.confirm, f"this is a heavy change: write the pool's name, {name}")
    if not request.reason or not request.reason.strip():
        raise InvalidInput("reason", request.reason, "this is a heavy change: write why")
