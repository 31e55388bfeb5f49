"""Traces in Mooncake's JSONL format. A line is one request with `timestamp` (ms), `input_length`, `output_length` and
`hash_ids`.

Two fields are optional: `session_id`, and `delay` (ms from the end of the session's previous turn), which allows
sessions to run in a closed loop. `hash_ids` are the ids of the prompt's blocks of 512 tokens; the last block is usually
partial. Equal ids mean that the prompts have the same text up to the end of that block. Files are read line by line.
Every error names file, line and field.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import orjson

from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.traces.detection import check_mooncake
from fairlead_simulator.traces.fields import Record
from fairlead_simulator.traces.sources import TraceFile, opened

BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request of a trace. Lengths are in tokens. `timestamp_ms` is in milliseconds after the beginning of the
    trace.
    """

    timestamp_ms: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]
    session: str | None = None
    """The row's `session_id`; None if the row has none."""
    pause_ms: float | None = None
    """The row's `delay`: the milliseconds from the end of the session's previous turn to the arrival of this turn; None
    if the row has no delay.
    """

    @property
    def full_blocks(self) -> int:
        """Number of whole blocks in the prompt. Engines can reuse only whole blocks."""
        return self.input_length // BLOCK_TOKENS


class PrefixRule:
    """The rule that equal block ids mean equal text from the beginning of the prompt. So the block before an id is the
    same in all prompts, or the id is the first in all of them. A trace that breaks this rule would show more reuse than
    any engine has.
    """

    def __init__(self) -> None:
        self._before: dict[int, int | None] = {}

    def check(self, row: TraceRow, file: str, number: int) -> None:
        """Raise TraceInvalid if the row breaks the rule, alone or together with earlier rows."""
        before = None
        for block in row.hash_ids:
            known = self._before.setdefault(block, before)
            if known != before:
                here, there = ("first" if one is None else f"after {one}" for one in (before, known))
                problem = (
                    f"id {block} comes {here} here, and {there} elsewhere; equal ids must mean equal text from the prompt's beginning on"
                )
                remedy = "if an id stands only for its block's own text, convert the file: fairlead traces convert --from aiperf"
                raise TraceInvalid(file, number, "hash_ids", f"{problem} ({remedy})")
            before = block


def read_trace(path: Path, limit: int | None = None) -> Iterator[TraceRow]:
    """Yield the rows of a file in order, at most `limit`. The path `-` stands for standard input.

    Raises TraceInvalid at the first row with an error, and also if the file is missing, has another tool's form, or has
    no rows.
    """
    with opened(path) as source:
        check_mooncake(source.begin, source.name)
        yield from islice(in_order(mooncake_rows(source), source.name), limit)


def mooncake_rows(source: TraceFile) -> Iterator[tuple[int, TraceRow]]:
    """Yield the rows of a file with their line numbers. Each row is checked on its own, and together with the earlier
    rows by `PrefixRule`.
    """
    rule = PrefixRule()
    for number, line in source:
        row = parse_row(line, source.name, number)
        rule.check(row, source.name, number)
        yield number, row


def in_order(rows: Iterable[tuple[int, TraceRow]], file: str) -> Iterator[TraceRow]:
    """Yield the rows without their line numbers. Raises TraceInvalid if a row is earlier than the row before it, or if
    there are no rows.
    """
    previous = float("-inf")
    for number, row in rows:
        if row.timestamp_ms < previous:
            problem = f"{row.timestamp_ms:.12g} is before the previous row's {previous:.12g}"
            raise TraceInvalid(file, number, "timestamp", f"{problem}; sort the rows by time (fairlead traces convert --sort does)")
        previous = row.timestamp_ms
        yield row
    if previous == float("-inf"):
        raise TraceInvalid(file, 0, "", "holds no rows; expected one request per line")


def write_trace(rows: Iterable[TraceRow], out: TextIO) -> int:
    """Write rows as JSONL, and return their number."""
    count = 0
    for row in rows:
        document: dict[str, Any] = {
            "timestamp": int(row.timestamp_ms) if float(row.timestamp_ms).is_integer() else row.timestamp_ms,
            "input_length": row.input_length,
            "output_length": row.output_length,
            "hash_ids": row.hash_ids,
        }
        if row.session is not None:
            document["session_id"] = row.session
        if row.pause_ms is not None:
            document["delay"] = row.pause_ms
        out.write(orjson.dumps(document).decode() + "\n")
        count += 1
    return count


def object_of(line: bytes, file: str, number: int) -> dict[str, Any]:
    """Return the JSON object in the line. Raises TraceInvalid if there is none."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        remedy = "write one JSON object per line (fairlead traces convert takes other forms)"
        raise TraceInvalid(file, number, "", f"is not JSON: {error}; {remedy}") from None
    if not isinstance(document, dict):
        raise TraceInvalid(file, number, "", f"must be a JSON object, not {type(document).__name__}")
    return document


def parse_row(line: bytes, file: str, number: int) -> TraceRow:
    """Return the row in one line. Raises TraceInvalid naming `file`, the line `number` and the field."""
    return row_of(Record(object_of(line, file, number), file, number), BLOCK_TOKENS)


def row_of(record: Record, block_tokens: int) -> TraceRow:
    """Return the row of a record whose blocks have `block_tokens` tokens. The block ids stay as they are. Raises
    TraceInvalid.
    """
    timestamp = record.time_ms("timestamp")
    input_length, output_length = record.tokens("input_length", 1), record.tokens("output_length", 0)
    ids = record.ids()
    expected = -(-input_length // block_tokens)
    if len(ids) != expected:
        problem = f"holds {len(ids)} ids; input_length {input_length} needs {expected} (one per {block_tokens} tokens)"
        raise record.refusal("hash_ids", problem + _other_size(len(ids), input_length))
    return TraceRow(
        timestamp_ms=timestamp,
        input_length=input_length,
        output_length=output_length,
        hash_ids=ids,
        session=record.name("session_id"),
        pause_ms=None if record.given("delay") is None else record.time_ms("delay"),
    )


def _other_size(ids: int, tokens: int) -> str:
    """Return a clause for an error message. If the number of ids fits another usual block size, the clause has the
    command that converts blocks of that size; otherwise it is "".
    """
    size = next((size for size in (16, 32, 64, 128, 256, 1024, 2048) if ids and -(-tokens // size) == ids), None)
    return "" if size is None else f"; blocks of {size} tokens are converted by fairlead traces convert --block-size {size}"
