"""The filters of the lists of history."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.instances import Role
from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import DecisionReason, KeptFor, RequestOutcome
from fairlead.reports.moves import MoveOutcome
from fairlead.scaling.recommendations import Controller, Verdict
from fairlead.schedules.runs import RunOutcome
from fairlead_client.resources.audit import AuditKind
from fairlead_client.resources.plans import PlanKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """`q` is any part of a session's name."""

    pool: str | None = None
    instance: str | None = None
    q: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFilter:
    """Filter of migrations or re-routes.

    `paid_off` False finds those whose first token came no sooner than predicted for staying.
    """

    pool: str | None = None
    source: str | None = None
    target: str | None = None
    trigger: BindingReason | None = None
    outcome: MoveOutcome | None = None
    session: str | None = None
    paid_off: bool | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Filter of the runs of schedules; the range is of their starts."""

    pool: str | None = None
    schedule: str | None = None
    outcome: RunOutcome | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """Filter of decisions; `instance` matches the chosen one."""

    pool: str | None = None
    instance: str | None = None
    session: str | None = None
    reason: DecisionReason | None = None
    priority_class: str | None = None
    kept: KeptFor | None = None
    outcome: RequestOutcome | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFilter:
    """Filter of scaling decisions."""

    pool: str | None = None
    role: Role | None = None
    controller: Controller | None = None
    verdict: Verdict | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFilter:
    """Filter of plans; the range is of when they were made."""

    pool: str | None = None
    kind: PlanKind | None = None
    created_by: str | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Filter of the audit log; `actor`, `action` and `object` match exactly, or as prefixes when they end in `*`.

    `pool` matches what was done to the pool and to all that is its own, such as its instances.
    """

    pool: str | None = None
    actor: str | None = None
    action: str | None = None
    object: str | None = None
    kind: AuditKind | None = None
    start: datetime | None = None
    end: datetime | None = None
