"""Finds the instants at which a cron starts in a time zone, including on days when the clock changes.

- A start at a time that the clock skips happens when the skipped hour ends: 02:30 becomes 03:00.
- A start at a time that the clock shows twice happens at the first of the two.
- A cron that starts in every hour follows real hours instead: it has no start in the skipped hour, and starts in both
  of the repeated hours.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from fairlead.schedules.crons import Cron

HORIZON = timedelta(days=366 * 8 + 2)
"""Length of time in which starts are searched. The longest pause of any cron is eight years, from 29 February 2096 to
2104.
"""

_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)


def starts_after(cron: Cron, zone: ZoneInfo, instant: datetime) -> Iterator[datetime]:
    """Yield the starts later than an instant, in order, up to the horizon."""
    last = instant.astimezone(UTC)
    day, end = _local_day(last, zone) - _DAY, _local_day(last, zone) + HORIZON
    while day <= end:
        if cron.matches(day):
            starts = _starts_of(cron, zone, day)
            for start in starts[bisect_right(starts, last) :]:
                yield start
                last = start
        day += _DAY


def starts_until(cron: Cron, zone: ZoneInfo, instant: datetime, oldest: datetime) -> Iterator[datetime]:
    """Yield the starts later than `oldest` and not later than an instant, newest first."""
    last = instant.astimezone(UTC) + _TICK
    day, end = _local_day(last, zone) + _DAY, _local_day(oldest, zone) - _DAY
    while day >= end:
        if cron.matches(day):
            starts = _starts_of(cron, zone, day)
            for start in reversed(starts[bisect_right(starts, oldest) : bisect_left(starts, last)]):
                yield start
                last = start
        day -= _DAY


def _local_day(instant: datetime, zone: ZoneInfo) -> date:
    return instant.astimezone(zone).date()


@lru_cache(maxsize=8192)
def _starts_of(cron: Cron, zone: ZoneInfo, day: date) -> tuple[datetime, ...]:
    """Return the starts whose wall-clock time is on this day, in UTC and in order."""
    found: set[datetime] = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            wall = datetime.combine(day, time(hour, minute))
            shown = _instants_of(wall, zone)
            if cron.every_hour:
                found.update(shown)
            else:
                found.add(shown[0] if shown else _end_of_gap(wall, zone))
    return tuple(sorted(found))


def _instants_of(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the instants at which a wall clock shows this time: none, one or two, in order."""
    guesses = sorted({wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)})
    return [guess for guess in guesses if guess.astimezone(zone).replace(tzinfo=None) == wall]


def _end_of_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant at which the clock skips forward over this wall-clock time."""
    before = int(wall.replace(tzinfo=zone, fold=1).timestamp())
    after = int(wall.replace(tzinfo=zone, fold=0).timestamp())
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).replace(tzinfo=None) < wall:
            before = middle
        else:
            after = middle
    return datetime.fromtimestamp(after, UTC)
