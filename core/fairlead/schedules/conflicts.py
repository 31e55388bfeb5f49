"""Conflicts: times at which windows of two schedules are open and both say something about the same subject."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations

from fairlead.schedules.in_force import subjects
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import Window, windows_between

WEEK = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Two windows over the same `subjects` from `begins` to `ends`.

    `decided_by` is the schedule whose window opened last; None where both opened at once, and a role gets the larger
    bounds.
    """

    schedule: str
    other: str
    subjects: tuple[str, ...]
    begins: datetime
    ends: datetime
    decided_by: str | None


def conflicts(schedules: Sequence[ScheduleSpec], begin: datetime, end: datetime, limit: int = 100) -> list[Conflict]:
    """The first `limit` conflicts of which a part lies in [begin, end), in order; `end` is usually a week later."""
    windows = {schedule.name: windows_between(schedule, begin, end) for schedule in schedules}
    found = []
    for one, other in combinations(schedules, 2):
        shared = tuple(subject for subject in subjects(one) if subject in subjects(other))
        if shared:
            found += [_conflict(pair, shared) for pair in _overlaps(windows[one.name], windows[other.name])]
    return sorted(found, key=lambda conflict: (conflict.begins, conflict.schedule, conflict.other))[:limit]


def _overlaps(ones: Sequence[Window], others: Sequence[Window]) -> list[tuple[Window, Window]]:
    """Pairs of windows that overlap; each list is in order and its windows do not overlap each other."""
    found, place = [], 0
    for one in ones:
        while place < len(others) and others[place].closes <= one.opens:
            place += 1
        following = place
        while following < len(others) and others[following].opens < one.closes:
            found.append((one, others[following]))
            following += 1
    return found


def _conflict(pair: tuple[Window, Window], shared: tuple[str, ...]) -> Conflict:
    one, other = pair
    latest = None if one.opens == other.opens else max(pair, key=lambda window: window.opens).schedule
    return Conflict(
        schedule=one.schedule,
        other=other.schedule,
        subjects=shared,
        begins=max(one.opens, other.opens),
        ends=min(one.closes, other.closes),
        decided_by=latest,
    )
