"""Plan → apply → undo: a change to a pool is previewed with its effect, applied exactly as previewed, and can be
undone.

Writes go to the Kubernetes object, the single source of truth. A plan can be applied as long as the object's spec is
the one for which the plan was made; status updates do not matter. For an object that a GitOps tool owns, the plan is
only shown, with the patch to commit to Git.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from fairlead.errors import InvalidInput
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict, ServiceError, Unavailable
from fairlead_api.infra.object_marks import CHANGE_REASON, CHANGED_BY, PLAN
from fairlead_api.plans.applying import SETTLING, Applying
from fairlead_api.plans.changes import Asked, Change, check_shape
from fairlead_api.plans.evidence import EvidenceReader
from fairlead_api.plans.kinds.catalogue import kind_of
from fairlead_api.plans.merge_patches import holds, replaces_what_others_wrote
from fairlead_api.plans.objects import ClusterGateway
from fairlead_api.plans.previews import Previews
from fairlead_api.plans.stored_plans import UNDO, Expected, Expecting, PlanStore, StoredPlan
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditAction, AuditResult
from fairlead_client.resources.plan_kinds import PlanRequest
from fairlead_client.resources.plans import ApplyRequest, Plan, PlanState, Proposal


class Plans:
    """Use cases of plans, for people who operate pools. `new_id` makes the ids of plans.

    The code that uses this class must first check that the person's role suffices for the plan (`needed`,
    `needed_role`).
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
        """Return the role that a person needs for this plan, given the object's present state. Raises InvalidInput,
        NotFound, Unavailable.
        """
        check_shape(request)
        kind = kind_of(request.kind)
        change = await kind.change(self._asked(pool, request, now))
        return AccessRole.ADMIN if kind.is_for_admins(change.part, change.after) else request.kind.facts.role

    async def plan(
        self,
        pool: PoolKey,
        request: PlanRequest,
        caller: Caller,
        now: datetime,
        *,
        expected: Expected | None = None,
        proposal: Proposal | None = None,
    ) -> Plan:
        """Preview a change, after the API server has accepted it in a dry run. `expected` is the effect according to a
        simulation. A plan with a `proposal` can be applied for a day.

        Raises InvalidInput for an invalid request or one that changes nothing, Conflict (engines-are-fixed).
        """
        check_shape(request)
        change = await kind_of(request.kind).change(self._asked(pool, request, now))
        if request.kind.facts.deletes:
            return await self._previews.of_deletion(pool, request.kind, change.found, caller, now)
        if request.kind.facts.creates:
            return await self._previews.of_new(pool, request.kind, change, caller, now)
        return await self._previews.of_change(
            pool, request.kind, change, caller, now, expected=expected, simulation=request.simulation, proposal=proposal
        )

    async def waiting(self, now: datetime) -> Sequence[Plan]:
        """Return the open plans that are proposals and can be applied."""
        return await self._store.waiting(now)

    async def withdraw(self, plan_id: str) -> None:
        """Close the plan of a proposal that is no longer wanted."""
        await self._store.supersede(plan_id)

    def _asked(self, pool: PoolKey, request: PlanRequest, now: datetime) -> Asked:
        return Asked(pool=pool, request=request, cluster=self._cluster, spec_of=self._store.spec_of, policies=self._policies, now=now)

    async def get(self, plan_id: str, now: datetime) -> Plan:
        """Return the plan in its present state. If a process ended while it applied the plan, the state is taken from
        the plan's object.
        """
        stored = await self._store.get(plan_id)
        if stored.begun_at is not None and stored.begun_at + SETTLING <= now:
            try:
                stored = await self._applying.closed(stored, now)
            except ServiceError:  # its object cannot be asked now: nothing is said that is not known
                return stored.plan
        return await self._settled(stored, now)

    async def close_left_open(self, now: datetime) -> None:
        """Record plans as applied if their objects were written, but the process ended before it recorded that. A plan
        that was never written, because the cluster refused it or did not respond, expires as usual.
        """
        for stored in await self._store.begun(now, SETTLING):
            with contextlib.suppress(ServiceError):
                await self._settled(await self._applying.closed(stored, now), now)

    async def apply(self, plan_id: str, request: ApplyRequest, caller: Caller, now: datetime) -> Plan:
        """Apply the plan once, even if the same person sends the request several times.

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
        """Make and return the inverse plan, which is applied like any other plan.

        Raises Conflict (not-applied, undo-expired, object-changed).
        """
        stored = await self._applying.closed(await self._store.get(plan_id), now)
        plan = stored.plan
        if plan.state is not PlanState.APPLIED or plan.undo_until is None:
            raise Conflict("not-applied", f"plan {plan.id} is {plan.state}; only an applied plan can be undone")
        if now > plan.undo_until:
            raise Conflict("undo-expired", f"plan {plan.id} could be undone until {plan.undo_until.isoformat()}; make a new plan")
        if stored.is_of_existence and not stored.change:
            return await self._previews.of_creation(stored, caller, now)
        found = await self._cluster.read(stored.object)
        part = found.part(stored.object.kind)
        if stored.is_of_existence and (found.annotations.get(PLAN), found.generation) == (plan.id, stored.applied_generation):
            return await self._previews.of_deletion(PoolKey.parse(plan.pool), plan.kind, found, caller, now, undo_of=plan.id)
        if found.uid != stored.uid or found.generation != stored.applied_generation or not holds(part, stored.change):
            told = f"{stored.object} was changed since plan {plan.id}; make a new plan"
            raise Conflict("object-changed", told, await self._applying.conflict(stored, found, undone=True))
        change = Change(target=stored.object, found=found, patch=stored.inverse)
        return await self._previews.of_change(PoolKey.parse(plan.pool), plan.kind, change, caller, now, undo_of=plan.id)

    async def again(self, plan_id: str, caller: Caller, now: datetime) -> Plan:
        """Plan the same change again for the object in its present state, and return the new plan, which shows the
        difference from the present state.

        Raises Conflict (already-applied, plan-stale), and InvalidInput if the object is already as planned.
        """
        stored = await self._applying.closed(await self._store.get(plan_id), now)
        plan, pool = stored.plan, PoolKey.parse(stored.plan.pool)
        if plan.state in {PlanState.APPLIED, PlanState.UNDONE}:
            raise Conflict("already-applied", f"plan {plan.id} was applied by {plan.applied_by}; make a new plan for a further change")
        if plan.kind.facts.creates and plan.undo_of is None:
            asked = PlanRequest(kind=plan.kind, fields=stored.change["spec"])
            return await self.plan(pool, asked, caller, now)
        if stored.is_of_existence and stored.change:
            raise Conflict("plan-stale", f"plan {plan.id} undoes a deletion; undo that deletion again")
        found = await self._cluster.read(stored.object)
        if stored.is_of_existence:
            return await self._previews.of_deletion(pool, plan.kind, found, caller, now, undo_of=plan.undo_of)
        if replaces_what_others_wrote(found.part(stored.object.kind), stored.change, stored.inverse):
            raise Conflict("plan-stale", f"plan {plan.id} replaces a list of {stored.object} that somebody else changed; make a new plan")
        change = Change(target=stored.object, found=found, patch=stored.change)
        return await self._previews.of_change(pool, plan.kind, change, caller, now, undo_of=plan.undo_of)

    async def _settled(self, stored: StoredPlan, now: datetime) -> Plan:
        """Return the plan, marked as expired if it is too old to be applied. A plan that is being applied does not
        expire, because its object may already be written.
        """
        if stored.plan.state is PlanState.OPEN and now > stored.plan.expires_at:
            await self._store.expire(stored.plan.id, now, SETTLING)
            return (await self._store.get(stored.plan.id)).plan
        return stored.plan


def _may_be_written(error: ServiceError | InvalidInput) -> bool:
    """Return whether the object may have changed although the write failed with this error: the write's response was
    lost, or another attempt had applied the plan.
    """
    return isinstance(error, Unavailable) or (isinstance(error, Conflict) and error.code == "already-applied")


def _ended(plan: Plan, caller: Caller) -> Plan:
    """Return the plan if this caller applied it. Raises Conflict if somebody else applied the plan, or if the plan
    ended in another way.
    """
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
        raise InvalidInput("reason", request.reason, "this is a heavy change: write the reason")
