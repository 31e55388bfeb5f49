"""Plan → apply → undo: a change to a pool is previewed with its effect, applied exactly as
previewed, and can be undone.

Writes go to the Kubernetes object, the single source of truth. A plan can be applied as long as the object's spec is
the one the plan was made for; status updates in between do not matter. For an object that a GitOps tool owns, the plan
is only shown, with the patch to commit there.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.instance_marks import POOL_LABEL
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict, NotFound, ServiceError, Unavailable
from fairlead_api.infra.object_marks import CHANGE_REASON, CHANGED_BY, PLAN
from fairlead_api.plans.applying import SETTLING, Applying
from fairlead_api.plans.changes import annotation_patch, check_shape, checked, scaled_by_its_object, spec_patch, wanted_weight
from fairlead_api.plans.engine_changes import ENGINES, engines_patch, weighed_engine
from fairlead_api.plans.evidence import EvidenceReader
from fairlead_api.plans.merge_patches import holds, merged, replaces_what_others_wrote
from fairlead_api.plans.objects import ClusterGateway, Target, TargetKind
from fairlead_api.plans.previews import Previews
from fairlead_api.plans.reverting import kinds_in, revert_patch, rollback_patch
from fairlead_api.plans.schedule_changes import is_for_admins
from fairlead_api.plans.stored_plans import UNDO, Expected, Expecting, PlanStore, StoredPlan
from fairlead_api.pools.fixed_engines import check_possible, engines_file
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditAction, AuditResult
from fairlead_client.resources.plans import NEEDED_ROLE, ApplyRequest, Plan, PlanKind, PlanRequest, PlanState


class Plans:
    """Use cases for people who operate pools. `new_id` makes the plans' ids.

    Whether the caller's role reaches what is planned (`needed`, `needed_role`) is settled before these are called.
    """

    def __init__(
        self,
        store: PlanStore,
        evidence: EvidenceReader,
        cluster: ClusterGateway,
        policies: PolicyCatalogue,
        new_id: Callable[[], str],
        expecting: Expecting | None = None,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._policies = policies
        self._previews = Previews(store, evidence, cluster, policies, new_id, expecting)
        self._applying = Applying(store, cluster)

    async def needed(self, pool: PoolKey, request: PlanRequest, now: datetime) -> AccessRole:
        """The role that planning this needs, as the object is now. Raises InvalidInput, NotFound, Unavailable."""
        if request.kind is not PlanKind.SCHEDULE:
            return NEEDED_ROLE[request.kind]
        found = await self._cluster.read(Target.of_pool(pool))
        after = merged(found.spec, spec_patch(request, found.spec, now))
        return AccessRole.ADMIN if is_for_admins(found.spec, after) else NEEDED_ROLE[request.kind]

    async def plan(self, pool: PoolKey, request: PlanRequest, caller: Caller, now: datetime, *, expected: Expected | None = None) -> Plan:
        """Previews a change, after a dry run in which the API server accepted it, with what was `expected` elsewhere.

        Raises InvalidInput for a request that cannot be used or that changes nothing, Conflict (engines-are-fixed).
        """
        check_shape(request)
        if request.session is not None:
            target = Target.of_session(pool, request.session)
            found = await self._cluster.read(target)
            if "instance" not in found.spec:
                raise InvalidInput("session", request.session, "no instance holds it; its next request is placed by the policy")
            change: dict[str, Any] = {"instance": request.instance}
        elif request.instance is None:
            target = Target.of_pool(pool)
            found = await self._cluster.read(target)
            check_possible(request.kind, found.spec, found.annotations)
            if request.kind is PlanKind.DELETE:
                return await self._previews.of_deletion(pool, found, caller, now)
            if request.kind is PlanKind.ENGINES:
                target = Target.of_engines(pool)
                found = await self._cluster.read(target)
                change = engines_patch(request.fields or {}, found.spec[ENGINES])
            elif request.kind is PlanKind.REVERT:
                number = request.revision or 0
                change = revert_patch(number, found.spec, await self._store.spec_of(pool, number))
                for kind in kinds_in(found.spec, merged(found.spec, change)):
                    check_possible(kind, found.spec, found.annotations)
            elif request.kind is PlanKind.ROLLBACK:
                change = rollback_patch(request, found.spec, await self._cluster.revisions(pool))
            else:
                change = spec_patch(request, found.spec, now)
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
            change = annotation_patch(request)
            if engines_file(found.annotations) is not None:
                target = replace(target, kind=TargetKind.ENGINE)
                if request.kind is PlanKind.WEIGHT:
                    target, change = Target.of_engines(pool), weighed_engine(request.instance, wanted_weight(request))
                    found = await self._cluster.read(target)
        return await self._previews.of_change(
            pool, request.kind, target, found, change, caller, now, expected=expected, simulation=request.simulation
        )

    async def get(self, plan_id: str, now: datetime) -> Plan:
        """The plan in its present state, which of one left open by a killed process is what became of its object."""
        stored = await self._store.get(plan_id)
        if stored.begun_at is not None and stored.begun_at + SETTLING <= now:
            try:
                stored = await self._applying.closed(stored, now)
            except ServiceError:  # its object cannot be asked now: nothing is said that is not known
                return stored.plan
        return await self._settled(stored, now)

    async def close_left_open(self, now: datetime) -> None:
        """Closes the plans whose apply was made but not recorded, because its process ended between the two. A plan
        that was never written, because the cluster refused it or did not answer, expires as usual.
        """
        for stored in await self._store.begun(now, SETTLING):
            with contextlib.suppress(ServiceError):
                await self._settled(await self._applying.closed(stored, now), now)

    async def apply(self, plan_id: str, request: ApplyRequest, caller: Caller, now: datetime) -> Plan:
        """Applies the plan once, however often the same person sends it.

        Raises Conflict (plan-expired, plan-superseded, already-applied, being-applied, owned-elsewhere,
        object-changed), InvalidInput for a heavy plan without confirmation.
        """
        stored = await self._applying.closed(await self._store.get(plan_id), now)
        plan = await self._settled(stored, now)
        if plan.state is not PlanState.OPEN:
            return _ended(plan, caller)
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
        if not await self._store.begin(plan.id, draft, now, SETTLING):
            ended = (await self._store.get(plan.id)).plan
            if ended.state is not PlanState.OPEN:
                return _ended(ended, caller)
            raise Conflict("being-applied", f"plan {plan.id} is being applied at this moment; look again in some seconds")
        try:
            written = await self._applying.written(stored, marks, now)
        except (ServiceError, InvalidInput) as error:
            failed = replace(draft, result=AuditResult.FAILED, reason=str(error))
            await (self._store.record(failed, now) if _may_be_written(error) else self._store.refused(plan.id, failed, now))
            raise
        applied = replace(
            stored,
            plan=replace(plan, state=PlanState.APPLIED, applied_at=now, applied_by=caller.identity.subject, undo_until=now + UNDO),
            applied_generation=0 if written is None else written.generation,
        )
        return _mine((await self._store.finish(applied, draft, now)).plan, caller)

    async def undo(self, plan_id: str, caller: Caller, now: datetime) -> Plan:
        """The inverse plan, to be applied like any other.

        Raises Conflict (not-applied, undo-expired, object-changed).
        """
        stored = await self._applying.closed(await self._store.get(plan_id), now)
        plan = stored.plan
        if plan.state is not PlanState.APPLIED or plan.undo_until is None:
            raise Conflict("not-applied", f"plan {plan.id} is {plan.state}; only an applied plan can be undone")
        if now > plan.undo_until:
            raise Conflict("undo-expired", f"plan {plan.id} could be undone until {plan.undo_until.isoformat()}; make a new plan")
        if plan.kind is PlanKind.DELETE and not stored.change:
            return await self._previews.of_creation(stored, caller, now)
        found = await self._cluster.read(stored.object)
        part = found.part(stored.object.kind)
        if plan.kind is PlanKind.DELETE and (found.annotations.get(PLAN), found.generation) == (plan.id, stored.applied_generation):
            return await self._previews.of_deletion(PoolKey.parse(plan.pool), found, caller, now, undo_of=plan.id)
        if found.uid != stored.uid or found.generation != stored.applied_generation or not holds(part, stored.change):
            told = f"{stored.object} was changed since plan {plan.id}; make a new plan"
            raise Conflict("object-changed", told, await self._applying.conflict(stored, found, undone=True))
        return await self._previews.of_change(
            PoolKey.parse(plan.pool), plan.kind, stored.object, found, stored.inverse, caller, now, undo_of=plan.id
        )

    async def again(self, plan_id: str, caller: Caller, now: datetime) -> Plan:
        """The same change as a new plan of the object as it is now; the new plan shows the difference to that.

        Raises Conflict (already-applied, plan-stale), InvalidInput when the object is so already.
        """
        stored = await self._applying.closed(await self._store.get(plan_id), now)
        plan, pool = stored.plan, PoolKey.parse(stored.plan.pool)
        if plan.state in {PlanState.APPLIED, PlanState.UNDONE}:
            raise Conflict("already-applied", f"plan {plan.id} was applied by {plan.applied_by}; plan the next change on its own")
        if plan.kind is PlanKind.DELETE and stored.change:
            raise Conflict("plan-stale", f"plan {plan.id} undoes a deletion; undo that again")
        found = await self._cluster.read(stored.object)
        if plan.kind is PlanKind.DELETE:
            return await self._previews.of_deletion(pool, found, caller, now, undo_of=plan.undo_of)
        if replaces_what_others_wrote(found.part(stored.object.kind), stored.change, stored.inverse):
            raise Conflict("plan-stale", f"plan {plan.id} replaces a list of {stored.object} that somebody else changed; make a new plan")
        return await self._previews.of_change(pool, plan.kind, stored.object, found, stored.change, caller, now, undo_of=plan.undo_of)

    async def _settled(self, stored: StoredPlan, now: datetime) -> Plan:
        """The plan, expired if its time is over; not while somebody applies it: its object may be written already."""
        if stored.plan.state is PlanState.OPEN and now > stored.plan.expires_at:
            await self._store.expire(stored.plan.id, now, SETTLING)
            return (await self._store.get(stored.plan.id)).plan
        return stored.plan


def _may_be_written(error: ServiceError | InvalidInput) -> bool:
    """Whether the object may have changed all the same: by this apply, which got no answer, or by another one."""
    return isinstance(error, Unavailable) or (isinstance(error, Conflict) and error.code == "already-applied")


def _ended(plan: Plan, caller: Caller) -> Plan:
    """The caller's own applied plan. Raises Conflict for one that ended otherwise."""
    if plan.state in {PlanState.APPLIED, PlanState.UNDONE}:
        return _mine(plan, caller)
    raise Conflict(f"plan-{plan.state}", f"plan {plan.id} is {plan.state}; make a new one")


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
