"""Encodes a heatmap's cells as bytes, and makes the heatmap's legend. A cell has a palette level, for the picture, and
an exact step, for its number: the number as a multiple of the smallest difference that is shown for its unit.

Pure; shared by PNG, canvas, table and CSV. The legend shows which colours stand for which numbers, at the ends of the
scale, within it, and at the limit.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from fairlead.amounts import amount
from fairlead_client.resources.heatmaps import Heatmap, HeatmapRow
from fairlead_web.heatmaps.palette import LIMIT_AT, LIMIT_LEVEL, change, change_level, cividis, encode_png, levels_of, limited
from fairlead_web.text import formats

METRIC_WORDS = {
    "pending_prefill_tokens": "Pending prefill",
    "running": "Running",
    "waiting": "Waiting",
    "in_flight": "In flight",
    "kv_usage": "KV cache usage",
    "ttft_p95": "TTFT p95",
    "tpot_p95": "TPOT p95",
    "hit_rate": "Prefix hit rate",
    "requests": "Requests",
    "failed": "Failed requests",
}
EXACT_CELLS = 20_000
"""Maximum number of cells of a heatmap whose exact numbers are sent together with the picture. For a larger heatmap,
the page requests exact numbers row by row.
"""
_RESOLUTION = {"tokens": 1.0, "requests": 0.1, "requests/s": 0.01, "share": 0.001, "seconds": 0.001}


def resolution_of(unit: str) -> float:
    """Return the smallest difference that is shown between numbers of a unit; hundredths for unknown units."""
    return _RESOLUTION.get(unit, 0.01)


def step_of(value: float | None, unit: str) -> int | None:
    """Return the number in the precision in which it is shown, as a multiple of the unit's resolution; None without
    data.
    """
    return None if value is None else int(value / resolution_of(unit) + 0.5)


def text_of(value: float | None, unit: str) -> str:
    """Return the exact number with its unit, as tables, CSV titles and tooltips show it."""
    step = step_of(value, unit)
    if step is None:
        return "no data"
    match unit:
        case "tokens":
            return amount(step, "token")
        case "share":
            return f"{step // 10}.{step % 10} %"
        case "seconds":
            return _seconds(step)
        case "requests":
            return f"{step // 10}" + (f".{step % 10}" if step % 10 else "") + (" request" if step == 10 else " requests")
        case _:
            return f"{step // 100}.{step % 100:02d} {unit}"


def bare_of(value: float | None, unit: str) -> str:
    """Return the number without its unit, for a table whose heading names the unit; an en dash without data."""
    if value is None:
        return formats.NONE
    text = text_of(value, unit)
    return text.split(" ")[0] if unit in ("tokens", "requests", "requests/s") else text


def _seconds(milliseconds: int) -> str:
    """Format a latency in whole milliseconds in the same way as `formats.seconds`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 9995:
        hundredths = (milliseconds + 5) // 10
        return f"{hundredths // 100}.{hundredths % 100:02d} s"
    tenths = (milliseconds + 50) // 100
    return f"{tenths // 10}.{tenths % 10} s"


def top_of(heatmap: Heatmap) -> float:
    """Return the value of the scale's last colour.

    If the metric has a limit, the scale ends at twice the limit or more, so that a cell slightly over the limit never
    looks like the worst one. The scale of shares ends at 1.
    """
    if heatmap.limit is None or heatmap.unit == "share":
        return heatmap.maximum
    return max(heatmap.maximum, 2 * heatmap.limit)


def colours_of(heatmap: Heatmap) -> bytes:
    """Return the palette of the heatmap's scale."""
    return cividis() if heatmap.limit is None else limited()


