"""`/pools/{namespace}/{name}/heatmap`: load per instance over time.

Picture, canvas data, table, CSV and JSON all show the same response of the API.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse

from fairlead_client.resources.heatmaps import METRICS, Heatmap, HeatmapRow
from fairlead_web.drawing.charts import Tick, time_ticks
from fairlead_web.frame import exports
from fairlead_web.frame.heatmap_layers import COMPARED, MOST_LAYERS, Asked, Layer, asked_of, layer, layers, whole
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit, regions_of
from fairlead_web.heatmaps.cells import (
    LOW_HURTS,
    METRIC_WORDS,
    CellSize,
    Extremes,
    Legend,
    Peak,
    bare_of,
    cell_at,
    cell_size,
    extremes_of,
    legend_of,
    packed,
    peak_of,
    picture,
    row_peaks,
    summary,
    text_of,
)
from fairlead_web.heatmaps.palette import LEVELS, change, cividis, encode_png, limited
from fairlead_web.text.addresses import instance_path, with_query
from fairlead_web.text.time_ranges import TimeRange, stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapTable:
    """A part of the heatmap as a table of numbers: at most TABLE_ROWS by TABLE_COLUMNS. `left`, `right`, `up` and
    `down` are the first column or row of the adjacent parts, None at the edge of the heatmap.
    """

    columns: list[str]
    rows: list[tuple[HeatmapRow, list[tuple[str, bool]]]]
    left: int | None
    right: int | None
    up: int | None
    down: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One metric on the heatmap page: its heatmap, the size of a cell in browsers without scripts, its legend, and the
    addresses of its data.
    """

    heatmap: Heatmap
    words: str
    size: CellSize
    summary: str
    legend: Legend
    ticks: tuple[Tick, ...]
    source: str
    """Address of the binary data that the script draws on the canvas."""
    row: str
    """Address of the exact numbers of a single row."""
    named_each: int
    """Number of rows for each row name that is shown. In a large heatmap, rows are too low for a name in each row."""
    picture: str
    without: str | None
    """Address of the page without this metric; None for the first metric, which cannot be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapPage(Context):
    template: ClassVar[str] = "pages/heatmap.html"
    shell: Shell
    pool: str
    heatmap: Heatmap
    figures: list[Figure]
    metrics: list[tuple[str, str]]
    stackable: list[tuple[str, str]]
    """The metrics that can be added to the page: for each, the address of the page with it, and its name in words."""
    asked: Asked
    compared: str | None
    comparisons: list[tuple[str, str]]
    groups: list[tuple[str, str]]
    ranked: list[tuple[HeatmapRow, str, float]]
    low_hurts: bool
    worst: str | None
    """Link to the explanation of the worst cell; None if nothing was measured, or if the rows are groups of
    instances.
    """
    has_roles: bool
    """Whether the instances have different roles, so that each row shows its role."""
    table: HeatmapTable | None
    moves_shown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapWords(Context):
    """The texts of a heatmap whose data a script has just loaded: its scale and its summary. For the page's first
    heatmap, these are also the ranking of rows and the moves. If `has_labels` is True, the names of the rows are
    included, because they have changed.
    """

    template: ClassVar[str] = "pages/heatmap_words.html"
    heatmap: Heatmap
    figure: Figure
    window: TimeRange
    ranked: list[tuple[HeatmapRow, str, float]]
    has_roles: bool
    has_labels: bool
    is_first: bool
    lone: bool
    """Whether the page shows only this one heatmap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapFrame(Context):
    """The page's parts that live updates replace. A script updates the heatmap column by column, so these parts do not
    need its cells.
    """

    template: ClassVar[str] = "layouts/page.html"
    shell: Shell


TABLE_ROWS, TABLE_COLUMNS = 20, 12
DAY_SECONDS = 86400
NAMED_ROWS, NAMED_EACH = 256, 5
RANKED = 8
PALETTES = {"plain": cividis, "limited": limited, "change": change}


