"""`/pools/{namespace}/{name}/heatmap`: load per instance over time.

Picture, canvas data, table, CSV and JSON all show the same answer.
"""

import hashlib
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import msgspec
from starlette.responses import RedirectResponse, Response, StreamingResponse

from fairlead_client.resources.heatmaps import METRICS, Heatmap, HeatmapRow
from fairlead_web import exports
from fairlead_web.addresses import instance_path, with_query
from fairlead_web.charts import Tick, time_ticks
from fairlead_web.heatmap_cells import METRIC_WORDS, CellSize, bare_of, cell_at, cell_size, packed, picture, summary, text_of
from fairlead_web.palette import LEVELS, cividis, encode_png
from fairlead_web.rendering import Context
from fairlead_web.routes import POOL, Routes
from fairlead_web.shells import Crumb, Shell, crumbs_below
from fairlead_web.time_ranges import stamp
from fairlead_web.visits import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapTable:
    """A page of the heatmap as text: at most 50 rows x 24 columns; `columns` are (start, words)."""

    columns: list[str]
    rows: list[tuple[HeatmapRow, list[tuple[str, bool]]]]
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
    ranked: list[tuple[HeatmapRow, str, float]]
    has_roles: bool
    """The instances have different roles, so each row says its own."""
    ticks: tuple[Tick, ...]
    table: HeatmapTable | None
    limit_words: str | None
    top_words: str
    two_slopes: bool
    arrows_shown: int
    arrows_on: bool


SORTS = ("name", "max", "latest")
TABLE_ROWS, TABLE_COLUMNS = 50, 24
MOST_COLUMNS, RANKED = 360, 8
CLEAR_ARROWS = 60
"""With more arrows than this, the cells beneath are hidden; so then arrows are off by default."""


async def show(visit: Visit) -> Response:
    if visit.param("from") is None:
        visit = visit.since([(await visit.api.pool(visit.pool_key())).pool.created_at])
    heatmap = await fetch(visit)
    if "cell.x" in visit.here.params and "cell.y" in visit.here.params:
        return _clicked(visit, heatmap)
    shell = await visit.shell(
        f"Heatmap of {heatmap.pool}",
        "pools",
        crumbs=crumbs_below(heatmap.pool, Crumb(words="Heatmap")),
        pool=heatmap.pool,
        tab="heatmap",
        ranged=True,
        live="instances,migrations",
    )
    end = heatmap.start + timedelta(seconds=heatmap.columns * heatmap.step_seconds)
    size = cell_size(heatmap.columns, len(heatmap.rows))
    return visit.page(
        HeatmapPage(
            shell=shell,
            pool=heatmap.pool,
            heatmap=heatmap,
            metrics=[(metric, METRIC_WORDS[metric]) for metric in METRICS],
            sort=_sort(visit),
            size=size,
            summary=summary(heatmap),
            ranked=ranked(heatmap),
            has_roles=len({row.role for row in heatmap.rows}) > 1,
            ticks=time_ticks(heatmap.start, end, heatmap.columns * size.width) if heatmap.columns else (),
            table=table(heatmap, _whole(visit.param("column")), _whole(visit.param("row"))) if visit.param("view") == "table" else None,
            limit_words=None if heatmap.limit is None else text_of(heatmap.limit, heatmap.unit),
            top_words=text_of(heatmap.maximum, heatmap.unit),
            two_slopes=heatmap.limit is not None and 0 < heatmap.limit < heatmap.maximum,
            arrows_shown=sum(move.count for move in heatmap.migrations),
            arrows_on=len(heatmap.migrations) <= CLEAR_ARROWS,
        )
    )


async def png(visit: Visit) -> Response:
    """The picture, one pixel per cell."""
    body = picture(await fetch(visit))
    etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if visit.request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="image/png", headers=headers)


async def palette(visit: Visit) -> Response:
    """The legend: all levels in a row."""
    body = encode_png(LEVELS, 1, bytes(range(LEVELS)), cividis())
    return Response(body, media_type="image/png", headers={"Cache-Control": "private, max-age=86400"})


async def binary(visit: Visit) -> Response:
    """The canvas's input; see `heatmap_cells.packed`."""
    return Response(packed(await fetch(visit)), media_type="application/octet-stream")


