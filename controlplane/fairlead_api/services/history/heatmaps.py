"""Heatmaps: cuts a range into buckets, and turns cells into rows with a scale. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.tables import SloFacts
from fairlead_client.resources.heatmaps import METRICS, Heatmap, HeatmapMigration, HeatmapRow

MAX_ROWS = 512
MAX_COLUMNS = 360
KV_LIMIT = 0.9
"""Share of used KV cache above which engines start to preempt."""

UNKNOWN = (InstanceState.GONE, Role.BOTH)
"""State and role shown for an instance of which only cells are left."""

_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """`columns` buckets of `step` seconds from `start`, and the table of samples that is fine enough for them."""

    start: datetime
    step: int
    columns: int

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.step * self.columns)

    @property
    def source(self) -> str:
        """`1s`, `10s` or `1m`."""
        return "1s" if self.step < 10 else "10s" if self.step < 60 else "1m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An instance in one column: maximum, sum and number of its per-second values."""

    instance: str
    column: int
    maximum: float
    total: float
    count: int


def grid(start: datetime, end: datetime, columns: int) -> Grid:
    """The finest grid over [start, end) with at most `columns` columns; bounds are widened to whole steps."""
    for step in _STEPS:
        first = int(start.timestamp()) // step * step
        last = -(-int(end.timestamp()) // step) * step
        if (last - first) // step <= columns:
            return Grid(start=datetime.fromtimestamp(first, UTC), step=step, columns=max(1, (last - first) // step))
    raise InvalidInput("from", start.isoformat(), f"write a range of at most {_STEPS[-1] * columns // 86400} days")


def check(metric: str, columns: int, aggregate: str, sort: str) -> None:
    """Raises InvalidInput naming the query field."""
    choices = {"metric": (metric, tuple(METRICS)), "aggregate": (aggregate, ("max", "mean")), "sort": (sort, ("name", "max", "latest"))}
    for field, (value, known) in choices.items():
        if value not in known:
            raise InvalidInput(field, value, f"write one of {', '.join(known)}")
    if not 1 <= columns <= MAX_COLUMNS:
        raise InvalidInput("columns", columns, f"write 1 to {MAX_COLUMNS}")


def limit_of(metric: str, slo: SloFacts) -> float | None:
    """The absolute limit of a metric; None if it has none."""
    return {"ttft_p95": slo.ttft_seconds, "tpot_p95": slo.tpot_seconds, "kv_usage": KV_LIMIT}.get(metric)


def heatmap(
    pool: str,
    metric: str,
    aggregate: str,
    sort: str,
    where: Grid,
    cells: Iterable[Cell],
    instances: Mapping[str, tuple[InstanceState, Role]],
    slo: SloFacts,
    migrations: Sequence[HeatmapMigration],
    migrations_total: int,
) -> Heatmap:
    """Arranges cells as rows with a scale.

    `instances` gives state and role by id, for living instances and for all that have cells. At most MAX_ROWS
    rows, living instances first.
    """
    limit = limit_of(metric, slo)
    values: dict[str, list[float | None]] = {
        name: [None] * where.columns for name, (state, _) in instances.items() if state is not InstanceState.GONE
    }
    for cell in cells:
        if 0 <= cell.column < where.columns and cell.count:
            row = values.setdefault(cell.instance, [None] * where.columns)
            row[cell.column] = cell.maximum if aggregate == "max" else cell.total / cell.count
    names = sorted(values, key=lambda name: (instances.get(name, UNKNOWN)[0] is InstanceState.GONE, name))[:MAX_ROWS]
    rows = [_row(name, instances.get(name, UNKNOWN), values[name], limit) for name in names]
    top = max((value for row in rows for value in row.values if value is not None), default=0.0)
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
        rows=sorted(rows, key=_order(sort)),
        migrations=list(migrations),
        migrations_total=migrations_total,
    )


def _row(name: str, about: tuple[InstanceState, Role], values: list[float | None], limit: float | None) -> HeatmapRow:
    breaches = [] if limit is None else [column for column, value in enumerate(values) if value is not None and value > limit]
    return HeatmapRow(instance=name, state=about[0], role=about[1], values=values, breaches=breaches)


_ROLES = tuple(Role)


def _order(sort: str) -> Callable[[HeatmapRow], tuple[float, str]]:
    """By role and name, or largest maximum or newest value first (rows without values last)."""

    def weight(row: HeatmapRow) -> float:
        present = [value for value in row.values if value is not None]
        if sort == "name":
            return _ROLES.index(row.role)
        return -(max(present) if sort == "max" else present[-1]) if present else float("inf")

    return lambda row: (weight(row), row.instance)