def levels(heatmap: Heatmap) -> bytes:
    """Return one palette index per cell of the heatmap, row by row."""
    top = top_of(heatmap)
    return levels_of([value for row in heatmap.rows for value in row.values], top, heatmap.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """The lowest and the highest value of a row; exists only for rows with data."""

    row: HeatmapRow
    lowest: float
    highest: float


def extremes_of(heatmap: Heatmap) -> list[Extremes]:
    """Return the lowest and highest value of each row. This should be called only once per heatmap, because a heatmap
    may have 184,000 cells.
    """
    measured = ((row, known) for row in heatmap.rows if (known := _known(row)))
    return [Extremes(row=row, lowest=min(known), highest=max(known)) for row, known in measured]


def _known(row: HeatmapRow) -> Sequence[float]:
    """Return the measured values of a row. If no value is missing, this is the row's own list object."""
    return [value for value in row.values if value is not None] if None in row.values else cast(list[float], row.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """An earlier heatmap for a comparison. Its grid begins `seconds` earlier and is otherwise the same; its rows are in
    the same order.
    """

    heatmap: Heatmap
    seconds: int

    def differences(self, now: Heatmap) -> list[float | None]:
        """Return, for each cell, row by row, the present value minus the earlier value; None if either is unknown."""
        return [
            None if one is None or other is None else one - other
            for row, before in zip(now.rows, self.heatmap.rows, strict=True)
            for one, other in zip(row.values, before.values, strict=True)
        ]


def most_change(differences: list[float | None]) -> float:
    """Return the largest change in either direction. The scale of changes extends to it on both sides."""
    return max((abs(value) for value in differences if value is not None), default=0.0)


def picture(heatmap: Heatmap, earlier: Earlier | None = None) -> bytes:
    """Return a PNG with one pixel per cell: the heatmap's values or, with `earlier`, the changes since the earlier
    heatmap. If there are no cells, the PNG is a single transparent pixel.
    """
    if not heatmap.rows or not heatmap.columns:
        return encode_png(1, 1, b"\xff", cividis())
    if earlier is None:
        return encode_png(heatmap.columns, len(heatmap.rows), levels(heatmap), colours_of(heatmap))
    return encode_png(heatmap.columns, len(heatmap.rows), _change_levels(heatmap, earlier)[0], change())


def _change_levels(heatmap: Heatmap, earlier: Earlier) -> tuple[bytes, float]:
    differences = earlier.differences(heatmap)
    most = most_change(differences)
    return bytes(change_level(value, most) for value in differences), most


def packed(heatmap: Heatmap, earlier: Earlier | None = None, words: str = "") -> bytes:
    """Return the binary data that the script draws on the canvas: u32 header length, JSON header, levels (u8), zero
    padding to 4 bytes, exact steps (u32, all ones = no data), and in a comparison the earlier steps.

    A level above the header's `limit_level` means a value over the limit. Moves are [id, seconds from the start, row of
    the source, row of the target, trigger, count]; moves of rows that are not shown are left out. `words` is the page's
    text about the heatmap, as HTML.
    """
    rows = {row.instance: index for index, row in enumerate(heatmap.rows)}
    shown, most = (levels(heatmap), None) if earlier is None else _change_levels(heatmap, earlier)
    exact = len(shown) <= EXACT_CELLS
    header = json.dumps(
        {
            "pool": heatmap.pool,
            "metric": heatmap.metric,
            "unit": heatmap.unit,
            "aggregate": heatmap.aggregate,
            "group": heatmap.group,
            "start": heatmap.start.timestamp(),
            "step": heatmap.step_seconds,
            "columns": heatmap.columns,
            "top": top_of(heatmap),
            "limit": heatmap.limit,
            "limit_level": LIMIT_LEVEL,
            "resolution": resolution_of(heatmap.unit),
            "earlier": None if earlier is None else earlier.seconds,
            "most_change": most,
            "words": words,
            "rows": [[row.instance, row.state, row.role, row.members] for row in heatmap.rows],
            "moves_total": heatmap.migrations_total,
            "moves": [
                [
                    move.id,
                    round(move.at.timestamp() - heatmap.start.timestamp(), 3),
                    rows[move.source],
                    rows[move.target],
                    move.trigger,
                    move.count,
                ]
                for move in heatmap.migrations
                if move.source in rows and move.target in rows
            ],
            "lut": (colours_of(heatmap) if earlier is None else change()).hex(),
            "exact": exact,
        },
        separators=(",", ":"),
    ).encode()
    body = struct.pack("<I", len(header)) + header + shown
    body += b"\0" * (-len(body) % 4)
    if exact:
        body += _steps(heatmap) + (_steps(earlier.heatmap) if earlier else b"")
    return body


def _steps(heatmap: Heatmap) -> bytes:
    steps = [step_of(value, heatmap.unit) for row in heatmap.rows for value in row.values]
    return struct.pack(f"<{len(steps)}I", *(0xFFFFFFFF if step is None else min(step, 0xFFFFFFFE) for step in steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSize:
    """Size of one cell in screen pixels, in the picture for browsers without scripts."""

    width: int
    height: int


def cell_size(columns: int, rows: int, stacked: int = 1) -> CellSize:
    """Return the size of a cell in whole pixels, so that a click's coordinates identify a cell exactly. The picture is
    about 900 px wide. The more heatmaps are `stacked`, the lower are the rows.
    """
    sizes = ((24, 24), (48, 16), (96, 10), (200, 6))
    height = next((size for most, size in sizes if rows * stacked <= most), 3)
    return CellSize(width=max(2, min(24, 900 // max(1, columns))), height=height)


def cell_at(heatmap: Heatmap, x: int, y: int, stacked: int = 1) -> tuple[str, datetime, datetime] | None:
    """Return the instance and the time window of the cell that was clicked at (x, y) of a picture with cells of
    `cell_size`; None for a click outside of the cells.
    """
    size = cell_size(heatmap.columns, len(heatmap.rows), stacked)
    column, row = x // size.width, y // size.height
    if not (0 <= column < heatmap.columns and 0 <= row < len(heatmap.rows)):
        return None
    start = heatmap.start + timedelta(seconds=column * heatmap.step_seconds)
    return heatmap.rows[row].instance, start, start + timedelta(seconds=heatmap.step_seconds)


LOW_HURTS = "hit_rate"
"""The metric for which low values are bad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The worst cell of a heatmap: its instance or group, its value and the time at which it begins."""

    row: HeatmapRow
    value: float
    start: datetime


def row_peaks(heatmap: Heatmap, extremes: Sequence[Extremes]) -> list[tuple[float, HeatmapRow]]:
    """Return the worst value of each row, with the row: the highest value, or the lowest if low values are bad."""
    return [(one.lowest if heatmap.metric == LOW_HURTS else one.highest, one.row) for one in extremes]


def peak_of(heatmap: Heatmap, extremes: Sequence[Extremes]) -> Peak | None:
    """Return the cell with the worst value; None without data. If several cells have this value, the newest of them is
    returned. The summary names this cell, and the panel beside the heatmap explains it.
    """
    if not extremes:
        return None
    peaks, worst = row_peaks(heatmap, extremes), min if heatmap.metric == LOW_HURTS else max
    value = worst(one for one, _ in peaks)
    newest = [(len(row.values) - 1 - row.values[::-1].index(value), row.instance, row) for one, row in peaks if one == value]
    column, _, row = max(newest, key=lambda found: found[:2])
    return Peak(row=row, value=value, start=heatmap.start + timedelta(seconds=column * heatmap.step_seconds))


def summary(heatmap: Heatmap, extremes: Sequence[Extremes]) -> str:
    """Return one sentence that describes the heatmap, for people who cannot see it."""
    peak = peak_of(heatmap, extremes)
    if peak is None:
        return "No load was recorded in this range."
    which = "Lowest" if heatmap.metric == LOW_HURTS else "Highest"
    text = f"{which}: {text_of(peak.value, heatmap.unit)} on {peak.row.instance} at {formats.clock(peak.start)} UTC."
    if heatmap.limit is not None:
        breaches = sum(len(row.breaches) for row in heatmap.rows)
        text += (
            f" {breaches:,} of {sum(len(_known(row)) for row in heatmap.rows):,} cells over the limit of "
            f"{text_of(heatmap.limit, heatmap.unit)}."
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A number on the legend's scale. `percent` is its position on the bar; `strong` is True for the limit."""

    percent: float
    words: str
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend:
    """The colour bar of a heatmap: the name of its palette, its marks, and a text about the quantity on its scale."""

    palette: str
    marks: tuple[Mark, ...]
    note: str
    alt: str


def legend_of(heatmap: Heatmap, earlier: Earlier | None = None) -> Legend:
    """Return the legend, with exact marks at both ends of the scale, between its ends, and at the limit. With
    `earlier`, it is the legend of the changes since the earlier heatmap.
    """
    if earlier is not None:
        most = most_change(earlier.differences(heatmap))
        words = text_of(most, heatmap.unit)
        return Legend(
            palette="change",
            marks=(Mark(percent=0, words=f"−{words}"), Mark(percent=50, words="same"), Mark(percent=100, words=f"+{words}")),
            note="blue is less than earlier, orange is more",
            alt="blue is less than earlier, grey the same, orange more",
        )
    unit, top, limit = heatmap.unit, top_of(heatmap), heatmap.limit
    if limit is None:
        return Legend(
            palette="plain",
            marks=tuple(Mark(percent=share * 100, words=short_of(top * share, unit)) for share in (0.0, 0.5, 1.0)),
            note="scale: absolute" if heatmap.scale == "absolute" else "scale: this range's maximum",
            alt="dark blue is little, bright yellow is much",
        )
    middle = limit + (top - limit) / 2
    return Legend(
        palette="limited",
        marks=(
            Mark(percent=0, words="0" if unit in _MEASURES else f"0 {unit}"),
            Mark(percent=LIMIT_AT * 50, words=_bare(limit / 2, unit)),
            Mark(percent=LIMIT_AT * 100, words=f"limit {_bare(limit, unit)}", strong=True),
            Mark(percent=(LIMIT_AT + 1) * 50, words=_bare(middle, unit)),
            Mark(percent=100, words=_bare(top, unit)),
        ),
        note="over the limit is orange to red" if any(row.breaches for row in heatmap.rows) else "nothing was over the limit",
        alt="dark blue is little, yellow is at the limit, orange to deep red is beyond it",
    )


_MEASURES = frozenset({"share", "seconds"})
"""Units that are written after each number of the legend. Other units are written only once."""


def _bare(value: float, unit: str) -> str:
    """Format a mark's number. The unit is left out if it is not in _MEASURES."""
    return short_of(value, unit) if unit in _MEASURES else _three(value)


def short_of(value: float, unit: str) -> str:
    """Format a mark's number briefly, with as many digits as fit: `12.5 k tokens`, `90 %`, `5 s`, `850 ms`."""
    match unit:
        case "tokens":
            return f"{_three(value)} token{'s' * (value != 1)}" if value else "0"
        case "share":
            return f"{value * 100:.3g} %"
        case "seconds":
            return "0" if not value else f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"
        case _:
            return f"{_three(value)} {unit}" if value else "0"


def _three(value: float) -> str:
    if value < 1000:
        return f"{value:.3g}"
    return f"{value / 1000:.3g} k" if value < 999_500 else f"{value / 1_000_000:.3g} M"
