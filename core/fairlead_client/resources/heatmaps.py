"""Heatmaps: one metric of all instances of a pool over time."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapRow:
    """One instance's cells, oldest first; None = no data.

    `breaches` are the column indexes where an absolute limit was broken.
    """

    instance: str
    state: InstanceState
    role: Role
    values: list[float | None]
    breaches: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """One metric of a pool's instances over time.

    `metric` is one of METRICS. Columns are `step_seconds` wide from `start`; a cell is the maximum (or mean) of its
    seconds. `maximum` is the top of the scale: the data's maximum, at least the limit; 1 for shares.
    `migrations_total` counts all migrations of the range. `migrations` holds fewer only where there are more pairs of
    instances and columns than can be shown; then the busiest are kept.
    """

    pool: str
    metric: str
    unit: str
    aggregate: str
    scale: str
    start: datetime
    step_seconds: int
    columns: int
    maximum: float
    limit: float | None
    rows: list[HeatmapRow]
    migrations: list["HeatmapMigration"]
    migrations_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapMigration:
    """The `count` migrations from one instance to another within one column.

    `id`, `at` and `trigger` are those of the newest one.
    """

    id: str
    at: datetime
    source: str
    target: str
    trigger: BindingReason
    count: int


METRICS = {
    "pending_prefill_tokens": "tokens",
    "running": "requests",
    "waiting": "requests",
    "in_flight": "requests",
    "kv_usage": "share",
    "ttft_p95": "seconds",
    "tpot_p95": "seconds",
    "hit_rate": "share",
    "requests": "requests/s",
    "failed": "requests/s",
}
"""Metrics a heatmap can show, with their unit."""
