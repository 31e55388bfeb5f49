"""`…/series`: the numbers behind the charts of all pools, of a pool or of an instance, as a table, as files and as data
for the charts.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

import msgspec
from starlette.responses import Response, StreamingResponse

from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.series import SERIES_METRICS, Annotation, Annotations, Series, SeriesLine
from fairlead_web.frame import exports
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats

INSTANCE = f"{POOL}/instances/{{instance}}"
MOST_CELLS = 720
"""Maximum number of cells in the table, so that the page stays small."""
MOST_BUCKETS = 360
PERCENTILES = frozenset({"ttft_p50", "ttft_p95", "tpot_p95"})
"""Latency metrics computed from histograms. They are shown with only as many digits as the histograms' steps
justify.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charted:
    """The data that the charts of a page draw: lines and marked events."""

    series: Series
    annotations: Annotations


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPage(Context):
    template: ClassVar[str] = "pages/series.html"
    shell: Shell
    words: str
    heads: list[str]
    rows: list[tuple[datetime, list[str]]]
    annotations: list[Annotation]


async def show(visit: Visit) -> Response:
    """Show the table. If a requested metric does not exist for the subject of the page (all pools, a pool or an
    instance), the API's response says so.
    """
    asked = visit.param("metrics") or "requests,ttft_attainment"
    found = await _charted(visit, MOST_CELLS // max(2, 2 * len(asked.split(","))))
    pool, instance = found.series.pool, found.series.instance
    below = [] if instance is None else [Crumb(words=instance, path=visit.here.path.removesuffix("/series"))]
    crumbs = (Crumb(words="Numbers over time"),) if pool is None else crumbs_below(pool, *below, Crumb(words="Numbers over time"))
    shell = await visit.shell(
        "Numbers over time",
        "overview" if pool is None else "pools",
        crumbs=crumbs,
        pool=pool,
        tab="" if pool is None else "overview",
        ranged=True,
    )
    lines = found.series.lines
    metrics = dict.fromkeys(one.metric for one in lines)
    told = "; ".join(SERIES_METRICS[metric].words for metric in metrics if metric in SERIES_METRICS)
    return visit.page(
        SeriesPage(
            shell=shell,
            words=f"{instance or pool or 'All pools'}: {told}.",
            heads=[head(one) for one in lines],
            rows=rows(lines),
            annotations=found.annotations.items[::-1][:50],
        )
    )


async def data(visit: Visit) -> Response:
    """Respond with lines and marked events as JSON. For a pool that does not exist, there are no lines."""
    try:
        found = await _charted(visit, MOST_BUCKETS // 2)
    except ApiProblem as error:
        if error.problem.status != 404:
            raise
        start, end = visit.range.start, visit.range.end
        found = Charted(
            series=Series(pool=None, instance=None, start=start, end=end, lines=[]),
            annotations=Annotations(start=start, end=end, items=[], complete=True),
        )
    return Response(msgspec.json.encode(found), media_type="application/json")


async def as_csv(visit: Visit) -> Response:
    """Respond with the numbers as CSV, one row for each known number."""
    found = await _charted(visit, MOST_BUCKETS)
    headers = {"Content-Disposition": 'attachment; filename="series.csv"'}
    return StreamingResponse(exports.csv_file(csv_rows(found.series.lines)), media_type="text/csv; charset=utf-8", headers=headers)


def head(line: SeriesLine) -> str:
    """Return the heading of a line's column."""
    part = "" if line.part is None else f" {formats.words(line.part)}"
    return f"{formats.words(line.metric)}{part}, {line.unit}"


def rows(lines: Sequence[SeriesLine]) -> list[tuple[datetime, list[str]]]:
    """Return the table's rows, the newest first: one row for each time at which at least one line has a value."""
    by_line = [dict(_known(line)) for line in lines]
    times = sorted({at for known in by_line for at in known}, reverse=True)[: MOST_CELLS // max(1, len(lines))]
    return [(at, [number(known[at], line) if at in known else "" for known, line in zip(by_line, lines, strict=True)]) for at in times]


def csv_rows(lines: Sequence[SeriesLine]) -> Iterator[list[str]]:
    """Yield the header of the CSV file, then the rows of each line."""
    yield ["metric", "part", "unit", "start", "step_seconds", "value"]
    for line in lines:
        for at, value in _known(line):
            yield [line.metric, line.part or "", line.unit, at.isoformat().replace("+00:00", "Z"), str(line.step_seconds), f"{value:.6g}"]


def number(value: float, line: SeriesLine) -> str:
    """Format a number without its unit, except for shares and latencies."""
    if line.unit == "share":
        return formats.share(value)
    if line.unit == "seconds":
        return formats.latency(value) if line.metric in PERCENTILES else formats.seconds(value)
    return formats.count(value) if abs(value) >= 100 or value == int(value) else f"{value:.2f}"


def _known(line: SeriesLine) -> Iterator[tuple[datetime, float]]:
    for index, value in enumerate(line.values):
        if value is not None:
            yield line.start + timedelta(seconds=index * line.step_seconds), value


async def _charted(visit: Visit, buckets: int) -> Charted:
    """Return the data of the charts that the URL requests. The API refuses unknown metrics."""
    params = visit.request.path_params
    pool = PoolKey(namespace=params["namespace"], name=params["name"]) if "name" in params else None
    instance = params.get("instance")
    asked = visit.param("buckets") or ""
    start, end = visit.range.start_text, visit.range.end_text
    most = min(MOST_BUCKETS, max(2, int(asked))) if asked.isdigit() and len(asked) < 6 else max(2, min(MOST_BUCKETS, buckets))
    metrics = (visit.param("metrics") or "requests,ttft_attainment").split(",")
    series, annotations = await asyncio.gather(
        visit.api.series(metrics, pool, instance, start=start, end=end, buckets=most),
        visit.api.annotations(pool, instance, start=start, end=end),
    )
    return Charted(series=series, annotations=annotations)


ROUTES = Routes(
    pages={
        f"{of}/series{kind}": handler for of in ("", POOL, INSTANCE) for kind, handler in (("", show), (".json", data), (".csv", as_csv))
    }
)
