"""Traces from and to other forms: equal stamps spread, rates changed, long rows dropped; CSV, and BurstGPT-like columns
read.

CSV columns are those of the JSONL format (`timestamp,input_length,output_length,hash_ids,session_id,delay`), the ids
separated by spaces. BurstGPT's (`Timestamp` in seconds, `Request tokens`, `Response tokens`) say nothing of content, so
every prompt becomes a new one.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from random import Random
from typing import TextIO

from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.traces.arrivals import arrival_times
from fairlead_simulator.traces.rows import BLOCK_TOKENS, LATEST_MS, LONGEST_TOKENS, PrefixRule, TraceRow, read_trace, shown, write_trace

FORMS = ("jsonl", "csv", "burstgpt")
_LEAST_ID, _GREATEST_ID = -(2**63), 2**64 - 1
"""What JSON of this format can be written with, and a block id be in a run."""
CSV_COLUMNS = ("timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChanges:
    """What a conversion changes. `spread`: rows of equal stamps come evenly, at random, or stay together."""

    spread: str = "none"
    requests_per_second: float | None = None
    speed: float = 1.0
    max_input: int | None = None
    """Drop rows this long or longer."""
    requests: int | None = None
    """Keep only so many of the rows that are left."""
    seed: int = 0


def convert(rows: Iterable[TraceRow], changes: TraceChanges) -> list[TraceRow]:
    """The changed rows in order of time, the first at 0.

    Dropped rows leave gaps; the wanted rate is that of the rows that are kept, which come evenly if all have one stamp.
    """
    evenly = changes.spread == "even"
    timed = _scattered(rows, Random(changes.seed)) if changes.spread == "random" else list(arrival_times(rows, 1.0, bursts=not evenly))
    kept = [(at, row) for at, row in timed if changes.max_input is None or row.input_length < changes.max_input][: changes.requests]
    if not kept:
        return []
    first, span = kept[0][0], kept[-1][0] - kept[0][0]
    factor, rate = 1 / changes.speed, changes.requests_per_second
    if rate is not None and span > 0:
        factor = (len(kept) - 1) / rate / span
    elif rate is not None:
        kept = [(first + place / rate, row) for place, (_, row) in enumerate(kept)]
        factor = 1.0
    return [replace(row, timestamp_ms=round((at - first) * factor * 1e3, 3)) for at, row in kept]


def read_form(path: Path, form: str) -> Iterator[TraceRow]:
    """Rows of a file in one of FORMS. Raises TraceInvalid naming file, line and field."""
    if form == "jsonl":
        return read_trace(path)
    return _read_csv(path, form)


def write_form(rows: Iterable[TraceRow], out: TextIO, form: str) -> int:
    """Write rows as jsonl or csv; returns their number."""
    if form == "jsonl":
        return write_trace(rows, out)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    count = 0
    for row in rows:
        ids = " ".join(map(str, row.hash_ids))
        pause = "" if row.pause_ms is None else f"{row.pause_ms:g}"
        writer.writerow((f"{row.timestamp_ms:.12g}", row.input_length, row.output_length, ids, row.session or "", pause))
        count += 1
    return count


def _scattered(rows: Iterable[TraceRow], rng: Random) -> list[tuple[float, TraceRow]]:
    """Rows of one stamp at random times between their stamp and the next.

    Rows of the last stamp are spread over the gap before it.
    """
    ordered = list(rows)
    stamps = sorted({row.timestamp_ms for row in ordered})
    gaps = {stamp: after - stamp for stamp, after in pairwise(stamps)}
    if len(stamps) > 1:
        gaps[stamps[-1]] = stamps[-1] - stamps[-2]
    times = sorted(row.timestamp_ms - stamps[0] + gaps.get(row.timestamp_ms, 0.0) * rng.random() for row in ordered)
    return [(time / 1e3, row) for time, row in zip(times, ordered, strict=True)]


def _read_csv(path: Path, form: str) -> Iterator[TraceRow]:
    name = str(path)
    try:
        file = path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise TraceInvalid(name, 0, "", f"cannot be read: {error.strerror}") from None
    with file:
        try:
            yield from _csv_rows(csv.DictReader(file), name, form)
        except (UnicodeDecodeError, csv.Error):
            raise TraceInvalid(name, 0, "", "is not CSV in UTF-8; convert it, or name its form with --from") from None


def _csv_rows(reader: "csv.DictReader[str]", name: str, form: str) -> Iterator[TraceRow]:
    wanted = CSV_COLUMNS[:3] if form == "csv" else ("Timestamp", "Request tokens", "Response tokens")
    missing = [column for column in wanted if column not in (reader.fieldnames or ())]
    if missing:
        raise TraceInvalid(name, 1, missing[0], f"is not a column; the first line must name {', '.join(wanted)}")
    previous, next_id, rows, rule = -inf, 0, 0, PrefixRule()
    given = False
    for record in reader:
        number = reader.line_num
        at = _number(record, wanted[0], name, number) * (1 if form == "csv" else 1e3)
        length, output = (_length(record, column, name, number) for column in wanted[1:])
        if length < 1:
            if form == "csv":
                raise TraceInvalid(name, number, wanted[1], f"{length} must be 1 or more")
            continue  # BurstGPT marks failed requests so
        if at < previous:
            raise TraceInvalid(name, number, wanted[0], f"{at:g} ms is before the previous row's {previous:g}; sort the rows by time")
        previous = at
        count = -(-length // BLOCK_TOKENS)
        has_ids = form == "csv" and bool(record.get("hash_ids"))
        if rows and has_ids is not given:
            raise TraceInvalid(name, number, "hash_ids", "must be in all rows or in none: ids made up here could be those of other rows")
        given = has_ids
        ids = _ids(record, name, number, count) if has_ids else tuple(range(next_id, next_id + count))
        rule.check(ids, name, number)
        next_id += count
        rows += 1
        pause = record.get("delay") if form == "csv" else None
        yield TraceRow(
            timestamp_ms=at,
            input_length=length,
            output_length=output,
            hash_ids=ids,
            session=(record.get("session_id") or None) if form == "csv" else None,
            pause_ms=_number(record, "delay", name, number) if pause else None,
        )
    if rows == 0:
        raise TraceInvalid(name, 0, "", "holds no rows; expected one request per line after the first")


def _number(record: dict[str, str], column: str, name: str, line: int, most: float = LATEST_MS) -> float:
    text = record.get(column) or ""
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not 0 <= value <= most:
        raise TraceInvalid(name, line, column, f"{shown(text)} must be a number from 0 to {most:.10g}")
    return value


def _length(record: dict[str, str], column: str, name: str, line: int) -> int:
    value = _number(record, column, name, line, LONGEST_TOKENS)
    if not value.is_integer():
        raise TraceInvalid(name, line, column, f"{value:g} must be a whole number of tokens")
    return int(value)


def _ids(record: dict[str, str], name: str, line: int, count: int) -> tuple[int, ...]:
    try:
        ids = tuple(int(part) for part in record["hash_ids"].split())
    except ValueError:
        raise TraceInvalid(name, line, "hash_ids", "must be whole numbers separated by spaces") from None
    for one in ids:
        if not _LEAST_ID <= one <= _GREATEST_ID:
            raise TraceInvalid(name, line, "hash_ids", f"{shown(one)} must be a whole number of 64 bits")
    if len(ids) != count:
        raise TraceInvalid(name, line, "hash_ids", f"holds {len(ids)} ids; input_length needs {count} (one per {BLOCK_TOKENS} tokens)")
    return ids