async def show(visit: Visit) -> Response:
    if visit.param("from") is None:
        visit = visit.since([(await visit.api.pool(visit.pool_key(), instances=False)).pool.created_at])
    asked = asked_of(visit)
    if "cell.x" in visit.here.params and "cell.y" in visit.here.params:
        return _clicked(visit, (await layer(visit, asked)).heatmap, len(asked.metrics))
    pool = str(visit.pool_key())
    frame = visit.shell(
        f"Heatmap of {pool}",
        "pools",
        crumbs=crumbs_below(pool, Crumb(words="Heatmap")),
        pool=pool,
        tab="heatmap",
        ranged=True,
        live="instances,migrations",
    )
    if regions_of(visit.request):
        return visit.page(HeatmapFrame(shell=await frame))
    drawn, shell = await asyncio.gather(layers(visit, asked), frame)
    heatmap, extremes = drawn[0].heatmap, [extremes_of(one.heatmap) for one in drawn]
    metrics = asked.metrics
    has_roles = several_roles(heatmap)
    return visit.page(
        HeatmapPage(
            shell=shell,
            pool=heatmap.pool,
            heatmap=heatmap,
            figures=[_figure(visit, one, asked, its) for one, its in zip(drawn, extremes, strict=True)],
            metrics=[(metric, METRIC_WORDS[metric]) for metric in METRICS],
            stackable=[
                (visit.here.url(stack=",".join([*metrics[1:], metric])), METRIC_WORDS[metric])
                for metric in METRICS
                if metric not in metrics and len(metrics) < MOST_LAYERS
            ],
            asked=asked,
            compared=COMPARED.get(asked.compare or ""),
            comparisons=list(COMPARED.items()),
            groups=[("instance", "instance"), *([("role", "role")] if has_roles or asked.group == "role" else []), ("node", "node")],
            ranked=ranked(heatmap, extremes[0]),
            low_hurts=heatmap.metric == LOW_HURTS,
            worst=_worst(visit, heatmap, peak_of(heatmap, extremes[0])),
            has_roles=has_roles and asked.group == "instance",
            table=table(heatmap, whole(visit.param("column")), whole(visit.param("row"))) if visit.param("view") == "table" else None,
            moves_shown=sum(move.count for move in heatmap.migrations),
        )
    )


def _figure(visit: Visit, drawn: Layer, asked: Asked, extremes: Sequence[Extremes]) -> Figure:
    heatmap, here = drawn.heatmap, visit.here
    end = heatmap.start + timedelta(seconds=heatmap.columns * heatmap.step_seconds)
    size = cell_size(heatmap.columns, len(heatmap.rows), len(asked.metrics))
    first = heatmap.metric == asked.metrics[0]
    params = {name: value for name, value in here.params.items() if name not in {"stack", "view", "column", "row"}}
    params |= {"metric": heatmap.metric} | ({} if first else {"by": asked.metrics[0]})
    params |= {"stacked": "yes"} if len(asked.metrics) > 1 else {}
    alone = replace(here, params=params)
    return Figure(
        heatmap=heatmap,
        words=METRIC_WORDS[heatmap.metric],
        size=size,
        summary=summary(heatmap, extremes),
        legend=legend_of(heatmap, drawn.earlier),
        ticks=time_ticks(heatmap.start, end, heatmap.columns * size.width) if heatmap.columns else (),
        source=alone.export("bin"),
        row=alone.export("json"),
        named_each=1 if len(heatmap.rows) <= NAMED_ROWS else NAMED_EACH,
        picture=alone.export("png"),
        without=None if first else here.url(stack=",".join(one for one in asked.metrics[1:] if one != heatmap.metric) or None),
    )


def _worst(visit: Visit, heatmap: Heatmap, peak: Peak | None) -> str | None:
    """Return a link to the explanation of the worst cell, with the heatmap's limit. None without data, or if the rows
    are groups of instances.
    """
    if heatmap.group != "instance" or peak is None:
        return None
    end = peak.start + timedelta(seconds=heatmap.step_seconds)
    query = {"metric": heatmap.metric, "from": stamp(peak.start), "to": stamp(end)}
    query |= {} if heatmap.limit is None else {"limit": str(heatmap.limit)}
    return visit.link(with_query(f"{instance_path(heatmap.pool, peak.row.instance)}/explanation", query))


async def png(visit: Visit) -> Response:
    """Respond with the heatmap as a PNG that has one pixel per cell."""
    drawn = await layer(visit, asked_of(visit))
    body = picture(drawn.heatmap, drawn.earlier)
    etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if visit.request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="image/png", headers=headers)


async def palette(visit: Visit) -> Response:
    """Respond with the bar of a legend as a PNG: all levels of a palette side by side."""
    kind = visit.request.path_params["kind"]
    if kind not in PALETTES:
        raise HTTPException(404)
    body = encode_png(LEVELS, 1, bytes(range(LEVELS)), PALETTES[kind]())
    return Response(body, media_type="image/png", headers={"Cache-Control": "private, max-age=86400"})


async def binary(visit: Visit) -> Response:
    """Respond with the binary data that the script draws on the canvas (`heatmaps.cells.packed`). The parameter `words`
    adds the page's text about the heatmap, and `words=rows` also the names of its rows.
    """
    asked = asked_of(visit)
    drawn = await layer(visit, asked)
    words = visit.site.renderer.render(_words(visit, drawn, asked)) if visit.param("words") else ""
    return Response(packed(drawn.heatmap, drawn.earlier, words), media_type="application/octet-stream")


