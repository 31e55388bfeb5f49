"""Computes the picture of how objectives were kept: a line per priority class over time, and the goal. Pure.

The axis begins at the lowest share there is to show, rounded down to tens, so that 99 % and 99.9 % can be told apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fairlead_client.resources.slo import SloPoint
from fairlead_web import formats
from fairlead_web.charts import Tick, time_ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One step: where it is, and its figures in words."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLine:
    """A priority class: an SVG path with gaps where no request ended, and its steps; `series` picks the colour."""

    name: str
    series: int
    path: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalLine:
    """The goal at a height, in words."""

    y: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttainmentChart:
    """Lines in a `width` x `height` box above a time axis; `lowest` is the share at the bottom, the top is all."""

    width: int
    height: int
    lines: tuple[ClassLine, ...]
    goal: GoalLine
    ticks: tuple[Tick, ...]
    lowest: float
    label: str


def attainment_chart(
    points: Sequence[SloPoint], start: datetime, end: datetime, step_seconds: int, percentile: float, width: int = 1080, height: int = 160
) -> AttainmentChart:
    """The chart of steps in which requests ended; a class in several steps has a line from one to the next."""
    judged = [point for point in points if point.requests]
    shares = [point.in_time / point.requests for point in judged]
    lowest = int(min([*shares, percentile / 100]) * 10 - 1e-9) / 10
    seconds = max(1.0, (end - start).total_seconds())

    def place(at: datetime, share: float) -> tuple[float, float]:
        middle = (at - start).total_seconds() + step_seconds / 2
        return round(min(max(middle / seconds, 0.0), 1.0) * width, 1), round(4 + (1 - share) / (1 - lowest) * (height - 8), 1)

    lines = []
    for series, name in enumerate(sorted({point.priority_class for point in judged})):
        path, dots, last = "", [], None
        for point in (one for one in judged if one.priority_class == name):
            x, y = place(point.at, point.in_time / point.requests)
            joined = last is not None and (point.at - last).total_seconds() <= step_seconds
            path += f"{'L' if joined else 'M'}{x} {y}"
            told = f"{formats.share(point.in_time / point.requests)} of {formats.count(point.requests)} in time"
            more = f", {formats.count(point.refused)} refused" if point.refused else ""
            dots.append(Dot(x=x, y=y, label=f"{formats.clock(point.at)} UTC, class {name}: {told}{more}"))
            last = point.at
        lines.append(ClassLine(name=name, series=series % 8, path=path, dots=tuple(dots)))
    goal = GoalLine(y=place(start, percentile / 100)[1], words=f"goal {formats.percentile(percentile)} %")
    names = ", ".join(line.name for line in lines)
    return AttainmentChart(
        width=width,
        height=height,
        lines=tuple(lines),
        goal=goal,
        ticks=time_ticks(start, end, width),
        lowest=lowest,
        label=f"Share of requests in time over time, by priority class ({names}), from {formats.share(lowest)} to 100 %; {goal.words}",
    )
