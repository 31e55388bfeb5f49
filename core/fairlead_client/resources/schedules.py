"""Schedules: their windows, the values they set at an instant, and the outcomes of their starts."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairlead.instances import Role
from fairlead.schedules.conflicts import Conflict
from fairlead.schedules.runs import RunOutcome, RunReason
from fairlead.schedules.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleItem:
    """One schedule of a pool.

    `subjects` name the settings that the schedule changes: the roles that it bounds, `slo`, `earlyRejection` and
    `ratio`. `spec` is the schedule as written in a manifest. `window` is the open window, if any. `next_starts` are the
    next 10 starts that will happen. `owner` names the GitOps tool that owns the pool, if any; the schedule is then
    read-only here.
    """

    pool: str
    name: str
    cron: str
    cron_words: str
    time_zone: str
    dst_note: str
    duration_seconds: float
    paused: bool
    subjects: list[str]
    spec: dict[str, Any]
    window: Window | None
    next_starts: list["NextStart"]
    owner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStart:
    """A start that will happen, and the local time in the schedule's time zone."""

    at: datetime
    local: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDetail:
    """A schedule, and the windows and conflicts of all schedules of its pool from `start` for a week."""

    schedule: ScheduleItem
    start: datetime
    windows: list[Window]
    conflicts: list[Conflict]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsAt:
    """The bounds of a role at a point in time: the role's own bounds, or the bounds of `schedule`. `replicas` is the
    number of instances that would be desired then, None for a role whose number the pool does not declare.
    """

    role: Role
    min_replicas: int
    max_replicas: int
    replicas: int | None
    schedule: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InForceAt:
    """The values that a pool's present spec puts in force at a point in time. `next_change` is None if no window opens
    or closes later.
    """

    pool: str
    at: datetime
    windows: list[Window]
    roles: list[BoundsAt]
    ttft_seconds: float
    tpot_seconds: float
    percentile: float
    early_rejection: str
    headroom: float
    ratio: str
    """The mode of the ratio."""
    ratio_method: str
    deciding: dict[str, list[str]]
    """For each role's bounds, `slo`, `earlyRejection` and `ratio`, the schedules whose values are in force."""
    next_change: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRun:
    """The outcome of a start. `overruled_by` names the schedules that overruled it; times are by the
    operator's clock.
    """

    pool: str
    schedule: str
    start: datetime
    closes: datetime | None
    outcome: RunOutcome
    reason: RunReason | None
    overruled_by: str | None
    opened_at: datetime | None
    closed_at: datetime | None
