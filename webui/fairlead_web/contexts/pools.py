"""Contexts of the fleet, pool, heatmap, instance and spec pages."""

from dataclasses import dataclass
from typing import ClassVar

from fairlead_client.resources.audit import AuditEntry
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.heatmaps import Heatmap
from fairlead_client.resources.instances import InstanceDetail, InstanceSummary
from fairlead_client.resources.moves import Migration
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.pools import PoolDetail, PoolEventItem, PoolRevision, PoolSummary
from fairlead_client.resources.sessions import SessionSummary
from fairlead_web.charts import Bar, Sparkline, Tick
from fairlead_web.heatmap_cells import CellSize
from fairlead_web.rendering import Context
from fairlead_web.shells import Shell


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all pools; shares are weighted by requests, None without traffic; `late` pools are out of their SLO."""

    desired: int
    serving: int
    requests_per_second: float
    rejections_per_second: float
    migrations_per_hour: float
    attainment: float | None
    hit_rate: float | None
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPage(Context):
    template: ClassVar[str] = "pages/fleet.html"
    shell: Shell
    pools: list[PoolSummary]
    totals: Totals
    migrations: list[Migration] | None
    changes: list[AuditEntry] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """One value of a facet with how many rows have it; `url` toggles it."""

    words: str
    count: int
    chosen: bool
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsPage(Context):
    template: ClassVar[str] = "pages/pools.html"
    shell: Shell
    pools: list[PoolSummary]
    listing: Listing[PoolSummary]
    facets: dict[str, list[Facet]]
    sort: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleForm:
    """The scale form as last submitted; `problem` is what was wrong with `field`, kept next to the input."""

    replicas: str
    least: int | None
    most: int | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPage(Context):
    template: ClassVar[str] = "pages/pool.html"
    shell: Shell
    detail: PoolDetail
    roles: list[tuple[str, int]]
    states: list[tuple[str, int]]
    routing: list[tuple[str, str]]
    mix: list[tuple[str, float]] | None
    migrations: list[Migration] | None
    events: list[PoolEventItem] | None
    scale: ScaleForm


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapTable:
    """A page of the heatmap as text: at most 50 rows x 24 columns; `columns` are (start, words)."""

    columns: list[str]
    rows: list[tuple[str, list[tuple[str, bool]]]]
    first_column: int
    first_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapPage(Context):
    template: ClassVar[str] = "pages/heatmap.html"
    shell: Shell
    pool: str
    heatmap: Heatmap
    metrics: list[tuple[str, str]]
    sort: str
    size: CellSize
    summary: str
    ranked: list[tuple[str, str, float, bool]]
    ticks: tuple[Tick, ...]
    table: HeatmapTable | None
    limit_words: str | None
    top_words: str
    two_slopes: bool
    arrows_shown: int
    arrows_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesPage(Context):
    template: ClassVar[str] = "pages/instances.html"
    shell: Shell
    pool: str
    instances: list[InstanceSummary]
    listing: Listing[InstanceSummary]
    sort: str
    states: list[Facet]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChart:
    """One metric of an instance over the range: newest and highest value as text, and the line."""

    metric: str
    words: str
    latest: str
    peak: str
    spark: Sparkline
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePage(Context):
    template: ClassVar[str] = "pages/instance.html"
    shell: Shell
    pool: str
    detail: InstanceDetail
    charts: list[MetricChart]
    states: list[Bar]
    state_ticks: tuple[str, ...]
    sessions: list[SessionSummary] | None
    arrived: list[Migration] | None
    left: list[Migration] | None
    decisions: list[RoutingDecision] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line of a unified diff; `kind` is same, added, removed or gap."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecPage(Context):
    template: ClassVar[str] = "pages/spec.html"
    shell: Shell
    revisions: list[PoolRevision]
    listing: Listing[PoolRevision]
    current: str
    before: PoolRevision | None
    after: PoolRevision | None
    diff: list[DiffLine]
