"""The geometry of a week of windows: a row per day, a lane per schedule. Pure; the template draws the SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead.schedules.windows import Window

WIDTH = 720
"""Units of a day: one is two minutes."""
LANE = 12
_MARGIN = 4
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridBar:
    """The part of a window that lies in one day; `series` picks its colour class."""

    x: float
    y: int
    width: float
    series: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GridDay:
    """One row: its day in words, its top edge, and its bars."""

    words: str
    y: int
    bars: tuple[GridBar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekGrid:
    """A week from `start`; `names[i]` has series i. `now` is the present instant's place, None outside the week."""

    height: int
    day_height: int
    days: tuple[GridDay, ...]
    names: tuple[str, ...]
    now: tuple[float, int] | None


def week_grid(windows: Sequence[Window], names: Sequence[str], start: datetime, now: datetime) -> WeekGrid:
    """The windows of a week, cut at the midnights of `start`'s time."""
    day_height = LANE * max(1, len(names)) + 2 * _MARGIN
    days = []
    for number in range(7):
        begin = start + number * _DAY
        bars = [
            _bar(window, names, begin, number * day_height) for window in windows if window.opens < begin + _DAY and window.closes > begin
        ]
        days.append(GridDay(words=begin.strftime("%a %d %b"), y=number * day_height, bars=tuple(bars)))
    elapsed = now - start
    inside = timedelta() <= elapsed < 7 * _DAY
    return WeekGrid(
        height=7 * day_height,
        day_height=day_height,
        days=tuple(days),
        names=tuple(names),
        now=(_place(elapsed % _DAY), elapsed // _DAY * day_height) if inside else None,
    )


def _bar(window: Window, names: Sequence[str], begin: datetime, top: int) -> GridBar:
    left = _place(max(window.opens, begin) - begin)
    right = _place(min(window.closes, begin + _DAY) - begin)
    series = names.index(window.schedule)
    label = f"{window.schedule}: {window.opens:%a %H:%M} to {window.closes:%a %H:%M} UTC"
    return GridBar(x=left, y=top + _MARGIN + series * LANE, width=max(1.0, round(right - left, 1)), series=series % 8, label=label)


def _place(of_day: timedelta) -> float:
    return round(of_day / _DAY * WIDTH, 1)
