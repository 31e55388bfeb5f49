"""Plans as they are stored, the ports that store them, and the changes of an object since its plan was made."""

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
    """The part of an object that a plan stores: everything that plans may change; for an instance, whose other
    annotations belong to the operator, only the annotation that this plan changes.
    """
    return {name: value for name, value in part.items() if not target.kind.is_instance or name in change}


def changes_meanwhile(
    target: Target, before: Mapping[str, Any], found: ClusterObject, change: Mapping[str, Any], known: Sequence[SpecChange]
) -> list[ChangeMeanwhile]:
    """The changes that turned `before` into the present object, oldest first: the `known` ones, then the rest."""
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
"""How long a plan can be applied."""
PROPOSED = timedelta(days=1)
"""How long a proposal waits at most."""
UNDO = timedelta(hours=1)
"""How long an applied plan can be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan with the data that only the server needs: its object, the merge patches forward and back for the fields
    that plans may change, and those fields as they were `seen`. `begun` is the audit entry of the latest attempt to
    apply it.
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
        """Whether the plan deletes its object, or creates it (then `change` is the object to create)."""
        return self.plan.kind.facts.deletes or self.plan.kind.facts.creates


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The effect of a change according to a simulation: shares of requests in time and refused, and
    the source of both.
    """

    attainment: float
    refusals: float
    basis: str


class PlanStore(Protocol):
    """Plans in the database; each write appends its audit entry in the same transaction."""

    async def add(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> None: ...

    async def get(self, plan_id: str) -> StoredPlan:
        """The stored plan. Raises NotFound."""

    async def begin(self, plan_id: str, draft: AuditDraft, now: datetime, settling: timedelta) -> bool:
        """Records who begins to apply a plan; False if the plan is no longer open, has expired, or somebody else began
        to apply it less than `settling` ago.
        """

    async def refused(self, plan_id: str, draft: AuditDraft, now: datetime) -> None:
        """Appends the entry of an apply that began at `now` and certainly wrote nothing, and removes the record of its
        beginning, so that a later change of the object is not attributed to this plan.
        """

    async def begun(self, now: datetime, settling: timedelta) -> Sequence[StoredPlan]:
        """Open plans that somebody began to apply longer than `settling` ago."""

    async def spec_changes(self, pool: PoolKey, uid: str, generation: int) -> Sequence[SpecChange]:
        """The revisions of this very object's spec after a generation, oldest first."""

    async def finish(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> StoredPlan:
        """Marks a plan applied that is open, or has expired meanwhile, and marks the pool's other plans that nobody
        began superseded; returns the plan as stored afterwards.

        If the plan was closed in another way, nothing changes.
        """

    async def spec_of(self, pool: PoolKey, revision: int) -> Mapping[str, Any]:
        """The spec of the pool's revision with this number. Raises NotFound, InvalidInput for a number without a
        revision.
        """

    async def waiting(self, now: datetime) -> Sequence[Plan]:
        """Open proposals that nobody began to apply, oldest first."""

    async def supersede(self, plan_id: str) -> None:
        """Marks an open plan superseded."""

    async def expire(self, plan_id: str, now: datetime, settling: timedelta) -> None:
        """Marks an open plan expired, unless somebody began to apply it less than `settling` ago."""

    async def record(self, draft: AuditDraft, now: datetime) -> None: ...


class Expecting(Protocol):
    """Finds the expected effect of a plan after the plan was made."""

    async def planned(
        self, plan: Plan, question: Question, spec: Mapping[str, Any] | None, now: datetime, simulation: str | None = None
    ) -> None:
        """Takes a new plan of an object; `spec` is the pool's spec before the change, `simulation` the one that
        recommended it. Does not raise if the effect stays unknown.
        """
