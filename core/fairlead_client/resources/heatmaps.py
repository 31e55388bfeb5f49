"""Heatmaps: one metric of all instances of a pool over time."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapRow:
    """The cells of an instance, oldest first; None = no data.

    If rows are grouped, `instance` is the group's name, `members` is the number of its instances, and `state` and
    `role` are the most frequent state and role of these instances. `node` is the node of the instance, None if unknown.
    `breaches` are the indexes of the columns in which an absolute limit was exceeded.
    """

    instance: str
    state: InstanceState
    role: Role
    node: str | None
    members: int
    values: list[float | None]
    breaches: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """One metric of a pool's instances over time.

    `metric` is one of METRICS. `group` is the subject of a row: an `instance`, or all instances of a `role` or `node`.
    Columns are `step_seconds` wide from `start`; a cell is the maximum (or mean) of the values in its seconds.
    `maximum` is the top of the colour scale: the largest value or, if that is larger, the limit; 1 for shares. `sort`
    is the order of the rows, never `auto`.

    `rows_total` counts all rows; `rows` holds fewer only if there are more than can be shown. `migrations_total` counts
    all migrations of the range. `migrations` leaves out migrations within one row. If there are more combinations of
    rows and columns than can be shown, it has only the most frequent ones.
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
    group: str
    rows_total: int
    rows: list[HeatmapRow]
    migrations: list["HeatmapMigration"]
    migrations_total: int
    sort: str = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapMigration:
    """The `count` migrations from one instance to another within one column.

    `id`, `at` and `trigger` belong to the newest of these migrations.
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
"""Metrics that a heatmap can show, each with its unit."""

GOOD_WHEN_HIGH = frozenset({"hit_rate"})
"""Metrics for which a low value is bad."""

GROUPS = ("instance", "role", "node")
"""The values of a heatmap's `group`: the subject of a row."""

SORTS = ("name", "max", "latest", "pain", "auto")
"""Orders of rows: by role and name, by largest value, by newest value, or by how far and how long a row exceeded the
limit (`pain`); `auto` is `pain` for more than 16 rows, else by role and name.
"""