async def as_json(visit: Visit) -> Response:
    """The API's answer; `instance` narrows it to one row, for exact numbers of big maps."""
    heatmap = await fetch(visit)
    if wanted := visit.param("instance"):
        heatmap = _only(heatmap, wanted)
    return Response(msgspec.json.encode(heatmap), media_type="application/json")


async def as_csv(visit: Visit) -> Response:
    """The picture as numbers."""
    heatmap = await fetch(visit)
    name = f"heatmap-{heatmap.pool.replace('/', '-')}-{heatmap.metric}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(exports.csv_lines(exports.heatmap_rows(heatmap)), media_type="text/csv; charset=utf-8", headers=headers)


async def fetch(visit: Visit) -> Heatmap:
    """The heatmap the URL asks for; unknown metrics and sorts fall back, the API checks the rest."""
    metric = visit.param("metric") or ""
    columns = _whole(visit.param("columns"))
    return await visit.api.heatmap(
        visit.pool_key(),
        metric=metric if metric in METRICS else "pending_prefill_tokens",
        start=visit.range.start_text,
        end=visit.range.end_text,
        columns=min(MOST_COLUMNS, columns) if columns else 120,
        aggregate="mean" if visit.param("aggregate") == "mean" else "max",
        sort=_sort(visit),
    )


def ranked(heatmap: Heatmap) -> list[tuple[HeatmapRow, str, float]]:
    """Hottest instances: row, peak as text, bar length 0-100."""
    peaks = []
    for row in heatmap.rows:
        known = [value for value in row.values if value is not None]
        if known:
            peaks.append((max(known), row))
    peaks.sort(key=lambda item: (-item[0], item[1].instance))
    top = peaks[0][0] if peaks and peaks[0][0] > 0 else 1.0
    return [(row, text_of(peak, heatmap.unit), round(peak / top * 100, 1)) for peak, row in peaks[:RANKED]]


def table(heatmap: Heatmap, first_column: int, first_row: int) -> HeatmapTable:
    """A page of the numbers; by default the newest columns and the first rows."""
    last = max(0, heatmap.columns - TABLE_COLUMNS)
    left = min(first_column - 1, last) if first_column else last
    rows = heatmap.rows[max(0, first_row - 1) : max(0, first_row - 1) + TABLE_ROWS]
    right = min(heatmap.columns, left + TABLE_COLUMNS)
    return HeatmapTable(
        columns=[f"{heatmap.start + timedelta(seconds=column * heatmap.step_seconds):%H:%M:%S}" for column in range(left, right)],
        rows=[
            (row, [(bare_of(row.values[column], heatmap.unit), column in row.breaches) for column in range(left, right)]) for row in rows
        ],
        first_column=left + 1,
        first_row=max(0, first_row - 1) + 1,
    )


def _clicked(visit: Visit, heatmap: Heatmap) -> Response:
    """Answers a click on the picture without scripts: redirects to the instance, over the time window of the cell."""
    cell = cell_at(heatmap, _whole(visit.param("cell.x")), _whole(visit.param("cell.y")))
    if cell is None:
        rest = {name: value for name, value in visit.here.params.items() if not name.startswith("cell.")}
        return RedirectResponse(visit.link(with_query(visit.here.path, rest)), 303)
    instance, start, end = cell
    path = with_query(instance_path(heatmap.pool, instance), {"from": stamp(start), "to": stamp(end)})
    return RedirectResponse(visit.link(path), 303)


def _only(heatmap: Heatmap, instance: str) -> Heatmap:
    rows = [row for row in heatmap.rows if row.instance == instance]
    return replace(heatmap, rows=rows, migrations=[move for move in heatmap.migrations if instance in (move.source, move.target)])


def _sort(visit: Visit) -> str:
    asked = visit.param("sort") or "name"
    return asked if asked in SORTS else "name"


def _whole(text: str | None) -> int:
    """A whole number of a query, 0 when missing or not one."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else 0


ROUTES = Routes(
    pages={
        f"{POOL}/heatmap": show,
        f"{POOL}/heatmap.png": png,
        f"{POOL}/heatmap.bin": binary,
        f"{POOL}/heatmap.json": as_json,
        f"{POOL}/heatmap.csv": as_csv,
        "/-/palette.png": palette,
    },
)
