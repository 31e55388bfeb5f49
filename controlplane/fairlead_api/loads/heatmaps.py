"""Heatmaps: divides a range of time into buckets, and arranges cells in rows with a colour scale. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import add
from typing import Any, cast

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.tables import SloFacts
from fairlead_client.resources.heatmaps import GOOD_WHEN_HIGH, GROUPS, METRICS, SORTS, Heatmap, HeatmapMigration, HeatmapRow

MAX_ROWS = 512
MAX_COLUMNS = 360
MANY_ROWS = 16
"""Number of rows above which the order `auto` begins with the worst rows, because hot rows are then no longer found at
a glance.
"""
KV_LIMIT = 0.9
"""Share of used KV cache (0-1) above which engines start to preempt."""

WITHOUT_NODE = "no node"
"""The name of the group of instances whose node is not known."""

_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A grid of `columns` buckets of `step` seconds from `start`, and the coarsest table of samples that suffices for
    such buckets.
    """

    start: datetime
    step: int
    columns: int

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.step * self.columns)

    @property
    def source(self) -> str:
        """The resolution of the grid's table of samples: `1s`, `10s` or `1m`."""
        return "1s" if self.step < 10 else "10s" if self.step < 60 else "1m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Numbers of days for which load is kept by second and by 10 s. Load by minute is kept longer."""

    seconds: timedelta
    tens: timedelta

    def finest(self, start: datetime, now: datetime) -> int:
        """Return the length in seconds of the finest samples that still exist for the whole time since `start`."""
        age = now - start
        return 1 if age <= self.seconds else 10 if age <= self.tens else 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """State, role and node of an instance."""

    state: InstanceState
    role: Role
    node: str | None = None


UNKNOWN = Place(state=InstanceState.GONE, role=Role.BOTH)
"""The `Place` of an instance that is known only from its cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The values of all instances in one column: for each instance the maximum over its seconds or, for a mean, the sum
    and the number of its seconds.

    A missing value is None. `instances`, `values` and `seconds` have the same length and order; `seconds` is empty for
    maxima. Adjacent columns with the same instances are processed fastest if they share one `instances` object.
    """

    column: int
    instances: Sequence[str]
    values: Sequence[float | None]
    seconds: Sequence[int] = ()


