"""Writes schedules in the form of a manifest, from the instances that a week needs.

In mode SLO a window has `minReplicas`, so scaling may go above it. In other modes a window has `replicas`, and is
written only if this number differs from the role's number without any window. Days of the calendar within the week get
windows of their own, and the weekly windows are skipped on these days.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from fairlead.forecasts.blocks import Block, Wanted, day_in_blocks, week_in_blocks
from fairlead.forecasts.records import PER_DAY, PER_WEEK, Series, local_quarters
from fairlead.instances import Role
from fairlead.scaling.specs import ScalingMode
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.starts import starts_after
from fairlead.schemas.reading import read

PREFIX = "forecast-"
"""The first letters of the names of schedules that follow a forecast."""
_ROUNDING = 1e-6
_MINUTES = 15
_NAMES = {
    (0, 1, 2, 3, 4, 5, 6): "daily",
    (0, 1, 2, 3, 4): "weekdays",
    (0, 1, 2, 3): "monday-thursday",
    (5, 6): "weekend",
}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLimits:
    """A role's own bounds, and its number of instances without a window."""

    role: Role
    least: int
    most: int
    declared: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The facts for which schedules are drafted: a pool's roles, how the pool scales, and its time zone."""

    roles: tuple[RoleLimits, ...]
    mode: ScalingMode
    zone: ZoneInfo

    def usual(self, role: RoleLimits) -> int:
        """Return the role's number of instances while no window is open: at least its minimum if scaling decides the
        number.
        """
        return role.least if self.mode is ScalingMode.SLO else role.declared


def whole(loads: Mapping[Role, Series], draft: Draft) -> Wanted:
    """Round loads in instances up, within each role's bounds."""
    rows = [np.clip(np.ceil(loads[one.role] - _ROUNDING), max(1, one.least), one.most) for one in draft.roles]
    return np.vstack(rows).astype(np.int64)


def weekly(wanted: Wanted, start: datetime, zone: ZoneInfo) -> Wanted:
    """Rearrange a week that begins at `start` into a week that begins on Monday at local midnight. A quarter of an hour
    that does not exist because the clocks are changed gets the value of the quarter before it.
    """
    found = np.full((len(wanted), PER_WEEK), -1, dtype=np.int64)
    for place, (day, quarter) in enumerate(local_quarters(start, wanted.shape[1], zone)):
        at = day.weekday() * PER_DAY + quarter
        found[:, at] = np.maximum(found[:, at], wanted[:, place])
    for skipped in np.flatnonzero(found[0] < 0):
        found[:, skipped] = found[:, skipped - 1]
    return found


def schedules_of(week: Wanted, odd: Mapping[date, Wanted], draft: Draft, start: datetime) -> tuple[dict[str, Any], ...]:
    """Return the schedules' documents for a week from Monday on (672 columns), and for the calendar's days within the
    seven days from `start` (96 columns each).
    """
    roles = [one.role for one in draft.roles]
    usual = [_document(block, _cron(block), _name(block), draft) for block in week_in_blocks(week, roles) if _differs(block, draft)]
    skipping = [one | _skipped(one, odd, draft.zone, start) for one in usual]
    dated = [
        _document(block, _cron(block, day), f"{PREFIX}{day:%Y%m%d}-{_clock(block.begins):%H%M}", draft)
        for day, wanted in sorted(odd.items())
        for block in day_in_blocks(wanted, roles, day.weekday())
        if _differs(block, draft)
    ]
    return (*skipping, *dated)


def _differs(block: Block, draft: Draft) -> bool:
    return any(block.replicas[one.role] != draft.usual(one) for one in draft.roles)


def _document(block: Block, cron: str, name: str, draft: Draft) -> dict[str, Any]:
    field = "minReplicas" if draft.mode is ScalingMode.SLO else "replicas"
    return {
        "name": name,
        "cron": cron,
        "duration": f"{(block.ends - block.begins) * _MINUTES}m",
        "timeZone": draft.zone.key,
        "followsForecast": True,
        "roles": [{"name": one.role.value, field: block.replicas[one.role]} for one in draft.roles],
    }


def _clock(quarter: int) -> time:
    return time(quarter // 4, quarter % 4 * _MINUTES)


def _cron(block: Block, day: date | None = None) -> str:
    at = _clock(block.begins)
    if day is not None:
        return f"{at.minute} {at.hour} {day.day} {day.month} *"
    return f"{at.minute} {at.hour} * * {_weekdays(block.days)}"


def _weekdays(days: Sequence[int]) -> str:
    if len(days) == len(_DAYS):
        return "*"
    numbers = sorted((day + 1) % 7 for day in days)  # a cron's Sunday is 0
    alone = len(numbers) < 3 or numbers[-1] - numbers[0] != len(numbers) - 1
    return ",".join(map(str, numbers)) if alone else f"{numbers[0]}-{numbers[-1]}"


def _name(block: Block) -> str:
    return f"{PREFIX}{_NAMES.get(block.days) or _DAYS[block.days[0]]}-{_clock(block.begins):%H%M}"


def _skipped(document: Mapping[str, Any], odd: Iterable[date], zone: ZoneInfo, start: datetime) -> dict[str, Any]:
    """Return the field `skip` for the document of a weekly schedule: its starts on the calendar's days. The result is
    empty if no start falls on such a day.
    """
    schedule, days, found = read(ScheduleSpec, dict(document), "schedule"), set(odd), []
    for at in starts_after(schedule.cron, zone, start - timedelta(seconds=1)):
        if at >= start + timedelta(days=8):
            break
        if at.astimezone(zone).date() in days:
            found.append(at.isoformat().replace("+00:00", "Z"))
    return {"skip": found} if found else {}
