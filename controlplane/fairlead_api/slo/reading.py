"""Use cases: how well a pool's objectives were met, how fast its error budget burns, and how many requests would have
met other targets.

Counts by the minute are kept for some days, counts by the hour for longer. Therefore a range that begins within the
last 25 hours is widened to whole minutes, and any other range to whole hours.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from fairlead.durations import parse_duration
from fairlead.errors import InvalidInput
from fairlead.latency_cells import is_edge
from fairlead.range_steps import MINUTES_KEPT
from fairlead.tables import PoolKey
from fairlead_api.infra.times import parse_range
from fairlead_api.slo.budgets import (
    PERIOD,
    WINDOWS,
    Counts,
    Kept,
    alerts,
    burn_window,
    by_version,
    share_of,
    total,
    what_if,
)
from fairlead_client.resources.slo import SloAttainment, SloBurn, SloPoint, SloWhatIf

MINUTES_ONLY = timedelta(hours=12)
"""Maximum length of a range that is read only from counts by the minute. For longer ranges, whole hours are read from
the counts by the hour.
"""
MOST_POINTS = 200
"""Maximum number of points of each priority class in a series."""
LONGEST = timedelta(days=400)
_STEPS = (60, 300, 900, 3600, 10_800, 21_600, 86_400, 604_800)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A range from `start` to `end`. It is read from counts by the minute up to `hours_from`, from counts by the hour
    up to `hours_until`, and then from counts by the minute again.
    """

    start: datetime
    end: datetime
    hours_from: datetime
    hours_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A pool's objectives in force; `version` is 0 before the pool's first version."""

    version: int
    ttft_seconds: float
    tpot_seconds: float
    percentile: float


class SloStore(Protocol):
    """The port to the recorded counts. Methods raise NotFound for a pool that does not exist."""

    async def goal(self, pool: PoolKey) -> Goal: ...

    async def percentiles(self, pool: PoolKey) -> Mapping[int, float]:
        """Return the SLO's percentile by version."""

    async def kept(
        self,
        pool: PoolKey,
        stretch: Stretch,
        *,
        step_seconds: int | None = None,
        version: int | None = None,
        priority_class: str | None = None,
    ) -> Sequence[Kept]:
        """Return counts of requests by SLO version and priority class, and with `step_seconds` also by step of time."""

    async def cells(self, pool: PoolKey, stretch: Stretch, priority_class: str | None = None) -> Mapping[str, Mapping[int, int]]:
        """Return the number of requests in each latency cell (`fairlead.latency_cells`), by priority class."""


