"""`…/instances/{id}/metrics`: the metrics that the engine of an instance reports, under the engine's own names, with a
search.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from starlette.responses import Response

from fairlead.engine_metrics import GROUPS, MetricFamily, MetricSample
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.engine_metrics import EngineMetrics
from fairlead_client.resources.instances import InstanceDetail
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.addresses import instance_path

MOST_ROWS = 140
"""Maximum number of samples that are shown; the first samples are shown. A search finds the others."""
LIVE_SECONDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """A row with one sample of a metric. `family` is set only in the first row of the sample's family. The texts are
    the sample's value, mean, median and p95.
    """

    family: MetricFamily | None
    labels: str
    value: str
    mean: str
    p50: str
    p95: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetricsPage(Context):
    """The page of an engine's metrics. `metrics` is None if they cannot be read; `missing` then gives the reason."""

    template: ClassVar[str] = "pages/engine_metrics.html"
    shell: Shell
    detail: InstanceDetail
    metrics: EngineMetrics | None
    missing: str
    groups: list[tuple[str, list[MetricRow]]]
    left_out: int
    """Number of samples that are not shown."""
    search: str
    live_seconds: int


async def show(visit: Visit) -> Response:
    key, name, search = visit.pool_key(), str(visit.request.path_params["instance"]), visit.param("q") or ""
    pool = str(key)
    detail = await visit.api.instance(key, name)
    metrics, missing = await _metrics(visit, name, search)
    groups, left_out = rows_of(metrics.families if metrics else [])
    at = instance_path(pool, name)
    shell = await visit.shell(
        f"Engine metrics of {name}",
        "pools",
        crumbs=crumbs_below(
            pool, Crumb(words="Instances", path=f"/pools/{pool}/instances"), Crumb(words=name, path=at), Crumb(words="Engine metrics")
        ),
        pool=pool,
        tab="instances",
        about={"instance": name},
    )
    page = EngineMetricsPage(
        shell=shell,
        detail=detail,
        metrics=metrics,
        missing=missing,
        groups=groups,
        left_out=left_out,
        search=search,
        live_seconds=LIVE_SECONDS if metrics else 0,
    )
    return visit.page(page)


async def _metrics(visit: Visit, name: str, search: str) -> tuple[EngineMetrics | None, str]:
    """Return the metrics and no reason; or None and the reason why there are none."""
    try:
        return await visit.api.engine_metrics(visit.pool_key(), name, search or None), ""
    except ApiProblem as error:
        if error.problem.status not in {409, 422, 503}:
            raise
        return None, formats.told(error.problem.detail, error.problem.remedy)


def rows_of(families: list[MetricFamily]) -> tuple[list[tuple[str, list[MetricRow]]], int]:
    """Return the first MOST_ROWS rows, by group, and the number of samples that have no row."""
    rows = [(family.group, row) for family in families for row in _rows(family)]
    shown = {group: [row for of, row in rows[:MOST_ROWS] if of == group] for group in GROUPS}
    more = sum(one.samples_in_all for one in families) - min(len(rows), MOST_ROWS)
    return [(group, found) for group, found in shown.items() if found], more


def _rows(family: MetricFamily) -> list[MetricRow]:
    return [_row(family, sample, first=place == 0) for place, sample in enumerate(family.samples)]


def _row(family: MetricFamily, sample: MetricSample, *, first: bool) -> MetricRow:
    is_counted = family.kind in ("histogram", "summary")
    ends = [f"≤ {figure(family.name, end)}" if end is not None else formats.NONE for end in (sample.p50, sample.p95)]
    return MetricRow(
        family=family if first else None,
        labels=", ".join(f"{name}={value}" for name, value in sample.labels.items()),
        value=figure("" if is_counted else family.name, sample.value),
        mean=figure(family.name, sample.mean) if sample.mean is not None else formats.NONE,
        p50=ends[0],
        p95=ends[1],
    )


def figure(name: str, value: float | None) -> str:
    """Format a value by the unit in the metric's name: `…_seconds` as a time, `…_perc` as a share, integers as
    counts.
    """
    if value is None:
        return "not a number"
    if name.endswith("start_time_seconds") and 0 <= value < 4e9:
        return f"{formats.clock(datetime.fromtimestamp(value, UTC))} UTC"
    if name.endswith("_seconds"):
        return formats.seconds(value)
    if name.endswith("_perc"):
        return formats.share(value)
    return formats.count(value) if value == int(value) else formats.score(value)


ROUTES = Routes(pages={f"{POOL}/instances/{{instance}}/metrics": show})
