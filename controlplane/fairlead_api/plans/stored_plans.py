"""Plans as they are stored, the port to their store, and the changes to an object since its plan was made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from fairlead.tables import PoolKey
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.plans.objects import ClusterObject, Target
from fairlead_api.plans.questions import Question
from fairlead_api.pools.diffs import diff
from fairlead_client.resources.plans import Plan
from fairlead_client.resources.problems import ChangeMeanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChange:
    """A revision of a pool's spec, as the operator reported it."""

    generation: int
    at: datetime
    actor: str
    reason: str | None
    spec: Mapping[str, Any]


def seen_of(target: Target, part: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an object that are stored with a plan: all values that plans may change. For an instance,
    this is only the annotation that the plan changes, because the operator sets the other annotations.
    """
    return {name: value for name, value in part.items() if not target.kind.is_instance or name in change}


def changes_meanwhile(
    target: Target, before: Mapping[str, Any], found: ClusterObject, change: Mapping[str, Any], known: Sequence[SpecChange]
) -> list[ChangeMeanwhile]:
    """Return the changes that turned `before` into the present object, oldest first: first the `known` revisions, then
    the remaining difference as one change.
    """
    path = "".join(f"/{name}" for name in target.kind.path)
    told: list[ChangeMeanwhile] = []
    present: Mapping[str, Any] = before
    for one in known:
        if one.generation <= found.generation and (steps := diff(present, one.spec, path)):
            told.append(ChangeMeanwhile(by=one.actor, at=one.at, reason=one.reason, diff=steps))
            present = one.spec
    if rest := diff(present, seen_of(target, found.part(target.kind), change), path):
        told.append(ChangeMeanwhile(by=found.changed_by, at=found.changed_at, diff=rest))
    return told


LIFE = timedelta(minutes=10)
"""Maximum age at which a plan can be applied, unless the plan is a proposal."""
PROPOSED = timedelta(days=1)
"""Maximum age at which a proposal can be applied."""
UNDO = timedelta(hours=1)
"""Time for which an applied plan can be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan with the data that only the server needs: its object, the merge patch (`change`) and its inverse for the
    fields that plans may change, and the values of these fields when the plan was made (`seen`). `begun` is the audit
    entry of the latest attempt to apply the plan.
    """

    plan: Plan
    object: Target
    uid: str
    generation: int
    change: dict[str, Any]
    inverse: dict[str, Any]
    applied_generation: int = 0
    seen: dict[str, Any] | None = None
    begun_at: datetime | None = None
    begun: AuditDraft | None = None

    @property
    def is_of_existence(self) -> bool:
        """Whether the plan deletes or creates its object. For a creation, `change` is the manifest of the object."""
        return self.plan.kind.facts.deletes or self.plan.kind.facts.creates


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The effect of a change according to a simulation: the share of requests within the objectives, the share of
    refused requests, and the basis of the simulation.
    """

    attainment: float
    refusals: float
    basis: str


class PlanStore(Protocol):
    """The store of plans in the database. Each write appends its audit entry in the same transaction."""

    async def add(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> None: ...

    async def get(self, plan_id: str) -> StoredPlan:
        """Return the stored plan. Raises NotFound."""

    async def begin(self, plan_id: str, draft: AuditDraft, now: datetime, settling: timedelta) -> bool:
        """Record the person who begins to apply a plan. Returns False if the plan is no longer open or has expired, or
        if another attempt to apply it began less than `settling` ago.
        """

    async def refused(self, plan_id: str, draft: AuditDraft, now: datetime) -> None:
        """Append the audit entry of a failed attempt to apply a plan. The attempt began at `now` and certainly wrote
        nothing. The record that it began is removed, so that a later change of the object is not attributed to this
        plan.
        """

    async def begun(self, now: datetime, settling: timedelta) -> Sequence[StoredPlan]:
        """Return the open plans whose last attempt to apply them began longer than `settling` ago."""

    async def spec_changes(self, pool: PoolKey, uid: str, generation: int) -> Sequence[SpecChange]:
        """Return the revisions of the spec that came after `generation`, oldest first, of the pool's object with this
        uid.
        """

    async def finish(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> StoredPlan:
        """Mark a plan as applied if it is open, or if it expired while it was being applied. Mark the pool's other
        plans as superseded if nobody began to apply them. Return the plan as stored afterwards.

        If the plan was closed in another way, nothing changes.
        """

    async def spec_of(self, pool: PoolKey, revision: int) -> Mapping[str, Any]:
        """Return the pool's spec of the revision with this number. Raises NotFound for the pool, InvalidInput for a
        number without a revision.
        """

    async def waiting(self, now: datetime) -> Sequence[Plan]:
        """Return the open proposals that nobody began to apply, oldest first."""

    async def supersede(self, plan_id: str) -> None:
        """Mark an open plan as superseded."""

    async def expire(self, plan_id: str, now: datetime, settling: timedelta) -> None:
        """Mark an open plan as expired, unless an attempt to apply it began less than `settling` ago."""

    async def record(self, draft: AuditDraft, now: datetime) -> None: ...


class Expecting(Protocol):
    """Finds the expected effect of a plan by a simulation, after the plan was made."""

    async def planned(
        self, plan: Plan, question: Question, spec: Mapping[str, Any] | None, now: datetime, simulation: str | None = None
    ) -> None:
        """Start to find the effect of a new plan by a simulation. `spec` is the pool's spec before the change;
        `simulation` is the id of the simulation that recommended the change, if there is one. Raises no error if no
        simulation can be started.
        """
