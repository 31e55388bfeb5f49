"""Reads time series, each from the coarsest records that are fine enough for the requested steps."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from fairlead.errors import InvalidInput
from fairlead.latency_cells import quantile
from fairlead.range_steps import MINUTES_KEPT, covered
from fairlead.tables import PoolKey
from fairlead_api.infra.spans import Sight
from fairlead_api.infra.times import parse_range
from fairlead_api.series.grids import MOST_STEPS, Steps, in_force, line, steps
from fairlead_api.slo.budgets import Kept, burn_of, by_version, total
from fairlead_api.trees.budgets import TASK_FIGURES, Rolled, added, goals_of
from fairlead_client.resources.series import SERIES_METRICS, Annotations, Drawn, Scope, Series, SeriesLine

Found = TypeVar("Found")

MOST_METRICS = 24
MINUTE, HOUR = 60, 3600
BY_TENS = timedelta(hours=2)
"""Maximum length of a range of one instance that is shown in steps below a minute. Longer ranges are shown in whole
minutes.
"""
WIDE = timedelta(hours=6)
"""Maximum length of a range of all pools whose latencies are shown in steps below an hour. Longer ranges are shown in
whole hours, because each pool has one histogram of latencies per minute to read.
"""

LOADS = (
    "requests",
    "failed",
    "output_tokens",
    "hit_rate",
    "running",
    "waiting",
    "pending_prefill_tokens",
    "kv_usage",
)
OF_INSTANCES = ("ttft_attainment", "ttft_p95", "tpot_p95")
"""Metrics that are recorded for each instance, in addition to LOADS."""
KEPT = ("attainment", "ttft_attainment", "refused", "burn")
"""Metrics that are computed from the same counts of judged requests. Therefore the share of requests that meet both
targets never exceeds the share that meet one target.
"""
QUANTILES = {"ttft_p50": ("ttft", 0.5), "ttft_p95": ("ttft", 0.95), "tpot_p95": ("tpot", 0.95)}
GOALS = {"goal": "percentile", "ttft_limit": "ttft_seconds", "tpot_limit": "tpot_seconds"}
MODELS = {"predictor_error": "error_seconds", "formula_error": "formula_error_seconds", "predictor_drift": "drift"}
DECISIONS = ("instances_recommended", "prefill_load", "decode_load")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a query: all visible pools, one pool, or one of its instances."""

    pool: PoolKey | None = None
    instance: str | None = None
    sight: Sight = None

    @property
    def scope(self) -> Scope:
        return Scope.FLEET if self.pool is None else Scope.POOL if self.instance is None else Scope.INSTANCE


Changes = Sequence[tuple[datetime, float | None]]


class SeriesStore(Protocol):
    """The port to the recorded figures. Every method about a pool raises NotFound if the pool does not exist."""

    async def loads(self, subject: Subject, where: Steps, now: datetime) -> Mapping[int, Mapping[str, float | None]]:
        """Return the figures named in LOADS (for an instance also OF_INSTANCES), by index of the step and by name.
        Steps without a record are left out.
        """

    async def kept(self, subject: Subject, where: Steps) -> Sequence[Kept]:
        """Return counts of judged requests by step, priority class and version of the SLO. Counts of all pools together
        have version 0.
        """

    async def latencies(self, subject: Subject, where: Steps, kind: str) -> Mapping[int, Mapping[int, int]]:
        """Return numbers of requests by step of time, then by step of latency. `kind` is `ttft` or `tpot`."""

    async def refusals(self, subject: Subject, where: Steps) -> Sequence[tuple[int, str, int]]:
        """Return refused requests as (step, cause, number of requests)."""

    async def moves(self, subject: Subject, where: Steps, table: str) -> Sequence[tuple[int, int, float | None]]:
        """Return moves as (step, number of moves, seconds of TTFT that they saved); `table` is `migrations` or
        `reroutes`.
        """

    async def serving(self, pool: PoolKey, since: datetime) -> Mapping[str, Changes]:
        """Return the number of serving instances of each role: the number at `since`, and every change of it since
        then.
        """

    async def wanted(self, pool: PoolKey, since: datetime) -> Mapping[str, Changes]:
        """Return the desired number of instances of each role: the number in force at `since`, and every change of it
        since then.
        """

    async def goals(self, pool: PoolKey, kind: str, since: datetime) -> Changes:
        """Return the values of one column of the SLO in force at `since` and later, each with the time from which it
        applies.
        """

    async def percentiles(self, pool: PoolKey) -> Mapping[int, float]:
        """Return the SLO's percentile by version of the SLO."""

    async def tasks(self, pool: PoolKey, where: Steps) -> Sequence[Rolled]:
        """Return, for each step of time, priority class and version of the SLO, the number of tasks that ended and the
        sums of their figures.
        """

    async def task_goals(self, pool: PoolKey) -> Mapping[tuple[int, str], float]:
        """Return the percentiles of the targets of tasks, by version of the SLO and priority class."""

    async def decisions(self, pool: PoolKey, where: Steps) -> Mapping[tuple[str, str], Mapping[int, float]]:
        """Return figures of scaling decisions. The keys are pairs of a metric of DECISIONS and a role; below each, the
        key is the index of the time step. Only the last decision in each step counts.
        """

    async def models(self, pool: PoolKey, where: Steps, kind: str) -> Mapping[str, Mapping[int, float]]:
        """Return one figure of prediction models, by router, then by index of the step of time. Only the router's
        newest model in each step counts.
        """

    async def annotations(self, subject: Subject, start: datetime, end: datetime) -> Annotations:
        """Return the events from `start` to `end` that charts mark."""


