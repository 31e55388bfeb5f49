"""Computes the geometry of small pictures: sparklines, stacked timelines, and a week of schedule windows.

Pure: it turns numbers into coordinates; templates draw the SVG.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from fairlead.reports.bindings import BindingReason
from fairlead.schedules.windows import Window
from fairlead_client.resources.moves import TimelineBucket
from fairlead_web.text import formats


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A sparkline: `line` and `area` are SVG paths in a `width` x `height` box. Gaps in the data are gaps in the line.

    `label` describes the line in words.
    """

    width: int
    height: int
    line: str
    area: str
    label: str


def sparkline(values: Sequence[float | None], label: str, width: int = 120, height: int = 28) -> Sparkline:
    """Return the sparkline of values, which are spread evenly over the width and scaled from zero to their maximum."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    step = width / max(1, len(values) - 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((round(index * step, 1), round(height - 2 - value / top * (height - 4), 1)))
    runs = [run if len(run) > 1 else [*run, (run[0][0] + 0.5, run[0][1])] for run in runs if run]
    line = "".join("M" + "L".join(f"{x} {y}" for x, y in run) for run in runs)
    area = "".join(f"M{run[0][0]} {height}" + "".join(f"L{x} {y}" for x, y in run) + f"L{run[-1][0]} {height}Z" for run in runs)
    return Sparkline(width=width, height=height, line=line, area=area, label=label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One rectangle of a picture; `series` is the index of its colour class."""

    x: float
    y: float
    width: float
    height: float
    series: int
    label: str


_COLOURED = tuple(
    map(BindingReason, ("hot-migration", "slo", "prefix-outweighed", "prefix-equal", "drain", "instance-lost", "ring-change", "operator"))
)
_AS = {
    BindingReason.HOTSPOT: BindingReason.HOT_MIGRATION,
    BindingReason.NO_ROOM: BindingReason.HOT_MIGRATION,
    BindingReason.QUEUE_FULL: BindingReason.HOT_MIGRATION,
    BindingReason.IDLE_INSTANCE: BindingReason.SLO,
    BindingReason.PREFIX_AFFINITY: BindingReason.PREFIX_OUTWEIGHED,
    BindingReason.BEST_SCORE: BindingReason.PREFIX_OUTWEIGHED,
    BindingReason.FILTERED_OUT: BindingReason.PREFIX_OUTWEIGHED,
    BindingReason.DRAWN: BindingReason.PREFIX_EQUAL,
    BindingReason.ENGINE_STALLED: BindingReason.INSTANCE_LOST,
    BindingReason.PREFIX_KEY: BindingReason.RING_CHANGE,
    BindingReason.OFF_RING: BindingReason.RING_CHANGE,
    BindingReason.SESSION_MOVED: BindingReason.RING_CHANGE,
    BindingReason.OUTSIDE_SUBSET: BindingReason.OPERATOR,
    BindingReason.PREFIX_COPIED: BindingReason.PREFIX_EQUAL,
}
"""A similar trigger for each trigger that has no colour class of its own. The trigger gets the colour class of the
similar trigger if the picture does not use this class otherwise, or if all eight classes are taken.
"""


