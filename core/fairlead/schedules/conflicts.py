"""Conflicts: times at which windows of two schedules are open and set the same subject, such as a role's bounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import merge
from itertools import combinations, groupby

from fairlead.schedules.in_force import subjects
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import Window, windows_between

WEEK = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Two windows that both set the `subjects` from `begins` to `ends`.

    `decided_by` is the schedule whose window opened last and therefore decides. It is None if both windows opened at
    the same instant; then the rule of `fairlead.schedules.in_force` decides.
    """

    schedule: str
    other: str
    subjects: tuple[str, ...]
    begins: datetime
    ends: datetime
    decided_by: str | None


def conflicts(schedules: Sequence[ScheduleSpec], begin: datetime, end: datetime, limit: int = 100) -> list[Conflict]:
    """Return the first `limit` conflicts that overlap [begin, end), in order; `end` is usually a week after `begin`.

    Windows are generated in order and only as far as `limit` needs: 32 schedules that start every minute have five
    million conflicts in a week.
    """
    shared = {
        (one.name, other.name): both
        for one, other in combinations(schedules, 2)
        if (both := tuple(subject for subject in subjects(one) if subject in subjects(other)))
    }
    meeting = [schedule for schedule in schedules if any(schedule.name in pair for pair in shared)]
    found: list[Conflict] = []
    open_: list[Window] = []
    for opens, opening in groupby(merge(*(windows_between(one, begin, end) for one in meeting), key=_opens), _opens):
        open_ = [window for window in open_ if window.closes > opens]
        for window in opening:
            pairs = [pair for other in open_ for pair in ((window, other), (other, window))]
            found += [_conflict(pair, names) for pair in pairs if (names := shared.get((pair[0].schedule, pair[1].schedule)))]
            open_.append(window)
        if len(found) >= limit:
            break
    return sorted(found, key=lambda conflict: (conflict.begins, conflict.schedule, conflict.other))[:limit]


def _opens(window: Window) -> datetime:
    return window.opens


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
