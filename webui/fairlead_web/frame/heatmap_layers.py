"""The choices in the address of a heatmap page: the metrics whose heatmaps are shown one above the other, their common
rows, and the earlier time for a comparison.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

from fairlead_client.resources.heatmaps import GROUPS, METRICS, SORTS, Heatmap, HeatmapRow
from fairlead_web.frame.visits import Visit
from fairlead_web.heatmaps.cells import Earlier
from fairlead_web.text.time_ranges import stamp

USUAL = "pending_prefill_tokens"
MOST_COLUMNS, COLUMNS = 360, 120
MOST_LAYERS = 3
COMPARED = {"previous": "the same time before", "day": "a day before", "week": "a week before"}
"""Earlier times with which a heatmap's range can be compared, each with its text. A day and a week are multiples of
every column width, so the columns of both ranges match.
"""
_SECONDS = {"day": 86_400, "week": 7 * 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The choices in the address of a heatmap page. An unknown value in the address is replaced by the default, and a
    number of columns that is too large by the maximum.
    """

    metrics: tuple[str, ...]
    columns: int
    aggregate: str
    sort: str
    group: str
    compare: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The heatmap of one metric of the pool, and its earlier values if it is compared."""

    heatmap: Heatmap
    earlier: Earlier | None


def asked_of(visit: Visit) -> Asked:
    """Return the choices in the page's address: `metric` is the first metric, `stack` names up to two more, separated
    by commas.
    """
    first = visit.param("metric") or ""
    named = [first if first in METRICS else USUAL, *(visit.param("stack") or "").split(",")]
    metrics = tuple(dict.fromkeys(one for one in named if one in METRICS))[:MOST_LAYERS]
    columns, sort, group, compare = whole(visit.param("columns")), visit.param("sort"), visit.param("group"), visit.param("compare")
    return Asked(
        metrics=metrics,
        columns=min(MOST_COLUMNS, columns) if columns else COLUMNS,
        aggregate="mean" if visit.param("aggregate") == "mean" else "max",
        sort=sort if sort in SORTS else "auto",
        group=group if group in GROUPS else "instance",
        compare=compare if compare in COMPARED else None,
    )


async def layers(visit: Visit, asked: Asked) -> list[Layer]:
    """Return the heatmaps of all metrics that the address names. All heatmaps have the rows of the first heatmap, in
    the same order.
    """
    found = await asyncio.gather(*(fetch(visit, asked, metric) for metric in asked.metrics))
    first = found[0]
    ordered = [first, *(in_order(other, first) for other in found[1:])]
    return list(await asyncio.gather(*(_compared(visit, asked, heatmap) for heatmap in ordered)))


async def layer(visit: Visit, asked: Asked) -> Layer:
    """Return the heatmap of one metric. If the parameter `by` is another metric, the rows are ordered by that
    metric.
    """
    by = visit.param("by")
    if by in METRICS and by != asked.metrics[0] and asked.sort != "name":
        heatmap, first = await asyncio.gather(fetch(visit, asked, asked.metrics[0]), fetch(visit, asked, by))
        return await _compared(visit, asked, in_order(heatmap, first))
    return await _compared(visit, asked, await fetch(visit, asked, asked.metrics[0]))


async def fetch(visit: Visit, asked: Asked, metric: str) -> Heatmap:
    """Read the heatmap of one metric over the address's range, which is shifted into the past if the request compares
    with `earlier`.
    """
    back = timedelta(seconds=whole(visit.param("earlier")))
    start, end = visit.range.start_text, visit.range.end_text
    if back:
        start, end = stamp(visit.range.start - back), stamp(visit.range.end - back)
    return await visit.api.heatmap(
        visit.pool_key(),
        metric=metric,
        start=start,
        end=end,
        columns=asked.columns,
        aggregate=asked.aggregate,
        sort=asked.sort,
        group=asked.group,
    )


async def _compared(visit: Visit, asked: Asked, heatmap: Heatmap) -> Layer:
    if asked.compare is None or not heatmap.columns:
        return Layer(heatmap=heatmap, earlier=None)
    seconds = _SECONDS.get(asked.compare) or heatmap.columns * heatmap.step_seconds
    back = timedelta(seconds=seconds)
    start, length = heatmap.start - back, timedelta(seconds=heatmap.columns * heatmap.step_seconds)
    then = await visit.api.heatmap(
        visit.pool_key(),
        metric=heatmap.metric,
        start=stamp(start),
        end=stamp(start + length),
        columns=heatmap.columns,
        aggregate=asked.aggregate,
        sort="name",
        group=asked.group,
    )
    return Layer(heatmap=heatmap, earlier=Earlier(heatmap=in_order(then, heatmap), seconds=seconds))


def in_order(heatmap: Heatmap, first: Heatmap) -> Heatmap:
    """Return the heatmap with exactly the rows of `first`, in their order. A row that the heatmap does not have is
    without data.
    """
    rows = {row.instance: row for row in heatmap.rows}
    columns = len(heatmap.rows[0].values) if heatmap.rows else first.columns
    return replace(heatmap, columns=columns, rows=[rows.get(row.instance) or _without_data(row, columns) for row in first.rows])


def _without_data(row: HeatmapRow, columns: int) -> HeatmapRow:
    return replace(row, values=[None] * columns, breaches=[])


def whole(text: str | None) -> int:
    """Return a query parameter's text as an integer; 0 if it is missing or invalid."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else 0
