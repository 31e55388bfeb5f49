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

import yaml

from fairlead.errors import InvalidInput
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.services.access.access import Caller
from fairlead_api.services.audit.chain import AuditDraft
from fairlead_api.services.errors import Conflict, NotFound, ServiceError
from fairlead_api.services.plans.changes import annotation_patch, check_shape, checked, scaled_by_its_object, spec_patch
from fairlead_api.services.plans.effects import Effects, question_of
from fairlead_api.services.plans.engine_changes import ENGINES, engines_patch
from fairlead_api.services.plans.evidence import EvidenceReader
from fairlead_api.services.plans.fixed_engines import check_possible, engines_file
from fairlead_api.services.plans.marks import CHANGE_REASON, CHANGED_BY, PLAN
from fairlead_api.services.plans.merge_patches import holds, inverse, merged
from fairlead_api.services.plans.objects import POOL_LABEL, ClusterGateway, ClusterObject, Target, TargetKind
from fairlead_api.services.plans.owners import owner_of
from fairlead_api.services.plans.rollbacks import rollback_patch
from fairlead_api.services.pools.diffs import diff
from fairlead_client.resources.audit import AuditAction, AuditResult
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanKind, PlanRequest, PlanState

LIFE = timedelta(minutes=10)
UNDO = timedelta(hours=1)
_TRIES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan with what only the server needs: the object it was made for, and the merge patches there and back of what
    plans may change of it.
    """

    plan: Plan
    object: Target
    uid: str
    generation: int
    change: dict[str, Any]
    inverse: dict[str, Any]
    applied_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is expected of a change that was tried: shares of requests in time and refused, and how that is known."""

    attainment: float
    refusals: float
    basis: str