class SloReading:
    """Use cases of objectives. Methods raise InvalidInput, which names the query parameter, and NotFound. `kept` says
    how long the store keeps counts.
    """

    def __init__(self, store: SloStore, kept: timedelta) -> None:
        self._store = store
        self._kept = kept

    async def attainment(
        self, pool: PoolKey, start: str, end: str, version: int | None, priority_class: str | None, now: datetime
    ) -> SloAttainment:
        """Return the attainment in a range of time, by SLO version and priority class."""
        stretch = _asked(start, end, now)
        step = _step(stretch)
        found = await self._store.kept(pool, stretch, step_seconds=step, version=version, priority_class=priority_class)
        by_key: dict[tuple[int, str], list[Kept]] = defaultdict(list)
        by_step: dict[tuple[datetime, str], list[Kept]] = defaultdict(list)
        for one in found:
            by_key[one.version, one.priority_class].append(one)
            if one.at is not None:
                by_step[one.at, one.priority_class].append(one)
        order = sorted(by_key, key=lambda key: (-key[0], key[1]))
        points = [_point(at, name, total(each)) for (at, name), each in sorted(by_step.items())]
        return SloAttainment(
            pool=str(pool),
            start=stretch.start,
            end=stretch.end,
            whole=share_of(version, priority_class, total(found)),
            shares=[share_of(*key, total(by_key[key])) for key in order],
            step_seconds=step,
            points=points,
        )

    async def burn(self, pool: PoolKey, now: datetime) -> SloBurn:
        """Return the burn rate of the error budget, by window and priority class. A window is left out if counts are
        not kept for its whole length.
        """
        goal = await self._store.goal(pool)
        goals = by_version(await self._store.percentiles(pool))
        windows = []
        for name, seconds in WINDOWS.items():
            if timedelta(seconds=seconds) > self._kept:
                continue  # the part that is left would be reported as the whole
            kept = await self._store.kept(pool, stretch_of(now - timedelta(seconds=seconds), now, now))
            windows.append(burn_window(name, None, kept, goals))
            classes = sorted({one.priority_class for one in kept})
            if len(classes) > 1:
                of_class = {each: [one for one in kept if one.priority_class == each] for each in classes}
                windows += [burn_window(name, each, found, goals) for each, found in of_class.items()]
        period = next((one for one in windows if one.window == PERIOD and one.priority_class is None), None)
        return SloBurn(
            pool=str(pool),
            at=now,
            version=goal.version or None,
            percentile=goal.percentile,
            budget_left=None if period is None or period.burn is None else 1 - period.burn,
            windows=windows,
            alerts=alerts(windows, goal.percentile),
        )

    async def what_if(
        self,
        pool: PoolKey,
        start: str,
        end: str,
        ttft: str | None,
        tpot: str | None,
        percentile: float | None,
        priority_class: str | None,
        now: datetime,
    ) -> SloWhatIf:
        """Return the attainment that recorded requests would have had under other targets. For a target that is not
        given, the present one is used.
        """
        stretch = _asked(start, end, now)
        goal = await self._store.goal(pool)
        ttft_seconds = goal.ttft_seconds if ttft is None else _target(ttft, "ttft")
        tpot_seconds = goal.tpot_seconds if tpot is None else _target(tpot, "tpot")
        wanted = goal.percentile if percentile is None else percentile
        if not 1 <= wanted <= 100:
            raise InvalidInput("percentile", wanted, "write 1 to 100")
        cells = await self._store.cells(pool, stretch, priority_class)
        counts: dict[str, list[Kept]] = defaultdict(list)
        for one in await self._store.kept(pool, stretch, priority_class=priority_class):
            counts[one.priority_class].append(one)
        sums: dict[str, Counts] = {name: total(each) for name, each in counts.items()}
        whole, classes = what_if(cells, sums, ttft_seconds, tpot_seconds, wanted)
        return SloWhatIf(
            pool=str(pool),
            start=stretch.start,
            end=stretch.end,
            ttft_seconds=ttft_seconds,
            tpot_seconds=tpot_seconds,
            percentile=wanted,
            exact=is_edge(ttft_seconds) and is_edge(tpot_seconds),
            whole=whole,
            classes=classes,
        )


def stretch_of(start: datetime, end: datetime, now: datetime) -> Stretch:
    """Return the range, widened to whole minutes, or to whole hours if it begins longer ago than MINUTES_KEPT. The
    result says which part is read from counts by the hour.
    """
    hour = timedelta(hours=1)
    step = timedelta(minutes=1) if start >= now - MINUTES_KEPT else hour
    begun, ended = _down(start, step), _up(end, step)
    if step < hour and ended - begun <= MINUTES_ONLY:
        return Stretch(start=begun, end=ended, hours_from=ended, hours_until=ended)
    return Stretch(start=begun, end=ended, hours_from=_up(begun, hour), hours_until=_down(ended, hour))


def _asked(start: str, end: str, now: datetime) -> Stretch:
    begun, ended = parse_range(start, end, now)
    begun, ended = begun or now, min(ended or now, now)
    if begun >= ended:
        raise InvalidInput("from", start, "write a time in the past and before `to`")
    if ended - begun > LONGEST:
        raise InvalidInput("from", start, f"write a range of at most {LONGEST.days} days")
    return stretch_of(begun, ended, now)


def _step(stretch: Stretch) -> int:
    """Return the smallest step in seconds with which a series has at most MOST_POINTS points; at least an hour if a
    part of the range is read from counts by the hour.
    """
    least = 60 if stretch.hours_from == stretch.hours_until else 3600
    seconds = (stretch.end - stretch.start).total_seconds()
    return next(step for step in _STEPS if step >= least and seconds / step <= MOST_POINTS)


def _point(at: datetime, priority_class: str, counts: Counts) -> SloPoint:
    return SloPoint(
        at=at,
        priority_class=priority_class,
        requests=counts.judged,
        in_time=counts.within_slo,
        refused=counts.refused,
        failed=counts.failed,
    )


def _target(text: str, name: str) -> float:
    seconds = parse_duration(text, name)
    if not 0.001 <= seconds <= 3600:
        raise InvalidInput(name, text, "write 1ms to 1h")
    return seconds


def _down(at: datetime, step: timedelta) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + (at - epoch) // step * step


def _up(at: datetime, step: timedelta) -> datetime:
    down = _down(at, step)
    return down if down == at else down + step