def _words(visit: Visit, drawn: Layer, asked: Asked) -> HeatmapWords:
    heatmap, extremes = drawn.heatmap, extremes_of(drawn.heatmap)
    return HeatmapWords(
        heatmap=heatmap,
        figure=_figure(visit, drawn, asked, extremes),
        window=visit.range,
        ranked=ranked(heatmap, extremes),
        has_roles=asked.group == "instance" and several_roles(heatmap),
        has_labels=visit.param("words") == "rows",
        is_first=visit.param("by") is None,
        lone=visit.param("stacked") is None,
    )


async def as_json(visit: Visit) -> Response:
    """Respond with the heatmap as the API returns it. The parameter `instance` limits it to one row; the page uses that
    for exact numbers of large heatmaps.
    """
    heatmap = (await layer(visit, _alone(visit))).heatmap
    if wanted := visit.param("instance"):
        heatmap = _only(heatmap, wanted)
    return Response(msgspec.json.encode(heatmap), media_type="application/json")


async def as_csv(visit: Visit) -> Response:
    """Respond with the heatmap's numbers as CSV."""
    heatmap = (await layer(visit, _alone(visit))).heatmap
    name = f"heatmap-{heatmap.pool.replace('/', '-')}-{heatmap.metric}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(exports.csv_file(exports.heatmap_rows(heatmap)), media_type="text/csv; charset=utf-8", headers=headers)


def _alone(visit: Visit) -> Asked:
    """Return the choices of the address without its comparison, because files contain only the numbers of the range
    itself.
    """
    return replace(asked_of(visit), compare=None)


def several_roles(heatmap: Heatmap) -> bool:
    """Return whether the rows are of instances with different roles."""
    return len({row.role for row in heatmap.rows}) > 1


def ranked(heatmap: Heatmap, extremes: Sequence[Extremes]) -> list[tuple[HeatmapRow, str, float]]:
    """Return the worst rows, each with its worst value as text and the length of its bar (0-100). If low values are
    bad, the rows with the lowest values are the worst.
    """
    low, peaks = heatmap.metric == LOW_HURTS, row_peaks(heatmap, extremes)
    peaks.sort(key=lambda item: (item[0] if low else -item[0], item[1].instance))
    top = heatmap.maximum if low else peaks[0][0] if peaks else 0.0
    top = top if top > 0 else 1.0
    return [(row, text_of(peak, heatmap.unit), round(peak / top * 100, 1)) for peak, row in peaks[:RANKED]]


def table(heatmap: Heatmap, first_column: int, first_row: int) -> HeatmapTable:
    """Return the part of the heatmap's numbers that begins at this column and row, as a table."""
    last = max(0, heatmap.columns - TABLE_COLUMNS)
    left, top = min(first_column - 1, last) if first_column else last, max(0, first_row - 1)
    rows = heatmap.rows[top : top + TABLE_ROWS]
    right = min(heatmap.columns, left + TABLE_COLUMNS)
    within_a_day = (right - left) * heatmap.step_seconds <= DAY_SECONDS
    starts = [heatmap.start + timedelta(seconds=column * heatmap.step_seconds) for column in range(left, right)]
    return HeatmapTable(
        columns=[f"{start:%H:%M:%S}" if within_a_day else f"{start:%m-%d %H:%M}" for start in starts],
        rows=[
            (row, [(bare_of(row.values[column], heatmap.unit), column in row.breaches) for column in range(left, right)]) for row in rows
        ],
        left=max(1, left + 1 - TABLE_COLUMNS) if left else None,
        right=right + 1 if right < heatmap.columns else None,
        up=max(1, top + 1 - TABLE_ROWS) if top else None,
        down=top + len(rows) + 1 if top + len(rows) < len(heatmap.rows) else None,
    )


def _clicked(visit: Visit, heatmap: Heatmap, stacked: int) -> Response:
    """Respond to a click on the picture in a browser without scripts: redirect to the page of the clicked instance,
    over the time window of the clicked cell.
    """
    cell = cell_at(heatmap, whole(visit.param("cell.x")), whole(visit.param("cell.y")), stacked)
    if cell is None or heatmap.group != "instance":
        rest = {name: value for name, value in visit.here.params.items() if not name.startswith("cell.")}
        return RedirectResponse(visit.link(with_query(visit.here.path, rest)), 303)
    instance, start, end = cell
    path = with_query(instance_path(heatmap.pool, instance), {"from": stamp(start), "to": stamp(end)})
    return RedirectResponse(visit.link(path), 303)


def _only(heatmap: Heatmap, instance: str) -> Heatmap:
    rows = [row for row in heatmap.rows if row.instance == instance]
    return replace(heatmap, rows=rows, migrations=[move for move in heatmap.migrations if instance in (move.source, move.target)])


ROUTES = Routes(
    pages={
        f"{POOL}/heatmap": show,
        f"{POOL}/heatmap.png": png,
        f"{POOL}/heatmap.bin": binary,
        f"{POOL}/heatmap.json": as_json,
        f"{POOL}/heatmap.csv": as_csv,
        "/-/palettes/{kind}.png": palette,
    },
)
