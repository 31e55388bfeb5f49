"""Writes plans to their objects. A plan is written at most once, only to the object for which it was made. The write is
recorded even if the process ends between the write and its record.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from fairlead.tables import PoolKey
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.object_marks import CHANGE_REASON, CHANGED_BY, PLAN
from fairlead_api.plans.kinds.delete import create, delete
from fairlead_api.plans.merge_patches import holds, inverse, merged
from fairlead_api.plans.objects import ClusterGateway, ClusterObject, TargetKind
from fairlead_api.plans.stored_plans import UNDO, PlanStore, StoredPlan, changes_meanwhile
from fairlead_api.pools.diffs import diff
from fairlead_client.resources.plans import PlanState
from fairlead_client.resources.problems import PlanConflict

SETTLING = timedelta(seconds=30)
"""Time after which an unfinished attempt to apply a plan counts as abandoned."""


def written_generation(stored: StoredPlan, found: ClusterObject | None) -> int | None:
    """Return the generation that the plan's write gave to the object, 0 for a deletion. None if the object shows no
    write of this plan.
    """
    if stored.is_of_existence and not stored.change:
        return 0 if found is None or found.is_deleting or found.uid != stored.uid else None
    if found is None or found.annotations.get(PLAN) != stored.plan.id:
        return None
    if stored.is_of_existence:
        return found.generation
    if found.uid != stored.uid:
        return None
    return found.generation if holds(found.part(stored.object.kind), stored.change) else stored.generation + 1


def draft_of(begun: AuditDraft, found: ClusterObject | None) -> AuditDraft:
    """Return the audit entry of the latest attempt to apply a plan. If the object names another person as its writer,
    that person's attempt succeeded, and the entry names that person.
    """
    actor = None if found is None else found.annotations.get(CHANGED_BY)
    if found is None or actor in {None, begun.actor}:
        return begun
    return replace(begun, actor=str(actor), role="none", reason=found.annotations.get(CHANGE_REASON), request_id=None)


_TRIES = 6
_TOLD = 3
"""Maximum number of values that the message of a conflict names."""


class Applying:
    """Writes stored plans to their objects. `marks` are annotations that name the person who changed the object, the
    reason and the plan.
    """

    def __init__(self, store: PlanStore, cluster: ClusterGateway) -> None:
        self._store = store
        self._cluster = cluster

    async def written(self, stored: StoredPlan, marks: Mapping[str, str | None], now: datetime) -> ClusterObject | None:
        """Apply the plan to its object, and return the object as written; None if the plan deleted it.

        Raises Conflict (object-changed, already-applied).
        """
        if stored.is_of_existence:
            return await self._exist(stored, marks, now)
        return await self._write(stored, marks, now)

    async def closed(self, stored: StoredPlan, now: datetime) -> StoredPlan:
        """Return the plan as applied if it is still recorded as open although its object shows that it was written.
        Otherwise return the plan unchanged. Raises ClusterUnavailable, Denied.
        """
        plan = stored.plan
        if plan.state is not PlanState.OPEN or stored.begun is None or stored.begun_at is None:
            return stored
        try:
            found = await self._cluster.read(stored.object)
        except NotFound:
            found = None
        generation = written_generation(stored, found)
        if generation is None:
            return stored
        draft, at = draft_of(stored.begun, found), stored.begun_at
        applied = replace(plan, state=PlanState.APPLIED, applied_at=at, applied_by=draft.actor, undo_until=at + UNDO)
        return await self._store.finish(replace(stored, plan=applied, applied_generation=generation), draft, now)

    async def _close_other(self, found: ClusterObject, stored: StoredPlan, now: datetime) -> None:
        """Record the plan that wrote the object last as applied, if it is still recorded as open. This must happen
        before the next write, which removes that plan's mark from the object.
        """
        last = found.annotations.get(PLAN)
        if last in {None, stored.plan.id}:
            return
        with contextlib.suppress(NotFound):
            other = await self._store.get(str(last))
            if other.object == stored.object:
                await self.closed(other, now)

    async def conflict(self, stored: StoredPlan, found: ClusterObject, *, undone: bool = False) -> PlanConflict | None:
        """Return the changes that the plan would have made, and the changes that others have made to the object since.
        With `undone`, the planned changes are the changes that undo the plan. None for a plan of an older release,
        which did not store the object's former values.
        """
        if stored.seen is None:
            return None
        before, generation, planned = stored.seen, stored.generation, stored.plan.diff
        if undone:
            before, generation = merged(before, stored.change), stored.applied_generation
            planned = [{**step, "before": step["after"], "after": step["before"]} for step in planned]
        known = (
            await self._store.spec_changes(PoolKey.parse(stored.plan.pool), stored.uid, generation)
            if stored.object.kind is TargetKind.POOL
            else ()
        )
        meanwhile = changes_meanwhile(stored.object, before, found, stored.change, known)
        return PlanConflict(plan=stored.plan.id, planned=planned, meanwhile=meanwhile)

    async def _exist(self, stored: StoredPlan, marks: Mapping[str, str | None], now: datetime) -> ClusterObject | None:
        """Create the plan's object, or delete it. Returns None after a deletion."""
        try:
            if stored.change:
                return await create(self._cluster, stored.object, stored.change, marks)
            with contextlib.suppress(NotFound):
                await self._close_other(await self._cluster.read(stored.object), stored, now)
            await delete(self._cluster, stored.object, stored.uid, stored.generation)
        except Conflict as conflict:
            if conflict.code != "object-changed":
                raise
            await self._store.supersede(stored.plan.id)
            raise Conflict(conflict.code, str(conflict), await self.conflict(stored, await self._cluster.read(stored.object))) from conflict
        return None

    async def _write(self, stored: StoredPlan, marks: Mapping[str, str | None], now: datetime) -> ClusterObject:
        """Patch the object if it has not changed since the plan was made. Tries again if only the object's status has
        changed.

        If the object has this plan's mark, an earlier attempt wrote the object and its response was lost.
        """
        for attempt in range(1, _TRIES + 1):
            found = await self._cluster.read(stored.object)
            part = found.part(stored.object.kind)
            if found.uid == stored.uid and found.annotations.get(PLAN) == stored.plan.id and holds(part, stored.change):
                by = found.annotations.get(CHANGED_BY, marks[CHANGED_BY])
                if by != marks[CHANGED_BY]:
                    raise Conflict("already-applied", f"plan {stored.plan.id} was applied by {by}")
                return found
            await self._close_other(found, stored, now)
            if (found.uid, found.generation, inverse(part, stored.change)) != (stored.uid, stored.generation, stored.inverse):
                await self._store.supersede(stored.plan.id)
                raise Conflict(
                    "object-changed",
                    f"{stored.object} was changed since the plan was made{_meanwhile(part, stored)}; make a new plan",
                    await self.conflict(stored, found),
                )
            try:
                return await self._cluster.patch(stored.object, stored.change, found.resource_version, marks, dry_run=False)
            except Conflict:
                if attempt == _TRIES:
                    raise
        raise AssertionError("the last try returns or raises")


def _meanwhile(part: Mapping[str, Any], stored: StoredPlan) -> str:
    """Describe the values that the plan would change and that somebody else changed first; empty if there are none."""
    steps = diff(stored.inverse, inverse(part, stored.change))[:_TOLD]
    told = [f"{step['path'].strip('/').replace('/', '.')} was {_short(step['before'])} and is {_short(step['after'])}" for step in steps]
    planned = [f"{one['path'].strip('/').replace('/', '.')} to {_short(one['after'])}" for one in stored.plan.diff[:_TOLD]]
    return f": {', '.join(told)}, where the plan sets {', '.join(planned)}" if told else ""


def _short(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
