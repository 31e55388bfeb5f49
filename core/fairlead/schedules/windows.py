"""Windows: when a schedule's window is open, which windows are open at an instant, and when that changes next.

A schedule has at most one window open. A start while a window is open ends that window and begins the next one. A
paused schedule has no windows; a start listed in `skip` opens none, whether it comes from the cron or from `runAt`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice

from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.starts import starts_after, starts_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of a schedule: open from `opens` until just before `closes`, both in UTC."""

    schedule: str
    opens: datetime
    closes: datetime


def planned_starts(schedule: ScheduleSpec, after: datetime) -> Iterator[datetime]:
    """Yield the starts after an instant in order, from the cron and from `runAt`. Starts that are skipped or paused are
    included.
    """
    extra = sorted(start for start in schedule.run_at if start > after)
    last: datetime | None = None
    for start in merge(starts_after(schedule.cron, schedule.time_zone, after), extra):
        if start != last:
            yield start
        last = start


def next_starts(schedule: ScheduleSpec, after: datetime) -> Iterator[datetime]:
    """Yield the starts that will happen after an instant, in order; none if the schedule is paused."""
    return iter(()) if schedule.paused else (start for start in planned_starts(schedule, after) if start not in schedule.skip)


def open_window(schedule: ScheduleSpec, instant: datetime) -> Window | None:
    """Return the window that is open at an instant; None if there is none."""
    start = None if schedule.paused else _latest_start(schedule, instant)
    if start is None or instant >= start + timedelta(seconds=schedule.duration_seconds):
        return None
    return _window(schedule, start)


def open_windows(schedules: Iterable[ScheduleSpec], instant: datetime) -> tuple[Window, ...]:
    """Return the windows of all schedules that are open: the window with the latest start first, windows with equal
    starts by name.
    """
    found = [window for window in (open_window(schedule, instant) for schedule in schedules) if window is not None]
    return tuple(sorted(found, key=lambda window: (-window.opens.timestamp(), window.schedule)))


def windows_between(schedule: ScheduleSpec, begin: datetime, end: datetime) -> Iterator[Window]:
    """Yield the windows of a schedule that overlap [begin, end), in order; generated lazily, because a week has up to
    10,080.
    """
    running = open_window(schedule, begin)
    if running is not None:
        yield running
    starts = next_starts(schedule, begin)
    start = next(starts, None)
    while start is not None and start < end:
        closes, following = start + timedelta(seconds=schedule.duration_seconds), next(starts, None)
        yield Window(schedule=schedule.name, opens=start.astimezone(UTC), closes=closes if following is None else min(closes, following))
        start = following


def next_change(schedules: Sequence[ScheduleSpec], instant: datetime) -> datetime | None:
    """Return the next instant at which a window opens or closes; None if no window ever will."""
    changes = [window.closes for window in open_windows(schedules, instant)]
    changes += [start for schedule in schedules for start in islice(next_starts(schedule, instant), 1)]
    return min(changes, default=None)


def changes_after(schedules: Sequence[ScheduleSpec], instant: datetime) -> Iterator[datetime]:
    """Yield the instants after `instant` at which windows open or close, in order."""
    change = next_change(schedules, instant)
    while change is not None:
        yield change
        change = next_change(schedules, change)


def _latest_start(schedule: ScheduleSpec, instant: datetime) -> datetime | None:
    """Return the latest start up to `instant` that is not skipped and whose window could still be open."""
    oldest = instant - timedelta(seconds=schedule.duration_seconds)
    extra = [start for start in schedule.run_at if oldest < start <= instant and start not in schedule.skip]
    for start in starts_until(schedule.cron, schedule.time_zone, instant, oldest):
        if start not in schedule.skip:
            return max([start, *extra])
    return max(extra, default=None)


def _window(schedule: ScheduleSpec, start: datetime) -> Window:
    closes = start + timedelta(seconds=schedule.duration_seconds)
    following = next(next_starts(schedule, start), closes)
    return Window(schedule=schedule.name, opens=start.astimezone(UTC), closes=min(closes, following))
