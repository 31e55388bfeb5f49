"""Traces in Mooncake's JSONL format: one request per line with `timestamp` (ms), `input_length`, `output_length` and
`hash_ids`.

Two fields are optional: `session_id`, and `delay` (ms from the end of the session's previous turn), by which agents can
be run in a closed loop. `hash_ids` name the prompt's blocks of 512 tokens, the last one usually partial: equal ids mean
equal text up to and including that block. Files are read line by line; whatever is wrong is told with file, line and
field.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import orjson

from fairlead_simulator.errors import TraceInvalid

BLOCK_TOKENS = 512
LONGEST_TOKENS = 10_000_000
"""The longest prompt or answer that is believed; a longer one in a file is a mistake."""
LATEST_MS = 1e15
"""The latest time that is believed: large enough for milliseconds since 1970, too small for nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request. Lengths in tokens, time in milliseconds since the trace began."""

    timestamp_ms: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]
    session: str | None = None
    """`session_id`, where a trace has it."""
    pause_ms: float | None = None
    """`delay`, where a trace has it: from the end of the session's previous turn to this one's arrival."""

    @property
    def full_blocks(self) -> int:
        """How many of the ids name whole blocks, the only ones an engine can reuse."""
        return self.input_length // BLOCK_TOKENS


class PrefixRule:
    """Equal ids mean equal text from the beginning on, so an id always comes after the same id. What breaks this would
    look like reuse that no engine has.
    """

    def __init__(self) -> None:
        self._before: dict[int, int | None] = {}

    def check(self, ids: Iterable[int], file: str, number: int) -> None:
        """Raises TraceInvalid for a row that breaks it, or contradicts one before."""
        before = None
        for block in ids:
            known = self._before.setdefault(block, before)
            if known != before:
                here, there = ("first" if one is None else f"after {one}" for one in (before, known))
                problem = f"{block} comes {here}, and elsewhere {there}; equal ids must mean equal text from the beginning on"
                raise TraceInvalid(file, number, "hash_ids", problem)
            before = block


def read_trace(path: Path, limit: int | None = None) -> Iterator[TraceRow]:
    """The rows of a file in order, at most `limit`.

    Raises TraceInvalid when reached, also when the file is missing or has no rows.
    """
    return islice(_read_all(path), limit)


def write_trace(rows: Iterable[TraceRow], out: TextIO) -> int:
    """Write rows as JSONL; returns their number."""
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
        out.write(orjson.dumps(document).decode("ascii") + "\n")
        count += 1
    return count


def _read_all(path: Path) -> Iterator[TraceRow]:
    name = str(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise TraceInvalid(name, 0, "", f"cannot be read: {error.strerror}") from None
    with file:
        previous, rows, rule = float("-inf"), 0, PrefixRule()
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            row = parse_row(line, name, number)
            if row.timestamp_ms < previous:
                raise TraceInvalid(
                    name, number, "timestamp", f"{row.timestamp_ms:g} is before the previous row's {previous:g}; sort the rows by time"
                )
            previous = row.timestamp_ms
            rule.check(row.hash_ids, name, number)
            rows += 1
            yield row
        if rows == 0:
            raise TraceInvalid(name, 0, "", "holds no rows; expected one JSON object per line")


def parse_row(line: bytes, file: str, number: int) -> TraceRow:
    """One line. Raises TraceInvalid naming `file`, line `number` and the field."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise TraceInvalid(file, number, "", f"is not JSON: {error}; write one JSON object per line") from None
    if not isinstance(document, dict):
        raise TraceInvalid(file, number, "", f"must be a JSON object, not {type(document).__name__}")
    timestamp = _field(document, "timestamp", file, number)
    if not _is_time(timestamp):
        raise TraceInvalid(file, number, "timestamp", f"{shown(timestamp)} must be a number of milliseconds, from 0 to {LATEST_MS:g}")
    input_length = _length(document, "input_length", 1, file, number)
    output_length = _length(document, "output_length", 0, file, number)
    ids = _field(document, "hash_ids", file, number)
    if not isinstance(ids, list) or not all(type(block) is int for block in ids):
        raise TraceInvalid(file, number, "hash_ids", f"{shown(ids)} must be a list of whole numbers")
    expected = -(-input_length // BLOCK_TOKENS)
    if len(ids) != expected:
        raise TraceInvalid(
            file, number, "hash_ids", f"holds {len(ids)} ids; input_length {input_length} needs {expected} (one per {BLOCK_TOKENS} tokens)"
        )
    session = document.get("session_id")
    if session is not None and not isinstance(session, str | int):
        raise TraceInvalid(file, number, "session_id", f"{shown(session)} must be text or a whole number")
    pause = document.get("delay")
    if pause is not None and not _is_time(pause):
        raise TraceInvalid(file, number, "delay", f"{shown(pause)} must be a number of milliseconds, from 0 to {LATEST_MS:g}")
    return TraceRow(
        timestamp_ms=timestamp,
        input_length=input_length,
        output_length=output_length,
        hash_ids=tuple(ids),
        session=None if session is None else str(session),
        pause_ms=pause,
    )


def _field(document: dict[str, Any], name: str, file: str, number: int) -> Any:
    if name not in document:
        raise TraceInvalid(file, number, name, "is missing; a row needs timestamp, input_length, output_length and hash_ids")
    return document[name]


def _length(document: dict[str, Any], name: str, minimum: int, file: str, number: int) -> int:
    value = _field(document, name, file, number)
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= LONGEST_TOKENS:
        raise TraceInvalid(file, number, name, f"{shown(value)} must be a whole number of tokens, from {minimum} to {LONGEST_TOKENS:,}")
    return value


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LATEST_MS


def shown(value: Any) -> str:
    """A value of a file as a message shows it: in one short line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
