"""Stored plans, the ports that store them, and the changes of an object since its plan was made."""

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
    """Return the part of an object that a plan stores: everything that plans may change. For an instance, this is only
    the annotation that the plan changes, because the other annotations belong to the operator.
    """
    return {name: value for name, value in part.items() if not target.kind.is_instance or name in change}


def changes_meanwhile(
    target: Target, before: Mapping[str, Any], found: ClusterObject, change: Mapping[str, Any], known: Sequence[SpecChange]
) -> list[ChangeMeanwhile]:
    """Return the changes that turned `before` into the present object, oldest first: the `known` changes, then the
    remaining difference.
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
"""How long after its creation a plan can be applied."""
PROPOSED = timedelta(days=1)
"""How long a proposal waits for somebody to apply it."""
UNDO = timedelta(hours=1)
"""How long an applied plan can be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan with the data that only the server needs: its object, the merge patches forward and back for the fields
    that plans may change, and the values of these fields when the plan was made (`seen`). `begun` is the audit entry of
    the latest attempt to apply the plan.
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
        """Whether the plan deletes its object, or creates it. For a creation, `change` is the object to create."""
        return self.plan.kind.facts.deletes or self.plan.kind.facts.creates


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The effect of a change according to a simulation: the shares of requests in time and of refused requests, and the
    source of both.
    """

    attainment: float
    refusals: float
    basis: str


class PlanStore(Protocol):
    """Plans in the database; each write appends its audit entry in the same transaction."""

    async def add(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> None: ...

    async def get(self, plan_id: str) -> StoredPlan:
        """Return the stored plan. Raises NotFound."""

    async def begin(self, plan_id: str, draft: AuditDraft, now: datetime, settling: timedelta) -> bool:
        """Record who begins to apply a plan. Returns False if the plan is no longer open, has expired, or somebody else
        began to apply it less than `settling` ago.
        """

    async def refused(self, plan_id: str, draft: AuditDraft, now: datetime) -> None:
        """Append the audit entry of an apply that began at `now` and certainly wrote nothing. Removes the record of its
        beginning, so that a later change of the object is not attributed to this plan.
        """

    async def begun(self, now: datetime, settling: timedelta) -> Sequence[StoredPlan]:
        """Return open plans that somebody began to apply longer than `settling` ago."""

    async def spec_changes(self, pool: PoolKey, uid: str, generation: int) -> Sequence[SpecChange]:
        """Return the revisions of the spec of the object with this uid after a generation, oldest first."""

    async def finish(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> StoredPlan:
        """Mark a plan as applied that is open or has expired since. Marks the pool's other plans that nobody began to
        apply as superseded. Returns the plan as it is stored afterwards.

        If the plan was closed in another way, nothing changes.
        """

    async def spec_of(self, pool: PoolKey, revision: int) -> Mapping[str, Any]:
        """Return the spec of the pool's revision with this number. Raises NotFound, InvalidInput for a number without a
        revision.
        """

    async def waiting(self, now: datetime) -> Sequence[Plan]:
        """Open proposals that nobody began to apply, oldest first."""

    async def supersede(self, plan_id: str) -> None:
        """Mark an open plan as superseded."""

    async def expire(self, plan_id: str, now: datetime, settling: timedelta) -> None:
        """Mark an open plan as expired, unless somebody began to apply it less than `settling` ago."""

    async def record(self, draft: AuditDraft, now: datetime) -> None: ...


class Expecting(Protocol):
    """Finds the expected effect of a plan after the plan was made."""

    async def planned(
        self, plan: Plan, question: Question, spec: Mapping[str, Any] | None, now: datetime, simulation: str | None = None
    ) -> None:
        """Accept a new plan of an object. `spec` is the pool's spec before the change, `simulation` the simulation that
        recommended the change. Does not raise if the effect stays unknown.
        """