def grid(start: datetime, end: datetime, columns: int, finest: int = 1) -> Grid:
    """Return the finest grid over [start, end) with at most `columns` columns and steps of at least `finest` seconds.
    The bounds are widened to whole steps.
    """
    for step in _STEPS:
        if step < finest:
            continue
        first = int(start.timestamp()) // step * step
        last = -(-int(end.timestamp()) // step) * step
        if (last - first) // step <= columns:
            return Grid(start=datetime.fromtimestamp(first, UTC), step=step, columns=max(1, (last - first) // step))
    raise InvalidInput("from", start.isoformat(), f"write a range of at most {_STEPS[-1] * columns // 86400} days")


def check(metric: str, columns: int, aggregate: str, sort: str, group: str) -> None:
    """Raises InvalidInput, which names the query parameter, if a parameter of a heatmap has an invalid value."""
    choices = {
        "metric": (metric, tuple(METRICS)),
        "aggregate": (aggregate, ("max", "mean")),
        "sort": (sort, SORTS),
        "group": (group, GROUPS),
    }
    for field, (value, known) in choices.items():
        if value not in known:
            raise InvalidInput(field, value, f"write one of {', '.join(known)}")
    if not 1 <= columns <= MAX_COLUMNS:
        raise InvalidInput("columns", columns, f"write 1 to {MAX_COLUMNS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of an instance's load: the SLO in force, and the measured speed of an instance in uncached prompt
    tokens per second (None = not measured yet). `shown` is a metric with the limit that the reader already sees; that
    limit takes precedence over the present limit.
    """

    slo: SloFacts
    prefill_speed: float | None = None
    shown: tuple[str, float] | None = None

    def of(self, metric: str) -> float | None:
        """Return the absolute limit of a metric; None if it has no limit, or if the limit is not known yet. The limit
        of pending prefill, which routers use too, is the number of tokens that an instance computes within the TTFT
        target.
        """
        if self.shown is not None and self.shown[0] == metric:
            return self.shown[1]
        pending = None if self.prefill_speed is None else round(self.slo.ttft_seconds * self.prefill_speed)
        known = {"ttft_p95": self.slo.ttft_seconds, "tpot_p95": self.slo.tpot_seconds, "kv_usage": KV_LIMIT}
        return (known | {"pending_prefill_tokens": pending or None}).get(metric)


def heatmap(
    pool: str,
    metric: str,
    aggregate: str,
    sort: str,
    where: Grid,
    slices: Iterable[Slice],
    instances: Mapping[str, Place],
    limits: Limits,
    migrations: Sequence[HeatmapMigration],
    migrations_total: int,
    group: str = "instance",
) -> Heatmap:
    """Arrange cells as the rows of a heatmap with a colour scale.

    `slices` hold maxima for `aggregate` "max", otherwise sums; several slices of a column are merged. `instances` gives
    the state, role and node by id, for existing instances and for all instances with cells. `sort` is the order of the
    rows. If there are more than MAX_ROWS rows, existing instances are kept first, then other instances, both in the
    order `sort`. A group's cell is the maximum over its instances, or the mean over all their seconds.
    """
    limit = limits.of(metric)
    name_of = _naming(group, instances)
    living = [name for name, place in instances.items() if place.state is not InstanceState.GONE]
    rows: dict[str, dict[str, Place]] = {}
    for name in living:
        rows.setdefault(name_of(name), {})[name] = instances[name]
    lines = _Lines(where.columns, living, name_of, mean=aggregate == "mean")
    inside = (one for one in slices if 0 <= one.column < where.columns)
    for _, block in groupby(inside, key=lambda one: id(one.instances)):
        for name in lines.take(list(block)):
            rows.setdefault(name_of(name), {})[name] = instances.get(name, UNKNOWN)
    made = [_row(name, list(places.values()), lines.values(name), limit) for name, places in rows.items()]
    sort = sort if sort != "auto" else "pain" if len(made) > MANY_ROWS else "name"
    order = _order(sort, metric, limit)
    places_of = {row.instance: order(row) for row in made}
    kept = sorted(made, key=lambda row: (row.state is InstanceState.GONE, places_of[row.instance]))[:MAX_ROWS]
    top = max((max(present) for row in kept if (present := _present(row.values))), default=0.0)
    share = METRICS[metric] == "share"
    return Heatmap(
        pool=pool,
        metric=metric,
        unit=METRICS[metric],
        aggregate=aggregate,
        scale="absolute" if share or limit is not None else "relative",
        start=where.start,
        step_seconds=where.step,
        columns=where.columns,
        maximum=1.0 if share else max(top, limit or 0.0),
        limit=limit,
        group=group,
        sort=sort,
        rows_total=len(made),
        rows=sorted(kept, key=lambda row: places_of[row.instance]),
        migrations=_grouped(migrations, name_of, where) if group != "instance" else list(migrations),
        migrations_total=migrations_total,
    )


def _naming(group: str, instances: Mapping[str, Place]) -> Callable[[str], str]:
    """Return a function that returns the name of an instance's row: the instance's id, or its group."""
    match group:
        case "role":
            return lambda name: instances.get(name, UNKNOWN).role.value
        case "node":
            return lambda name: instances.get(name, UNKNOWN).node or WITHOUT_NODE
        case _:
            return lambda name: name


def _grouped(migrations: Sequence[HeatmapMigration], name_of: Callable[[str], str], where: Grid) -> list[HeatmapMigration]:
    """Return the moves between groups of instances, combined by column and pair of groups. Each result has the data of
    the newest move of its pair, and the number of moves.
    """
    found: dict[tuple[int, str, str], HeatmapMigration] = {}
    for move in migrations:
        source, target = name_of(move.source), name_of(move.target)
        if source == target:
            continue
        key = (int((move.at - where.start).total_seconds() // where.step), source, target)
        known = found.get(key)
        newest = move if known is None or move.at >= known.at else known
        found[key] = replace(newest, source=source, target=target, count=move.count + (known.count if known else 0))
    return sorted(found.values(), key=lambda move: (move.at, move.id))


class _Lines:
    """The cells of a heatmap's rows while columns are merged into the rows."""

    def __init__(self, columns: int, living: Iterable[str], name_of: Callable[[str], str], *, mean: bool) -> None:
        self._columns = columns
        self._name_of = name_of
        self._mean = mean
        self._met = set(living)
        self._cells: dict[str, list[float | None]] = {}
        self._seconds: dict[str, list[int]] = {}
        self._taken: set[int] = set()

    def take(self, block: Sequence[Slice]) -> list[str]:
        """Merge columns that have the same instances into the rows. Returns the names of the rows that have a value for
        the first time.
        """
        columns: dict[int, Slice] = {}
        for one in block:
            columns[one.column] = _both(columns[one.column], one) if one.column in columns else one
        instances = block[0].instances
        rows = [self._name_of(name) for name in instances]
        if len(set(rows)) == len(rows) and self._taken.isdisjoint(columns):
            self._put(rows, columns)
        else:
            for one in columns.values():
                self._merge(rows, one)
        self._taken.update(columns)
        new = [
            name
            for place, name in enumerate(instances)
            if name not in self._met and any(one.values[place] is not None for one in columns.values())
        ]
        self._met.update(new)
        return new

    def _put(self, rows: Sequence[str], columns: Mapping[int, Slice]) -> None:
        """Write the values of columns into the rows. None of these columns may have values yet."""
        order = sorted(columns)
        first, last = order[0], order[-1] + 1
        whole = last - first == len(order)
        lines: list[tuple[dict[str, list[Any]], Any, list[Sequence[Any]]]] = [(self._cells, None, [columns[at].values for at in order])]
        if self._mean:
            lines.append((self._seconds, 0, [columns[at].seconds for at in order]))
        for kept, blank, found in lines:
            for row, cells in zip(rows, zip(*found, strict=True), strict=True):
                line = kept.setdefault(row, [])
                if not line:
                    line += [blank] * self._columns
                if whole:
                    line[first:last] = cells
                else:
                    for at, cell in zip(order, cells, strict=True):
                        line[at] = cell

    def _merge(self, rows: Sequence[str], one: Slice) -> None:
        at = one.column
        if self._mean:
            for row, seconds in zip(rows, one.seconds, strict=True):
                self._seconds.setdefault(row, [0] * self._columns)[at] += seconds
        for row, value in zip(rows, one.values, strict=True):
            if value is None:
                continue
            line = self._cells.setdefault(row, [])
            if not line:
                line += [None] * self._columns
            known = line[at]
            line[at] = value if known is None else known + value if self._mean else max(known, value)

    def values(self, row: str) -> list[float | None]:
        """Return the finished cells of a row."""
        cells = self._cells.get(row) or [None] * self._columns
        seconds = self._seconds.get(row)
        if seconds is None:
            return cells
        return [None if value is None else value / count for value, count in zip(cells, seconds, strict=True)]


def _both(one: Slice, other: Slice) -> Slice:
    """Return the merged values of two parts of a column; both parts have the same instances."""
    pairs = zip(one.values, other.values, strict=True)
    if not one.seconds:
        largest = [a if b is None else b if a is None or b > a else a for a, b in pairs]
        return Slice(column=one.column, instances=one.instances, values=largest)
    sums = [a if b is None else b if a is None else a + b for a, b in pairs]
    seconds = list(map(add, one.seconds, other.seconds))
    return Slice(column=one.column, instances=one.instances, values=sums, seconds=seconds)


def _present(values: list[float | None]) -> list[float]:
    """Return the known values. If all are known, as in most rows of a large heatmap, this is the same list object."""
    return [value for value in values if value is not None] if None in values else cast(list[float], values)


def _row(name: str, places: Sequence[Place], values: list[float | None], limit: float | None) -> HeatmapRow:
    place = places[0] if len(places) == 1 else _most_of(places)
    return HeatmapRow(
        instance=name,
        state=place.state,
        role=place.role,
        node=place.node,
        members=len(places),
        values=values,
        breaches=[] if limit is None else _breaches(values, limit),
    )


def _breaches(values: list[float | None], limit: float) -> list[int]:
    if max(_present(values), default=0.0) <= limit:
        return []  # as of most rows, which are not gone through cell by cell
    return [column for column, value in enumerate(values) if value is not None and value > limit]


def _most_of(places: Sequence[Place]) -> Place:
    """Return a group's most frequent state and role, and the node if all members of the group share it."""
    nodes = {place.node for place in places}
    return Place(
        state=Counter(place.state for place in places).most_common(1)[0][0],
        role=Counter(place.role for place in places).most_common(1)[0][0],
        node=nodes.pop() if len(nodes) == 1 else None,
    )


_ROLES = tuple(Role)


def _order(sort: str, metric: str, limit: float | None) -> Callable[[HeatmapRow], tuple[float, float, str]]:
    """Return a sort key for rows. For `name`, rows are ordered by role and name. For `max`, the row with the largest
    value is first; for `latest`, the row with the largest newest value; for `pain`, the row with the largest excess.
    The excess is the sum of the parts by which values are above the limit. Rows without values are last.

    Rows of equal excess, and all rows of a metric without a limit, are ordered by their mean: the highest mean first,
    or the lowest mean first for a metric whose low values are bad.
    """

    def weight(row: HeatmapRow) -> tuple[float, float]:
        if sort == "name":
            return _ROLES.index(row.role), 0.0
        present = _present(row.values)
        if not present:
            return float("inf"), 0.0
        if sort != "pain":
            return -(max(present) if sort == "max" else present[-1]), 0.0
        mean = sum(present) / len(present)
        over = sum(value / limit - 1.0 for value in present if value > limit) if limit else 0.0
        return -over, mean if metric in GOOD_WHEN_HIGH else -mean

    return lambda row: (*weight(row), row.instance)