class SeriesReading:
    """Use cases of time series. Methods raise InvalidInput, which names the query parameter, and NotFound."""

    def __init__(self, store: SeriesStore) -> None:
        self._store = store

    async def series(self, subject: Subject, metrics: str, start: str, end: str, buckets: int, now: datetime) -> Series:
        """Return the lines of these metrics (names separated by commas) in at most `buckets` steps, over the range that
        `start` to `end` covers.
        """
        names = chosen(metrics, subject.scope)
        if not 2 <= buckets <= MOST_STEPS:
            raise InvalidInput("buckets", buckets, f"write 2 to {MOST_STEPS}")
        begun, ended = asked_range(start, end, now)
        asked = _Asked(self._store, subject, begun, ended, buckets, now)
        lines = [one for name in names for one in await asked.lines(name)]
        pool = None if subject.pool is None else str(subject.pool)
        whole = covered(begun, ended, now)
        return Series(pool=pool, instance=subject.instance, start=whole.start, end=min(whole.end, now), lines=lines)

    async def annotations(self, subject: Subject, start: str, end: str, now: datetime) -> Annotations:
        """Return the events from `start` to `end` that charts mark."""
        return await self._store.annotations(subject, *asked_range(start, end, now))


def chosen(metrics: str, scope: Scope) -> list[str]:
    """Return the requested metric names, each once. Raises InvalidInput."""
    names = list(dict.fromkeys(name.strip() for name in metrics.split(",") if name.strip()))
    known = [name for name, metric in SERIES_METRICS.items() if scope in metric.scopes]
    for name in names:
        if name not in known:
            raise InvalidInput("metrics", name, f"write some of {', '.join(known)}, separated by commas")
    if not 1 <= len(names) <= MOST_METRICS:
        raise InvalidInput("metrics", metrics, f"write 1 to {MOST_METRICS} of {', '.join(known)}, separated by commas")
    return names


