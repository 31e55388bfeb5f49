"""Encodes a heatmap's cells as bytes: palette levels for the picture, exact steps for the numbers.

Pure; shared by PNG, canvas, table and CSV.
"""

import json
import struct
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead_client.resources.heatmaps import Heatmap
from fairlead_web import formats
from fairlead_web.palette import cividis, encode_png, level_of

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
"""Up to this many cells the exact numbers are sent with the picture; for a larger one the page asks for one row at a
time.
"""
_RESOLUTION = {"tokens": 1.0, "requests": 0.1, "requests/s": 0.01, "share": 0.001, "seconds": 0.001}


def resolution_of(unit: str) -> float:
    """The smallest step in which a unit's numbers are shown; unknown units have hundredths."""
    return _RESOLUTION.get(unit, 0.01)


def step_of(value: float | None, unit: str) -> int | None:
    """The number shown, in steps of the unit's resolution."""
    return None if value is None else int(value / resolution_of(unit) + 0.5)


def text_of(value: float | None, unit: str) -> str:
    """The exact number with its unit, as table, CSV title and tooltip show it."""
    step = step_of(value, unit)
    if step is None:
        return "no data"
    match unit:
        case "tokens":
            return f"{step:,} tokens"
        case "share":
            return f"{step // 10}.{step % 10} %"
        case "seconds":
            return _seconds(step)
        case "requests":
            return f"{step // 10}" + (f".{step % 10}" if step % 10 else "") + (" request" if step == 10 else " requests")
        case _:
            return f"{step // 100}.{step % 100:02d} {unit}"


def bare_of(value: float | None, unit: str) -> str:
    """The number without its unit, for a table whose heading names it; an en dash without data."""
    if value is None:
        return formats.NONE
    text = text_of(value, unit)
    return text.split(" ")[0] if unit in ("tokens", "requests", "requests/s") else text


def _seconds(milliseconds: int) -> str:
    """A latency from whole milliseconds, written as `formats.seconds` does."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 9995:
        hundredths = (milliseconds + 5) // 10
        return f"{hundredths // 100}.{hundredths % 100:02d} s"
    tenths = (milliseconds + 50) // 100
    return f"{tenths // 10}.{tenths % 10} s"


def levels(heatmap: Heatmap) -> bytes:
    """One palette index per cell, row-major."""
    return bytes(level_of(value, heatmap.maximum, heatmap.limit) for row in heatmap.rows for value in row.values)


def picture(heatmap: Heatmap) -> bytes:
    """The heatmap as PNG, one pixel per cell; a single transparent pixel when it has no cells."""
    if not heatmap.rows or not heatmap.columns:
        return encode_png(1, 1, b"\xff", cividis())
    return encode_png(heatmap.columns, len(heatmap.rows), levels(heatmap), cividis())


def packed(heatmap: Heatmap) -> bytes:
    """The canvas's input: u32 header length, JSON header, levels (u8), zero padding to 4 bytes, exact
    steps (u32, all ones = none).
    """
    steps = [step_of(value, heatmap.unit) for row in heatmap.rows for value in row.values]
    exact = len(steps) <= EXACT_CELLS
    header = json.dumps(
        {
            "pool": heatmap.pool,
            "metric": heatmap.metric,
            "unit": heatmap.unit,
            "aggregate": heatmap.aggregate,
            "scale": heatmap.scale,
            "start": heatmap.start.timestamp(),
            "step": heatmap.step_seconds,
            "columns": heatmap.columns,
            "maximum": heatmap.maximum,
            "limit": heatmap.limit,
            "resolution": resolution_of(heatmap.unit),
            "rows": [{"id": row.instance, "state": row.state, "role": row.role, "breaches": row.breaches} for row in heatmap.rows],
            "migrations": [
                {
                    "id": move.id,
                    "at": move.at.timestamp(),
                    "source": move.source,
                    "target": move.target,
                    "trigger": move.trigger,
                    "count": move.count,
                }
                for move in heatmap.migrations
            ],
            "lut": cividis().hex(),
            "exact": exact,
        },
        separators=(",", ":"),
    ).encode()
    body = struct.pack("<I", len(header)) + header + levels(heatmap)
    body += b"\0" * (-len(body) % 4)
    if exact:
        body += struct.pack(f"<{len(steps)}I", *(0xFFFFFFFF if step is None else min(step, 0xFFFFFFFE) for step in steps))
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSize:
    """Size of one cell, in screen pixels, in the picture that works without scripts."""

    width: int
    height: int


def cell_size(columns: int, rows: int) -> CellSize:
    """Whole pixels per cell, so that a click's coordinates map back exactly; about 1,080 px wide, rows as tall
    as fits.
    """
    height = next((size for most, size in ((24, 24), (48, 16), (96, 10), (200, 6)) if rows <= most), 3)
    return CellSize(width=max(2, min(24, 1080 // max(1, columns))), height=height)


def cell_at(heatmap: Heatmap, x: int, y: int) -> tuple[str, datetime, datetime] | None:
    """Instance and time window under a click at (x, y) of the picture in `cell_size`; None outside."""
    size = cell_size(heatmap.columns, len(heatmap.rows))
    column, row = x // size.width, y // size.height
    if not (0 <= column < heatmap.columns and 0 <= row < len(heatmap.rows)):
        return None
    start = heatmap.start + timedelta(seconds=column * heatmap.step_seconds)
    return heatmap.rows[row].instance, start, start + timedelta(seconds=heatmap.step_seconds)


def summary(heatmap: Heatmap) -> str:
    """One sentence that describes the picture, for people who cannot see it."""
    peak: tuple[float, str, int] | None = None
    breaches = 0
    for row in heatmap.rows:
        breaches += len(row.breaches)
        for column, value in enumerate(row.values):
            if value is not None and (peak is None or value > peak[0]):
                peak = (value, row.instance, column)
    if peak is None:
        return "No load was recorded in this range."
    at = heatmap.start + timedelta(seconds=peak[2] * heatmap.step_seconds)
    text = f"Highest: {text_of(peak[0], heatmap.unit)} on {peak[1]} at {formats.clock(at)} UTC."
    if heatmap.limit is not None:
        text += (
            f" {breaches} of {sum(len(row.values) for row in heatmap.rows)} cells over the limit of {text_of(heatmap.limit, heatmap.unit)}."
        )
    return text
