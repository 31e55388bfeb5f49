"""Use case: why an instance was loaded as it was in a stretch of time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey, SloFacts
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.sharing import Recent
from fairlead_api.infra.times import parse_range
from fairlead_api.loads.causes import causes
from fairlead_api.loads.heatmaps import Grid, Kept, Place, limit_of
from fairlead_client.resources.heatmaps import GOOD_WHEN_HIGH, METRICS
from fairlead_client.resources.load_explanations import LoadExplanation, Moved, Senders, WindowChange, WindowFigure

LONGEST = timedelta(days=1)
TELLING = timedelta(minutes=5)
"""Shorter stretches have too few recorded requests, so their senders are those of the five minutes to their end."""
SHARED = 240
"""All requests about any instance in a stretch share one reading of all instances for this part of the stretch, 15 s of
an hour: little of it is new by then, and an open page asks again and again.
"""
MOST_SHARED = 64
LONG, ENDED = timedelta(minutes=30), timedelta(seconds=2)
"""For a stretch at least LONG that ended within ENDED, the last reading is returned with its own times, and no request
waits while the stretch is read again.
"""
BEFORE_CHANGE = timedelta(minutes=10)
"""Changes this long before the stretch may be its cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What one instance had in a stretch: (maximum, mean) by metric, where measured, and counts."""

    values: Mapping[str, tuple[float, float]]
    requests: int
    prompt_tokens: int
    hit_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """What all instances of a pool had in the stretch and in the one before it, their places, and the SLO in force."""

    now: Mapping[str, Stretch]
    before: Mapping[str, Stretch]
    places: Mapping[str, Place]
    slo: SloFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known about an instance in the stretch besides its load."""

    senders: Senders
    arrived: Moved
    left: Moved
    changes: list[WindowChange]


class LoadWindows(Protocol):
    """The source of the events in a stretch."""

    async def stretches(self, pool: PoolKey, where: Grid) -> Stretches:
        """Load of all instances in both columns of the grid. Raises NotFound for a pool that does not live."""

    async def evidence(
        self, pool: PoolKey, instance: str, start: datetime, end: datetime, senders_from: datetime, changes_from: datetime
    ) -> Evidence:
        """The senders to the instance, the sessions that arrived and left, and the changes."""


class LoadExplaining:
    """Reads a stretch, compares the instance with the others, and says what stands out."""

    def __init__(self, store: LoadWindows, kept: Kept, recent: Recent) -> None:
        self._store = store
        self._kept = kept
        self._recent = recent
        self._shared: dict[tuple[PoolKey, datetime, int], tuple[datetime, Stretches]] = {}

    async def explain(self, pool: PoolKey, instance: str, metric: str, start: str, end: str, now: datetime) -> LoadExplanation:
        """The explanation. Raises InvalidInput naming the query field, NotFound."""
        if metric not in METRICS:
            raise InvalidInput("metric", metric, f"write one of {', '.join(METRICS)}")
        begun, ended = parse_range(start, end, now)
        begun, ended = begun or now, ended or now
        where = two_windows(begun, ended, start, self._kept.finest(begun - (ended - begun), now))
        where, found = await self._stretches(pool, instance, where, now)
        middle = where.start + timedelta(seconds=where.step)
        if instance not in found.places:
            raise NotFound("instance", instance)
        known = await self._store.evidence(pool, instance, middle, where.end, min(middle, where.end - TELLING), middle - BEFORE_CHANGE)
        return explanation(pool, instance, metric, where, found, known)

    async def _stretches(self, pool: PoolKey, instance: str, where: Grid, now: datetime) -> tuple[Grid, Stretches]:
        """What all instances had, and the grid that it is of."""

        async def read() -> tuple[Grid, Stretches]:
            return where, await self._store.stretches(pool, where)

        if where.step >= LONG.total_seconds() and where.end > now - ENDED:
            latest = await self._recent.get(("stretches", pool, where.step), read)
            return latest if instance in latest[1].places else await read()
        key, fresh = (pool, where.start, where.step), timedelta(seconds=where.step / SHARED)
        known = self._shared.get(key)
        if known is not None and timedelta() <= now - known[0] < fresh and instance in known[1].places:
            return where, known[1]
        found = await self._store.stretches(pool, where)
        if len(self._shared) >= MOST_SHARED:
            self._shared.pop(min(self._shared, key=lambda one: self._shared[one][0]))
        self._shared[key] = (now, found)
        return where, found


def two_windows(start: datetime, end: datetime, written: str, finest: int = 1) -> Grid:
    """[start, end) widened to whole samples of the table that a cell of that length is read from, and as long a window
    before it. Samples shorter than `finest` seconds no longer exist. Raises InvalidInput naming `from`.
    """
    if end - start > LONGEST:
        raise InvalidInput("from", written, "write a stretch of at most a day")
    for unit, below in ((1, 10), (10, 60)):
        found = _widened(start, end, unit)
        if unit >= finest and found.step < below:
            return found
    return _widened(start, end, 60)


def _widened(start: datetime, end: datetime, unit: int) -> Grid:
    first = int(start.timestamp()) // unit * unit
    last = max(-(-int(end.timestamp()) // unit) * unit, first + unit)
    return Grid(start=datetime.fromtimestamp(first - (last - first), UTC), step=last - first, columns=2)


def explanation(pool: PoolKey, instance: str, metric: str, where: Grid, found: Stretches, known: Evidence) -> LoadExplanation:
    """Arranges the findings. Pure."""
    place = found.places[instance]
    others = [name for name, other in found.places.items() if name != instance and other.role is place.role]
    mine = found.now.get(instance)
    figures = [_figure(one, instance, others, found) for one in METRICS]
    counts = [found.now[name].requests for name in others if name in found.now]
    made = LoadExplanation(
        pool=str(pool),
        instance=instance,
        state=place.state,
        role=place.role,
        start=where.start + timedelta(seconds=where.step),
        end=where.end,
        metric=metric,
        causes=[],
        figures=figures,
        requests=mine.requests if mine else 0,
        prompt_tokens=mine.prompt_tokens if mine else 0,
        hit_tokens=mine.hit_tokens if mine else 0,
        output_tokens=mine.output_tokens if mine else 0,
        others_requests=float(median(counts)) if counts else None,
        senders=known.senders,
        arrived=known.arrived,
        left=known.left,
        changes=known.changes,
    )
    made.causes.extend(causes(made))
    return made


def _figure(metric: str, instance: str, others: Sequence[str], found: Stretches) -> WindowFigure:
    now, before = (_value(stretches.get(instance), metric) for stretches in (found.now, found.before))
    of = 1 if metric in GOOD_WHEN_HIGH else 0
    values = [value[of] for name in others if (value := _value(found.now.get(name), metric)) is not None]
    limit = limit_of(metric, found.slo)
    return WindowFigure(
        metric=metric,
        unit=METRICS[metric],
        maximum=now[0] if now else None,
        mean=now[1] if now else None,
        before=before[of] if before else None,
        others=float(median(values)) if values else None,
        others_count=len(values),
        others_over=0 if limit is None else sum(value > limit for value in values),
        limit=limit,
    )


def _value(stretch: Stretch | None, metric: str) -> tuple[float, float] | None:
    return None if stretch is None else stretch.values.get(metric)