def asked_range(start: str, end: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the requested range without its part in the future. Raises InvalidInput."""
    begun, ended = parse_range(start, end, now)
    begun, ended = begun or now, min(ended or now, now)
    if begun >= ended:
        raise InvalidInput("from", start, "write a time in the past and before `to`")
    return begun, ended


class _Asked:
    """One request for series. Records that several of its metrics need are read only once."""

    def __init__(self, store: SeriesStore, subject: Subject, start: datetime, end: datetime, buckets: int, now: datetime) -> None:
        self._store, self._subject, self._now = store, subject, now
        self._start, self._end, self._buckets = start, end, buckets
        self._read: dict[object, object] = {}

    def _steps(self, least: int = 10) -> Steps:
        return steps(self._start, self._end, self._buckets, self._now, least)

    async def _loads(self, where: Steps) -> Mapping[int, Mapping[str, float | None]]:
        return await self._once(("loads", where), lambda: self._store.loads(self._subject, where, self._now))

    async def _once(self, key: object, read: Callable[[], Awaitable[Found]]) -> Found:
        if key not in self._read:
            self._read[key] = await read()
        return self._read[key]  # type: ignore[return-value]  # what was read for this key

    async def lines(self, name: str) -> list[SeriesLine]:
        """Return the lines of one metric."""
        of_instance = self._subject.scope is Scope.INSTANCE
        if name in LOADS or (of_instance and name in OF_INSTANCES):
            where = self._steps(MINUTE if of_instance and self._end - self._start > BY_TENS else 10)
            found = await self._loads(where)
            return [self._line(name, where, {index: values.get(name) for index, values in found.items()})]
        if name in KEPT:
            return await self._kept_lines(name)
        if name in QUANTILES:
            return [await self._quantile(name)]
        if name in {"migrations", "reroutes", "seconds_won"}:
            return [await self._moves(name)]
        if name == "refused_by_cause":
            return await self._by_cause()
        assert self._subject.pool is not None, "the other metrics exist only for single pools"
        return await self._of_pool(name, self._subject.pool)

    def _line(
        self, name: str, where: Steps, found: Mapping[int, float | None], part: str | None = None, drawn: Drawn = Drawn.LINE
    ) -> SeriesLine:
        return line(name, SERIES_METRICS[name].unit, where, found, part, drawn)

    async def _kept_lines(self, name: str) -> list[SeriesLine]:
        where = self._steps(self._slo_least())
        kept = await self._once(("kept", where), lambda: self._store.kept(self._subject, where))
        by_step: dict[int, list[Kept]] = defaultdict(list)
        for one in kept:
            index = None if one.at is None else where.index(one.at)
            if index is not None:
                by_step[index].append(one)
        totals = {index: total(each) for index, each in by_step.items()}
        if name == "refused":
            known = await self._loads(where)
            amounts = {index: float(counts.refused) for index, counts in totals.items()}
            return [self._line(name, where, self._rates(where, amounts, known))]
        if name == "burn":
            assert self._subject.pool is not None
            goals = by_version(await self._store.percentiles(self._subject.pool))
            return [self._line(name, where, {index: burn_of(each, goals) for index, each in by_step.items()})]
        if name == "ttft_attainment":
            return [self._line(name, where, {index: _share(counts.ttft_within_slo, counts.judged) for index, counts in totals.items()})]
        found = [self._line(name, where, {index: _share(counts.within_slo, counts.judged) for index, counts in totals.items()})]
        classes = sorted({one.priority_class for one in kept})
        if self._subject.pool is not None and len(classes) > 1:
            for each in classes:
                of_class = {index: total(one for one in step if one.priority_class == each) for index, step in by_step.items()}
                attained = {index: _share(counts.within_slo, counts.judged) for index, counts in of_class.items()}
                found.append(self._line(name, where, attained, each))
        return found

    async def _quantile(self, name: str) -> SeriesLine:
        kind, share = QUANTILES[name]
        where = self._steps(self._slo_least())
        found = await self._once((kind, where), lambda: self._store.latencies(self._subject, where, kind))
        return self._line(name, where, {index: quantile(counts, share) for index, counts in found.items()})

    async def _moves(self, name: str) -> SeriesLine:
        where = self._steps(MINUTE)
        known = await self._loads(where)
        table = "reroutes" if name == "reroutes" else "migrations"
        found = {
            index: (count, won)
            for index, count, won in await self._once((table, where), lambda: self._store.moves(self._subject, where, table))
        }
        values: dict[int, float | None] = dict.fromkeys(known, 0.0)
        values |= {index: won if name == "seconds_won" else float(count) for index, (count, won) in found.items()}
        return self._line(name, where, values)

    async def _by_cause(self) -> list[SeriesLine]:
        where = self._steps(10)
        known = await self._loads(where)
        amounts: dict[str, dict[int, float]] = defaultdict(dict)
        for index, cause, count in await self._store.refusals(self._subject, where):
            amounts[cause][index] = amounts[cause].get(index, 0.0) + count
        order = sorted(amounts, key=lambda cause: (-sum(amounts[cause].values()), cause))
        return [self._line("refused_by_cause", where, self._rates(where, amounts[cause], known), cause) for cause in order]

    async def _of_tasks(self, name: str, pool: PoolKey) -> list[SeriesLine]:
        where = self._steps(HOUR)
        found = await self._once(("tasks", where), lambda: self._store.tasks(pool, where))
        value = await self._task_value(name, pool)
        known = dict.fromkeys(await self._loads(where) if name == "tasks" else (), 0.0)
        classes = sorted({one.priority_class for one in found})
        lines = []
        for part in (None, *(classes if len(classes) > 1 else ())):
            by_step: dict[int, list[Rolled]] = defaultdict(list)
            for one in found:
                index = None if one.at is None else where.index(one.at)
                if index is not None and part in (None, one.priority_class):
                    by_step[index].append(one)
            lines.append(self._line(name, where, {**known, **{index: value(each) for index, each in by_step.items()}}, part))
        return lines

    async def _task_value(self, name: str, pool: PoolKey) -> Callable[[Sequence[Rolled]], float | None]:
        if name == "task_burn":
            goals = goals_of(await self._once("task goals", lambda: self._store.task_goals(pool)))
            return lambda rolled: burn_of((one.kept for one in rolled), goals)
        return lambda rolled: TASK_FIGURES[name](added(rolled))

    async def _of_pool(self, name: str, pool: PoolKey) -> list[SeriesLine]:
        if name in TASK_FIGURES or name == "task_burn":
            return await self._of_tasks(name, pool)
        where = self._steps()
        if name in {"instances_serving", "instances_wanted"}:
            serving = name == "instances_serving"
            by_role = await (self._store.serving if serving else self._store.wanted)(pool, where.start)
            return [
                self._line(name, where, in_force(where, changes, self._now), role, Drawn.STEPS)
                for role, changes in sorted(by_role.items())
                if any(value for _, value in changes)
            ]
        if name in GOALS:
            share = 100.0 if name == "goal" else 1.0
            changes = [
                (at, None if value is None else value / share) for at, value in await self._store.goals(pool, GOALS[name], where.start)
            ]
            return [self._line(name, where, in_force(where, changes, self._now), None, Drawn.STEPS)]
        if name in DECISIONS:
            decided = await self._once(("decisions", where), lambda: self._store.decisions(pool, where))
            found = {role: values for (metric, role), values in sorted(decided.items()) if metric == name}
        else:
            found = dict(sorted((await self._store.models(pool, where, MODELS[name])).items()))
        return [self._line(name, where, values, part, Drawn.POINTS) for part, values in found.items()]

    def _rates(self, where: Steps, amounts: Mapping[int, float], known: Mapping[int, object]) -> dict[int, float | None]:
        """Convert counts by step to rates per second, using the elapsed part of each step. The rate is zero in a step
        for which there are records but no counts.
        """
        rates: dict[int, float | None] = dict.fromkeys(known, 0.0)
        return rates | {index: amount / max(1.0, where.lasted(index, self._now)) for index, amount in amounts.items()}

    def _slo_least(self) -> int:
        """Return the minimum length in seconds of the steps in which SLO attainment is read."""
        early = self._start < self._now - MINUTES_KEPT
        wide = self._subject.pool is None and self._end - self._start > WIDE
        return HOUR if early or wide else MINUTE


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesValue:
    """A value of a line, for the step of `step_seconds` that begins at `at`. Unknown values have no row."""

    metric: str
    part: str | None
    unit: str
    at: datetime
    step_seconds: int
    value: float


def series_values(found: Series) -> Iterator[SeriesValue]:
    """Yield rows of all lines, one line after the other, oldest first."""
    for drawn in found.lines:
        for step, value in enumerate(drawn.values):
            if value is not None:
                at = drawn.start + timedelta(seconds=step * drawn.step_seconds)
                yield SeriesValue(
                    metric=drawn.metric, part=drawn.part, unit=drawn.unit, at=at, step_seconds=drawn.step_seconds, value=value
                )
