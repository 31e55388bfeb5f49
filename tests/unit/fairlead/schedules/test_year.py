"""A year with both changes of the clock in four zones: the bounds of every minute, by a second implementation.

The second implementation goes through the minutes of the year and reads a wall clock. It opens a window when the clock
shows a start for the first time or has just skipped one, and then counts the minutes.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pytest

from fairlead.schedules.in_force import in_force
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import next_change
from fairlead.schemas.reading import read

YEAR = datetime(2026, 1, 1, tzinfo=UTC)
MINUTES = 365 * 1440
NONE = -1

Minutes = npt.NDArray[np.int64]
Shown = Callable[[Minutes], npt.NDArray[np.bool_]]


def hour(wall: Minutes) -> Minutes:
    return wall // 60 % 24


def minute(wall: Minutes) -> Minutes:
    return wall % 60


def weekday(wall: Minutes) -> Minutes:
    """Return the weekday of a day since 1970, 0 = Sunday; 1 January 1970 was a Thursday."""
    return (wall // 1440 + 4) % 7


def at(of_hour: int, of_minute: int = 0) -> Shown:
    return lambda wall: (hour(wall) == of_hour) & (minute(wall) == of_minute)


def on_weekdays(shown: Shown) -> Shown:
    return lambda wall: shown(wall) & (weekday(wall) >= 1) & (weekday(wall) <= 5)


SCHEDULES: tuple[tuple[str, str, int, tuple[int, int], Shown, bool], ...] = (
    ("office", "0 8 * * 1-5", 600, (4, 8), on_weekdays(at(8)), False),
    ("night", "30 22 * * *", 540, (1, 2), at(22, 30), False),
    ("in-the-gap", "10 2 * * *", 90, (3, 5), at(2, 10), False),
    ("in-the-fold", "30 1 * * *", 45, (2, 6), at(1, 30), False),
    ("often", "*/20 * * * 0", 7, (5, 7), lambda wall: (minute(wall) % 20 == 0) & (weekday(wall) == 0), True),
    ("sundays", "0 0 * * 0", 1440, (0, 3), lambda wall: at(0)(wall) & (weekday(wall) == 0), False),
)
"""Name, cron, minutes and bounds of each schedule, its cron as a test of the clock, and whether it starts in every
hour.
"""


def spec(zone: str, name: str, cron: str, minutes: int, bounds: tuple[int, int]) -> ScheduleSpec:
    roles = [{"name": "both", "minReplicas": bounds[0], "maxReplicas": bounds[1]}]
    return read(ScheduleSpec, {"name": name, "cron": cron, "duration": f"{minutes}m", "timeZone": zone, "roles": roles}, "schedule")


@cache
def wall_clock(zone: str, first: int, count: int) -> Minutes:
    """Return the time on the wall clock at each minute after YEAR, in minutes of that clock since 1970."""
    instants = YEAR.timestamp() // 60 + first + np.arange(count)
    offsets = np.array(
        [
            (datetime.fromtimestamp(instant * 60, ZoneInfo(zone)).utcoffset() or timedelta()).total_seconds() // 60
            for instant in instants[::30]
        ]
    )
    wall: Minutes = (instants + np.repeat(offsets, 30)[:count]).astype(np.int64)
    return wall


def opened_by_looking(zone: str, shown: Shown, every_hour: bool, before: int) -> list[int]:
    """Return the minutes of the year (negative: before it) at which the second implementation opens a window."""
    wall = wall_clock(zone, -before, MINUTES + before)
    changes = np.diff(wall)
    opened = shown(wall)
    if not every_hour:
        for back in np.flatnonzero(changes < 1):
            seen_before = slice(back + 1, back + 2 - changes[back])
            opened[seen_before] = False
        for jump in np.flatnonzero(changes > 1):
            opened[jump + 1] |= shown(np.arange(wall[jump] + 1, wall[jump + 1])).any()
    return [int(place) - before for place in np.flatnonzero(opened)]


def expected(zone: str) -> npt.NDArray[np.int64]:
    """Return the least and most replicas at each minute; NONE if no window is open."""
    bounds = np.full((MINUTES, 2), NONE)
    opened_at = np.full(MINUTES, -(10**6))
    for _, _, minutes, (least, most), shown, every_hour in SCHEDULES:
        for start in opened_by_looking(zone, shown, every_hour, 1440 + 60):
            span = slice(max(0, start), max(0, min(MINUTES, start + minutes)))
            newer, tied = opened_at[span] < start, opened_at[span] == start
            bounds[span][newer] = least, most
            bounds[span][tied] = np.maximum(bounds[span][tied], (least, most))
            opened_at[span][newer] = start
    return bounds


def told(schedules: list[ScheduleSpec], instant: datetime) -> tuple[int, int]:
    for found in in_force(schedules, instant).bounds:
        if found.min_replicas is not None and found.max_replicas is not None:
            return found.min_replicas, found.max_replicas
    return NONE, NONE


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])
def test_every_minute_of_a_year_has_the_expected_bounds(zone: str) -> None:
    wanted = expected(zone)
    schedules = [spec(zone, *one[:4]) for one in SCHEDULES]
    found = np.full((MINUTES, 2), NONE)
    instant, place = YEAR, 0
    while place < MINUTES:
        following = next_change(schedules, instant)
        assert following is not None
        assert following > instant
        until = int((following - YEAR).total_seconds() // 60)
        found[place : min(until, MINUTES)] = told(schedules, instant)
        instant, place = following, until
    wrong = np.flatnonzero((found != wanted).any(axis=1))
    assert [(YEAR + timedelta(minutes=int(one)), tuple(found[one]), tuple(wanted[one])) for one in wrong[:5]] == []
    dice = Random(zone)
    for chosen in dice.sample(range(MINUTES), 1000):
        assert told(schedules, YEAR + timedelta(minutes=chosen, seconds=dice.random() * 59.9)) == tuple(wanted[chosen])


def test_the_onlooker_sees_the_clock_change_where_it_does() -> None:
    for zone, changes in (("Europe/Berlin", [60, -60]), ("America/New_York", [60, -60]), ("Australia/Lord_Howe", [-30, 30]), ("UTC", [])):
        jumps = np.diff(wall_clock(zone, 0, MINUTES)) - 1
        assert [int(jump) for jump in jumps[jumps != 0]] == changes
