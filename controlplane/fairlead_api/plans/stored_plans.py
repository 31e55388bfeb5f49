"""Plans as they are stored, and the ports by which they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from fairlead.tables import PoolKey
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.plans.conflicts import SpecChange
from fairlead_api.plans.effects import Question
from fairlead_api.plans.objects import Target
from fairlead_client.resources.plans import Plan

LIFE = timedelta(minutes=10)
"""A plan can be applied for so long."""
UNDO = timedelta(hours=1)
"""An applied plan can be undone for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan with what only the server needs: the object it was made for, the merge patches there and back of what
    plans may change of it, and that as it was `seen`. `begun` is the audit entry of who began to apply it last.
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

    async def begin(self, plan_id: str, draft: AuditDraft, now: datetime, settling: timedelta) -> bool:
        """Notes who begins to apply a plan; False if it is not open any more, its time is over, or somebody else has
        begun less than `settling` ago.
        """

    async def refused(self, plan_id: str, draft: AuditDraft, now: datetime) -> None:
        """Appends the entry of an apply that began at `now` and certainly wrote nothing, and takes its beginning back:
        who changes the object later did not do it by this plan.
        """

    async def begun(self, now: datetime, settling: timedelta) -> Sequence[StoredPlan]:
        """Open plans that somebody began to apply longer than `settling` ago."""

    async def spec_changes(self, pool: PoolKey, uid: str, generation: int) -> Sequence[SpecChange]:
        """The revisions of this very object's spec after a generation, oldest first."""

    async def finish(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> StoredPlan:
        """Marks a plan applied that is open, or expired meanwhile, and other plans of the pool that nobody began
        superseded; returns the plan as stored afterwards.

        If the plan was closed otherwise, nothing changes.
        """

    async def spec_of(self, pool: PoolKey, revision: int) -> Mapping[str, Any]:
        """The spec of the pool's revision of this number. Raises NotFound, InvalidInput for one that there is not."""

    async def supersede(self, plan_id: str) -> None:
        """Marks an open plan superseded."""

    async def expire(self, plan_id: str, now: datetime, settling: timedelta) -> None:
        """Marks an open plan expired, unless somebody began to apply it less than `settling` ago."""

    async def record(self, draft: AuditDraft, now: datetime) -> None: ...


class Expecting(Protocol):
    """Who finds out, after a plan was made, what it is to be expected to do."""

    async def planned(
        self, plan: Plan, question: Question, spec: Mapping[str, Any] | None, now: datetime, simulation: str | None = None
    ) -> None:
        """A plan was made of an object; `spec` is a pool's before the change, `simulation` the one that advised it.
        Does not raise for what stays unknown.
        """
