"""Writes lists as files: CSV whose cells a spreadsheet cannot run as formulas, and exports of the API, which are passed
on as streams.
"""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import timedelta

from fairlead.spreadsheets import harmless
from fairlead_client.resources.heatmaps import Heatmap
from fairlead_web.heatmaps.cells import resolution_of, step_of
from fairlead_web.text.time_ranges import stamp

BOM = "\ufeff"
"""The byte order mark at the start of a CSV file. Without it, spreadsheets read UTF-8 in an old national encoding."""


def csv_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield CSV text line by line. Every cell is protected from being run as a formula."""
    for row in rows:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\r\n").writerow([harmless(cell) for cell in row])
        yield buffer.getvalue()


def csv_file(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a CSV file that spreadsheets recognize as UTF-8."""
    yield BOM
    yield from csv_lines(rows)


async def harmless_csv(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a CSV stream in which every cell is protected from being run as a formula. Keeps one record in memory at a
    time.

    A record ends at a newline outside quotes.
    """
    yield BOM.encode()
    rest = b""
    async for chunk in chunks:
        rest += chunk
        end = _last_record_end(rest)
        if end:
            yield _rewritten(rest[:end])
            rest = rest[end:]
    if rest:
        yield _rewritten(rest)


def _last_record_end(data: bytes) -> int:
    """Return the index in `data` after the last newline that ends a record; 0 if no record ends in `data`."""
    end = len(data)
    while (newline := data.rfind(b"\n", 0, end)) >= 0:
        if data.count(b'"', 0, newline) % 2 == 0:
            return newline + 1
        end = newline
    return 0


def _rewritten(data: bytes) -> bytes:
    return "".join(csv_lines(csv.reader(io.StringIO(data.decode(), newline="")))).encode()


def heatmap_rows(heatmap: Heatmap) -> Iterator[list[str]]:
    """Yield the heatmap as a table: one line per instance, and one column per bucket, whose heading is the bucket's
    start. An empty cell means no data.
    """
    starts = [stamp(heatmap.start + timedelta(seconds=column * heatmap.step_seconds)) for column in range(heatmap.columns)]
    yield ["instance", "state", "role", *starts]
    resolution = resolution_of(heatmap.unit)
    for row in heatmap.rows:
        steps = (step_of(value, heatmap.unit) for value in row.values)
        yield [row.instance, row.state, row.role, *("" if step is None else f"{step * resolution:.10g}" for step in steps)]