class PlanStore(Protocol):
    """Plans in the database; each write appends its audit entry in the same transaction."""

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
    """Use cases for people who operate pools. `new_id` makes the plans' ids.

    Whether the caller's role reaches the kind of plan (`NEEDED_ROLE`) is settled before these are called.
    """

    def __init__(
        self,
        store: PlanStore,
        evidence: EvidenceReader,
        cluster: ClusterGateway,
        policies: PolicyCatalogue,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._effects = Effects(evidence, policies)
        self._cluster = cluster
        self._policies = policies
        self._new_id = new_id

    async def plan(self, pool: PoolKey, request: PlanRequest, caller: Caller, now: datetime, *, expected: Expected | None = None) -> Plan:
        """Previews a change, after a dry run in which the API server accepted it, with what was `expected` elsewhere.

        Raises InvalidInput for a request that cannot be used or that changes nothing, Conflict (engines-are-fixed).
        """
        check_shape(request)
        if request.instance is None:
            target = Target.of_pool(pool)
            found = await self._cluster.read(target)
            check_possible(request.kind, found.spec, found.annotations)
            if request.kind is PlanKind.ENGINES:
                target = Target.of_engines(pool)
                found = await self._cluster.read(target)
                change = engines_patch(request.fields or {}, found.spec[ENGINES])
            elif request.kind is PlanKind.ROLLBACK:
                change = rollback_patch(request, found.spec, await self._cluster.revisions(pool))
            else:
                change = spec_patch(request, found.spec)
            scaled = scaled_by_its_object(request, found.spec)
            if scaled is not None:
                checked(found.spec, change, self._policies)
                target, change = Target.of_role(pool, scaled), {"replicas": request.replicas}
                found = await self._cluster.read(target)
        else:
            target = Target.of_instance(pool, request.instance)
            found = await self._cluster.read(target)
            if found.labels.get(POOL_LABEL) != pool.name:
                raise NotFound("instance", request.instance)
            if engines_file(found.annotations) is not None:
                target = replace(target, kind=TargetKind.ENGINE)
            change = annotation_patch(request.kind)
        return await self._preview(pool, request.kind, target, found, change, caller, now, expected=expected)

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
        marks = {CHANGED_BY: caller.identity.subject, CHANGE_REASON: request.reason, PLAN: plan.id}
        draft = replace(
            caller.draft(AuditAction.PLAN_APPLIED, plan.pool, reason=request.reason),
            plan=plan.id,
            before={change["path"]: change["before"] for change in plan.diff},
            after={change["path"]: change["after"] for change in plan.diff},
        )
        try:
            written = await self._write(stored, marks)
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
        found = await self._cluster.read(stored.object)
        part = found.part(stored.object.kind)
        if found.uid != stored.uid or found.generation != stored.applied_generation or not holds(part, stored.change):
            raise Conflict("object-changed", f"{stored.object} was changed since plan {plan.id}; make a new plan")
        return await self._preview(PoolKey.parse(plan.pool), plan.kind, stored.object, found, stored.inverse, caller, now, undo_of=plan.id)

    async def _preview(
        self,
        pool: PoolKey,
        kind: PlanKind,
        target: Target,
        found: ClusterObject,
        change: dict[str, Any],
        caller: Caller,
        now: datetime,
        *,
        undo_of: str | None = None,
        expected: Expected | None = None,
    ) -> Plan:
        part = found.part(target.kind)
        question = question_of(kind, target, part, change, self._policies, found.status)
        owner = owner_of(found.labels, found.annotations, found.managers) if not target.kind.is_instance else None
        after = merged(part, change) if owner else await self._tried(target, found, change)
        changes = diff(part, after, "".join(f"/{name}" for name in target.kind.path))
        if not changes:
            raise InvalidInput(*_only(change, ".".join(target.kind.path)), "it is so already; write another value")
        effect = await self._effects.of(question, pool, now)
        if expected is not None:
            effect = replace(
                effect, predicted_attainment=expected.attainment, predicted_refusals=expected.refusals, prediction_basis=expected.basis
            )
        plan = Plan(
            id=self._new_id(),
            pool=str(pool),
            kind=kind,
            target=str(target),
            created_at=now,
            created_by=caller.identity.subject,
            expires_at=now + LIFE,
            state=PlanState.OPEN,
            diff=changes,
            effect=effect,
            owner=owner,
            patch=yaml.safe_dump(_shown(target, found, change, after), sort_keys=False, allow_unicode=True),
            undo_of=undo_of,
        )
        stored = StoredPlan(
            plan=plan, object=target, uid=found.uid, generation=found.generation, change=change, inverse=inverse(part, change)
        )
        draft = caller.draft(AuditAction.PLAN_CREATED, str(pool))
        told = {"kind": kind, **{item["path"]: item["after"] for item in changes}}
        await self._store.add(stored, replace(draft, plan=plan.id, after=told), now)
        return plan

    async def _settled(self, stored: StoredPlan, now: datetime) -> Plan:
        if stored.plan.state is PlanState.OPEN and now > stored.plan.expires_at:
            await self._store.set_state(stored.plan.id, PlanState.EXPIRED)
            return replace(stored.plan, state=PlanState.EXPIRED)
        return stored.plan

    async def _write(self, stored: StoredPlan, marks: Mapping[str, str | None]) -> ClusterObject:
        """Patches the object if it still is as planned, and tries again when only its status changed.

        An object that carries this plan's mark was written by an earlier try whose answer was lost.
        """
        for attempt in range(1, _TRIES + 1):
            found = await self._cluster.read(stored.object)
            part = found.part(stored.object.kind)
            if found.uid == stored.uid and found.annotations.get(PLAN) == stored.plan.id and holds(part, stored.change):
                return found
            if (found.uid, found.generation, inverse(part, stored.change)) != (stored.uid, stored.generation, stored.inverse):
                await self._store.set_state(stored.plan.id, PlanState.SUPERSEDED)
                raise Conflict("object-changed", f"{stored.object} was changed since the plan was made; make a new plan")
            try:
                return await self._cluster.patch(stored.object, stored.change, found.resource_version, marks, dry_run=False)
            except Conflict:
                if attempt == _TRIES:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _tried(self, target: Target, found: ClusterObject, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the API server would make of it."""
        for attempt in range(1, _TRIES + 1):
            try:
                return (await self._cluster.patch(target, change, found.resource_version, {}, dry_run=True)).part(target.kind)
            except Conflict:
                if attempt == _TRIES:
                    raise
                found = await self._cluster.read(target)
        raise AssertionError("the last try returns or raises")


def _shown(target: Target, found: ClusterObject, change: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, Any]:
    """The change as a patch of the whole object; of a file as it is to stand there."""
    if target.kind is TargetKind.ENGINES:
        return {ENGINES: [{"name": name, **entry} for name, entry in after[ENGINES].items()]}
    return _nested(change, target.kind.path if engines_file(found.annotations) is None else ())


def _nested(change: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    """The change as a patch of the whole object."""
    return _nested({path[-1]: change}, path[:-1]) if path else change


def _only(change: Mapping[str, Any], path: str) -> tuple[str, Any]:
    """Path and value of what a patch changes; of the first part that holds several values. A list is not repeated."""
    if len(change) != 1:
        return path, str(dict(change))
    name, value = next(iter(change.items()))
    if isinstance(value, Mapping) and value:
        return _only(value, f"{path}.{name}")
    return f"{path}.{name}", "the same list" if isinstance(value, list) else value


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