def series_of(triggers: Iterable[BindingReason]) -> dict[BindingReason, int]:
    """Return the colour class of each trigger in a picture. Up to eight triggers get different classes. A trigger in
    _COLOURED always gets the same class.
    """
    shown = sorted(set(triggers), key=lambda one: (one not in _COLOURED, list(BindingReason).index(one)))
    made: dict[BindingReason, int] = {}
    for trigger in shown:
        named = _AS.get(trigger, trigger)
        wanted = _COLOURED.index(named) if named in _COLOURED else len(_COLOURED) - 1
        free = [place for place in range(len(_COLOURED)) if place not in made.values()]
        made[trigger] = wanted if wanted in free or not free else free[0]
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A label below a time axis, at the horizontal position `x`."""

    x: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedTimeline:
    """Stacked bars of counts, one stack for each time bucket. `names` are ordered by frequency; the most frequent name
    is at the bottom of each stack.
    """

    width: int
    height: int
    bars: tuple[Bar, ...]
    ticks: tuple[str, ...]
    names: tuple[str, ...]
    top: int


def stacked_timeline(
    buckets: Sequence[TimelineBucket], start: datetime, end: datetime, width: int = 1080, height: int = 96
) -> StackedTimeline:
    """Draw the counts of each bucket over [start, end) as stacked bars. Names are ordered by their total counts, the
    largest first.
    """
    totals: Counter[BindingReason] = Counter()
    for bucket in buckets:
        for name, amount in bucket.counts.items():
            totals[name] += amount
    names = tuple(sorted(totals, key=lambda name: (-totals[name], name)))
    top = max((sum(bucket.counts.values()) for bucket in buckets), default=0)
    step = bucket_seconds(buckets, start, end)
    scale, bars, series = width / max(1.0, (end - start).total_seconds()), [], series_of(totals)
    for bucket in buckets:
        x = (bucket.at - start).total_seconds() * scale
        y = float(height)
        for name in names:
            amount = bucket.counts.get(name, 0)
            if not amount:
                continue
            tall = amount / max(1, top) * (height - 4)
            y -= tall
            label = f"{formats.clock(bucket.at)} UTC: {amount} {formats.words(name)}"
            left = max(0.0, x)
            wide = max(1.0, min(step * scale - 1, width - left))
            bars.append(Bar(x=round(left, 1), y=round(y, 1), width=round(wide, 1), height=round(tall, 1), series=series[name], label=label))
    return StackedTimeline(width=width, height=height, bars=tuple(bars), ticks=even_ticks(start, end), names=names, top=top)


def bucket_seconds(buckets: Sequence[TimelineBucket], start: datetime, end: datetime) -> float:
    """Return the width of a bucket in seconds: the smallest distance between two buckets, or a sixtieth of the range if
    there is only one bucket.
    """
    gaps = [(after.at - before.at).total_seconds() for before, after in pairwise(buckets)]
    return min((gap for gap in gaps if gap > 0), default=(end - start).total_seconds() / 60)


def time_ticks(start: datetime, end: datetime, width: int, most: int = 8) -> tuple[Tick, ...]:
    """Return labels at round times, at most `most`, for an axis of `width` pixels."""
    total = (end - start).total_seconds()
    steps = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)
    step = next((step for step in steps if total / step <= most), 1209600)
    first = start + timedelta(seconds=step - start.timestamp() % step)
    pattern = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%d %b"
    ticks = []
    while first < end:
        x = (first - start).total_seconds() / total * width
        if 20 <= x <= width - 20:
            ticks.append(Tick(x=round(x, 1), words=first.strftime(pattern)))
        first += timedelta(seconds=step)
    return tuple(ticks)


def even_ticks(start: datetime, end: datetime, count: int = 5) -> tuple[str, ...]:
    """Return `count` times at equal distances, including both ends, as labels of an axis that is as wide as its
    picture.
    """
    total = (end - start).total_seconds()
    pattern = "%H:%M:%S" if total < 600 else "%H:%M" if total < 172800 else "%d %b"
    return tuple((start + timedelta(seconds=total * step / (count - 1))).strftime(pattern) for step in range(count))


WIDTH = 720
"""Width of a day in drawing units; a unit is two minutes."""
LANE = 12
_MARGIN = 4
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridBar:
    """The part of a schedule window that lies within one day. `series` is the index of the bar's colour class."""

    x: float
    y: int
    width: float
    series: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GridDay:
    """One row of a week's picture: its day as text, the position of its top edge, and its bars."""

    words: str
    y: int
    bars: tuple[GridBar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekGrid:
    """A picture of the schedule windows in the week from `start`. The windows of the schedule `names[i]` have colour
    class i. `now` is the position of the present time; None if the present time is outside the week.
    """

    height: int
    day_height: int
    days: tuple[GridDay, ...]
    names: tuple[str, ...]
    now: tuple[float, int] | None


def week_grid(windows: Sequence[Window], names: Sequence[str], start: datetime, now: datetime, zone: str = "UTC") -> WeekGrid:
    """Draw the schedule windows of a week, divided at midnights in the time zone of `start`, which is named `zone`."""
    day_height = LANE * max(1, len(names)) + 2 * _MARGIN
    days = []
    for number in range(7):
        begin = start + number * _DAY
        bars = [
            _bar(window, names, begin, number * day_height, zone)
            for window in windows
            if window.opens < begin + _DAY and window.closes > begin
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


def local_grid(windows: Sequence[Window], names: Sequence[str], start: datetime, now: datetime) -> WeekGrid:
    """Draw the schedule windows of a week in the local time of one time zone. The week begins at `start`, a midnight in
    that zone.
    """
    zone = start.tzinfo

    def wall(moment: datetime) -> datetime:
        return moment.astimezone(zone).replace(tzinfo=None)

    local = [Window(schedule=one.schedule, opens=wall(one.opens), closes=wall(one.closes)) for one in windows]
    return week_grid(local, names, wall(start), wall(now), zone=str(zone))


def _bar(window: Window, names: Sequence[str], begin: datetime, top: int, zone: str) -> GridBar:
    left = _place(max(window.opens, begin) - begin)
    right = _place(min(window.closes, begin + _DAY) - begin)
    series = names.index(window.schedule)
    label = f"{window.schedule}: {window.opens:%a %H:%M} to {window.closes:%a %H:%M} {zone}"
    return GridBar(x=left, y=top + _MARGIN + series * LANE, width=max(1.0, round(right - left, 1)), series=series % 8, label=label)


def _place(of_day: timedelta) -> float:
    return round(of_day / _DAY * WIDTH, 1)
