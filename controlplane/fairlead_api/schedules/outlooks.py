"""Computes the public API's view of a pool's schedules from the pool's spec. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.pools import PoolSpec, parse_spec
from fairlead.role_specs import RoleSpec
from fairlead.scaling.bounds import DeclaredRole, bounds_in_force
from fairlead.schedules.conflicts import WEEK, conflicts
from fairlead.schedules.in_force import in_force, subjects
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import next_change, next_starts, open_window, windows_between
from fairlead.schedules.wording import cron_words, dst_note
from fairlead.schemas.writing import written
from fairlead_client.resources.schedules import BoundsAt, InForceAt, NextStart, ScheduleDetail, ScheduleItem

NEXT_STARTS = 10
_MOST_WINDOWS = 500
"""Maximum number of windows of a schedule that are listed for one week."""


def spec_of(document: Mapping[str, Any] | None) -> PoolSpec | None:
    """Return a pool's spec in force; None if there is none, or if this version cannot read it."""
    try:
        return parse_spec(document) if document is not None else None
    except InvalidInput:
        return None


def schedule_item(pool: str, schedule: ScheduleSpec, owner: str | None, now: datetime) -> ScheduleItem:
    """Return a schedule as an item of a list."""
    return ScheduleItem(
        pool=pool,
        name=schedule.name,
        cron=str(schedule.cron),
        cron_words=cron_words(schedule.cron),
        time_zone=schedule.time_zone.key,
        dst_note=dst_note(schedule.cron, schedule.time_zone, now),
        duration_seconds=schedule.duration_seconds,
        paused=schedule.paused,
        subjects=list(subjects(schedule)),
        spec=written(schedule),
        window=open_window(schedule, now),
        next_starts=[
            NextStart(at=start, local=start.astimezone(schedule.time_zone).strftime("%a %Y-%m-%d %H:%M %Z"))
            for start in islice(next_starts(schedule, now), NEXT_STARTS)
        ],
        owner=owner,
    )


def schedule_detail(item: ScheduleItem, schedules: Sequence[ScheduleSpec], start: datetime) -> ScheduleDetail:
    """Return a schedule with the windows and conflicts of all schedules of its pool in the week from `start`."""
    end = start + WEEK
    windows = [window for schedule in schedules for window in islice(windows_between(schedule, start, end), _MOST_WINDOWS)]
    return ScheduleDetail(schedule=item, start=start, windows=windows, conflicts=conflicts(schedules, start, end))


def in_force_at(pool: str, spec: PoolSpec, at: datetime) -> InForceAt:
    """Return the values that a pool's spec and schedules put in force at the time `at`."""
    schedules = spec.scaling.schedules
    found = in_force(schedules, at)
    slo, early_rejection, ratio = found.slo(spec.slo), found.early_rejection(spec.early_rejection), found.ratio(spec.ratio)
    return InForceAt(
        pool=pool,
        at=at,
        windows=list(found.windows),
        roles=[_bounds(role, spec.replicas if role.name == "both" else role.replicas, found.bounds) for role in spec.roles],
        ttft_seconds=slo.ttft_seconds,
        tpot_seconds=slo.tpot_seconds,
        percentile=slo.percentile,
        early_rejection=early_rejection.mode,
        headroom=early_rejection.headroom,
        ratio=ratio.mode,
        ratio_method=ratio.method,
        deciding={subject: list(names) for subject, names in found.deciding.items()},
        next_change=next_change(schedules, at),
    )


def _bounds(role: RoleSpec, replicas: int | None, windows: Sequence[Any]) -> BoundsAt:
    least = role.least
    declared = DeclaredRole(role=role.name, replicas=replicas or least, min_replicas=least, max_replicas=role.max_replicas)
    bounds = bounds_in_force(declared, windows)
    return BoundsAt(
        role=role.name,
        min_replicas=bounds.lower,
        max_replicas=bounds.upper,
        replicas=None if replicas is None else bounds.clamp(replicas),
        schedule=bounds.lower_by or bounds.upper_by,
    )
