"""Reads CSV files with Mooncake's fields, Azure's columns or BurstGPT's columns.

Azure's traces (https://github.com/Azure/AzurePublicDataset) have dates with times of day; the trace of 2024 adds the
offset from UTC. BurstGPT's traces (https://github.com/HPMLL/BurstGPT) have times in seconds, no tokens for failed
requests and, in the newer release, a session. Neither has the content of prompts, so no prompt is assumed to share text
with another one.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from fairlead_process.text_files import MOST_LINE_BYTES
from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.traces.blocks import BlockNames
from fairlead_simulator.traces.detection import FORMS, columns_of, form_of, separator_of
from fairlead_simulator.traces.fields import Cells, shown
from fairlead_simulator.traces.reading import NOTHING_OF_CONTENT, Notes, Reading
from fairlead_simulator.traces.rows import BLOCK_TOKENS, PrefixRule, TraceRow
from fairlead_simulator.traces.sources import TraceFile

COLUMNS = ("timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay")
MOST_COLUMNS = 1_000
_KNOWN = {
    "csv": {*COLUMNS},
    "azure": {*FORMS["azure"].columns},
    "burstgpt": {*FORMS["burstgpt"].columns, "Session ID", "Total tokens"},
}
_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


def read_csv(source: TraceFile, form: str, reading: Reading) -> Iterator[tuple[int, TraceRow]]:
    """Yield the rows of a file in one of the three CSV forms, with their line numbers."""
    reader = _Reader(form, reading.block_tokens, reading.notes)
    for cells in _cells(source, form, reading.notes):
        row = reader.row(cells)
        if row is not None:
            yield cells.line, row


def _cells(source: TraceFile, form: str, notes: Notes) -> Iterator[Cells]:
    first = next(iter(source), None)
    if first is None:
        return
    header = _text(first[1], source.name, first[0])
    names = columns_of(header.strip())
    wanted = FORMS[form].columns
    missing = [column for column in wanted if column not in names]
    if missing:
        other = form_of(source.begin)
        hint = "" if other is None else f"; the file is {FORMS[other].whose}: write --from {other}"
        problem = f"is not a column; the first line must name {', '.join(wanted)}"
        raise TraceInvalid(source.name, first[0], missing[0], problem + hint)
    if len(names) > MOST_COLUMNS:
        raise TraceInvalid(source.name, first[0], "", f"names {len(names):,} columns, and {MOST_COLUMNS:,} at most can be read")
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise TraceInvalid(source.name, first[0], twice, "is the name of two columns; rename one of them")
    notes.drop(name for name in names if name and name not in _KNOWN[form])
    csv.field_size_limit(MOST_LINE_BYTES)
    numbers: list[int] = []
    reader = csv.reader(_texts(source, numbers), delimiter=separator_of(header), strict=True)
    try:
        for cells in reader:
            if len(cells) > len(names) and any(cells[len(names) :]):
                problem = f"holds {len(cells)} cells, and the first line names {len(names)} columns; write a cell for each column"
                raise TraceInvalid(source.name, numbers[-1], "", problem)
            yield Cells(dict(zip(names, cells, strict=False)), source.name, numbers[-1])
    except csv.Error:
        raise TraceInvalid(source.name, numbers[-1], "", "is not CSV; close its quotes, and end its lines as usual") from None


def _texts(source: TraceFile, numbers: list[int]) -> Iterator[str]:
    """Yield the lines of the file as text. `numbers` is a list of one element, in which the number of the last yielded
    line is stored.
    """
    for number, line in source:
        numbers[:] = [number]
        yield _text(line, source.name, number)


def _text(line: bytes, file: str, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise TraceInvalid(file, number, "", "is not valid UTF-8; save the file as UTF-8") from None


class _Reader:
    """A converter from the cells of a CSV file to trace rows."""

    def __init__(self, form: str, block_tokens: int, notes: Notes) -> None:
        self._form = form
        self._block_tokens = block_tokens
        self._notes = notes
        self._when, self._input, self._output = FORMS[form].columns
        self._names = BlockNames()
        self._rule = PrefixRule()
        self._given: bool | None = None
        if form != "csv":
            notes.say(NOTHING_OF_CONTENT)

    def row(self, cells: Cells) -> TraceRow | None:
        """Return the trace row; None for a row without a prompt, such as a failed request."""
        at = (
            _instant_ms(cells, self._when) if self._form == "azure" else cells.time_ms(self._when, 1e3 if self._form == "burstgpt" else 1.0)
        )
        if self._form != "csv" and cells.given(self._input) == 0:
            self._notes.leave_out("that have no prompt, such as failed requests")
            return None
        length = cells.tokens(self._input, 1)
        if self._form == "azure" and self._given is None:
            self._notes.say(f"times are counted from the first row, at {cells.given(self._when)}")
        row = TraceRow(
            timestamp_ms=at,
            input_length=length,
            output_length=cells.tokens(self._output, 0),
            hash_ids=self._ids(cells, length),
            session=cells.name("Session ID" if self._form == "burstgpt" else "session_id"),
            pause_ms=None if cells.given("delay") is None else cells.time_ms("delay"),
        )
        self._rule.check(row, cells.file, cells.line)
        return row

    def _ids(self, cells: Cells, length: int) -> tuple[int, ...]:
        is_given = self._form == "csv" and cells.given("hash_ids") is not None
        if self._given is not None and is_given is not self._given:
            raise cells.refusal("hash_ids", "must be in all rows or in none: an id made up here could equal an id of another row")
        self._given = is_given
        if not is_given:
            return self._names.fresh(length)
        ids, needed = cells.ids(), -(-length // self._block_tokens)
        if len(ids) != needed:
            problem = f"holds {len(ids)} ids; input_length needs {needed} (one per {self._block_tokens} tokens); give --block-size"
            raise cells.refusal("hash_ids", problem)
        return ids if self._block_tokens == BLOCK_TOKENS else self._names.of_ids(ids, length, self._block_tokens)


def _instant_ms(cells: Cells, column: str) -> float:
    """Return the date and time in a column as milliseconds since 1970. A time without an offset counts as UTC."""
    text = cells.needed(column)
    found = _INSTANT.fullmatch(str(text))
    try:
        if found is None:
            raise ValueError
        day, time, fraction, offset = found.groups()
        seconds = (datetime.fromisoformat(f"{day} {time}").replace(tzinfo=_zone(offset)) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
        if seconds < 0:
            raise ValueError
    except ValueError:
        raise cells.refusal(
            column, f"{shown(text)} must be a time since 1970, as 2023-11-16 18:15:46.680590 or 2024-05-10 00:00:00+00:00"
        ) from None
    return seconds * 1e3 + int((fraction or "0").ljust(9, "0")) / 1e6


def _zone(offset: str | None) -> timezone:
    if offset is None or offset == "Z":
        return UTC
    digits = offset[1:].replace(":", "")
    apart = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-apart if offset[0] == "-" else apart)


def written(rows: Iterable[TraceRow]) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of each row for a CSV file, in the order of COLUMNS."""
    for row in rows:
        ids = " ".join(map(str, row.hash_ids))
        pause = "" if row.pause_ms is None else _number(row.pause_ms)
        yield _number(row.timestamp_ms), row.input_length, row.output_length, ids, row.session or "", pause


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
