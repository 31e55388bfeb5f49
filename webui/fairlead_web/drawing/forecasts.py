"""Computes the geometry of a week's forecast: demand with its uncertainty band, and the number of instances according
to schedules. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from fairlead_client.resources.forecasts import ForecastQuarter, PoolForecast
from fairlead_web.text import formats

WIDTH = 1000
HEIGHT = 180
_TOP = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A day in a forecast's picture: the position of its left edge, and its label."""

    x: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a forecast's picture: its colour class, its SVG path, and its text in the legend."""

    name: str
    path: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture of a forecast's week: the value at its top, its lines from back to front, and the same content in
    words.
    """

    title: str
    top: str
    lines: tuple[Line, ...]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastDrawing:
    """Two pictures of the same week of a forecast: demand, and instances."""

    days: tuple[Day, ...]
    pictures: tuple[Picture, ...]


def drawn(found: PoolForecast) -> ForecastDrawing | None:
    """Return the pictures of a forecast; None if the pool has no forecast."""
    if not found.quarters:
        return None
    roles = sorted(found.quarters[0].proposed)
    return ForecastDrawing(days=_days(found), pictures=(_demand(found), *(_instances(found.quarters, role) for role in roles)))


def _demand(found: PoolForecast) -> Picture:
    recorded = [one.requests for one in found.recorded]
    top = max([one.high for one in found.quarters] + [one for one in recorded if one is not None]) or 1.0
    peak = max(found.quarters, key=lambda one: one.requests)
    return Picture(
        title="Requests per second",
        top=formats.compact(top),
        lines=(
            Line(name="band", path=_band(found.quarters, top), words="band that contains nine of ten quarters of an hour, as forecast"),
            Line(name="recorded", path=_line(recorded, top), words="the week before"),
            Line(name="middle", path=_line([one.requests for one in found.quarters], top), words="forecast"),
        ),
        label=f"Requests per second as forecast, at most {formats.compact(peak.requests)} on {peak.at:%a %H:%M} UTC",
    )


def _instances(quarters: Sequence[ForecastQuarter], role: str) -> Picture:
    present, proposed = ([getattr(one, name)[role] for one in quarters] for name in ("present", "proposed"))
    top = max(*present, *proposed, 1)
    of = "Instances" if role == "both" else f"Instances of {role}"
    return Picture(
        title=f"{of} by schedules",
        top=str(top),
        lines=(
            Line(name="present", path=_steps(present, top), words="present schedules"),
            Line(name="proposed", path=_steps(proposed, top), words="proposed schedules"),
        ),
        label=f"{of}: {min(present)} to {max(present)} by the present schedules, {min(proposed)} to {max(proposed)} by the proposed ones",
    )


def _days(found: PoolForecast) -> tuple[Day, ...]:
    zone, count = ZoneInfo(found.time_zone), len(found.quarters)
    days, before = [], None
    for place, one in enumerate(found.quarters):
        local = one.at.astimezone(zone)
        if local.date() != before:
            days.append(Day(x=round(place * WIDTH / count, 1), words=f"{local:%a %d %b}"))
        before = local.date()
    return tuple(days)


def _y(value: float, top: float) -> float:
    return round(HEIGHT - value / top * (HEIGHT - _TOP), 1)


def _line(values: Sequence[float | None], top: float) -> str:
    """Return an SVG path through the values on a scale from 0 to `top`. Missing values are gaps."""
    path, pen = [], "M"
    for place, value in enumerate(values):
        if value is not None:
            path.append(f"{pen}{round(place * WIDTH / len(values), 1)} {_y(value, top)}")
        pen = "M" if value is None else "L"
    return "".join(path)


def _band(quarters: Sequence[ForecastQuarter], top: float) -> str:
    places = [round(place * WIDTH / len(quarters), 1) for place in range(len(quarters))]
    over = [f"{x} {_y(one.high, top)}" for x, one in zip(places, quarters, strict=True)]
    under = [f"{x} {_y(one.low, top)}" for x, one in zip(places, quarters, strict=True)]
    return f"M{'L'.join([*over, *reversed(under)])}Z"


def _steps(values: Sequence[int], top: int) -> str:
    changes = [place for place in range(1, len(values)) if values[place] != values[place - 1]]
    steps = [f"H{round(place * WIDTH / len(values), 1)}V{_y(values[place], top)}" for place in changes]
    return "".join([f"M0 {_y(values[0], top)}", *steps, f"H{WIDTH}"])
