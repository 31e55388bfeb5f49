"""Converts traces from and to other forms. A conversion can also spread rows with equal timestamps, change the rate and
drop long rows. The result has blocks of 512 tokens.

CSV files have the fields of the JSONL format as columns; block ids are separated by spaces.
"""

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import TextIO

from fairlead_simulator.traces.arrivals import arrival_times
from fairlead_simulator.traces.blocks import BlockNames
from fairlead_simulator.traces.detection import FORMS, check_mooncake, form_of
from fairlead_simulator.traces.fields import Record
from fairlead_simulator.traces.forms.aiperf import read_aiperf
from fairlead_simulator.traces.forms.alibaba import read_alibaba
from fairlead_simulator.traces.forms.csv_files import COLUMNS, read_csv, written
from fairlead_simulator.traces.forms.guidellm import read_guidellm
from fairlead_simulator.traces.reading import Notes, Reading
from fairlead_simulator.traces.rows import BLOCK_TOKENS, PrefixRule, TraceRow, in_order, object_of, row_of, write_trace
from fairlead_simulator.traces.sources import TraceFile, opened

_Reader = Callable[[TraceFile, Reading], Iterator[tuple[int, TraceRow]]]
_UNORDERED = ("aiperf", "guidellm")
"""Forms whose rows need not be in order of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChanges:
    """The changes that a conversion makes. `spread` says when rows with equal timestamps are sent: at equal distances
    ("even"), at random times ("random"), or together ("none").
    """

    spread: str = "none"
    requests_per_second: float | None = None
    speed: float = 1.0
    max_input: int | None = None
    """Limit on the prompt length: rows whose prompt has this many tokens or more are dropped; None = no row is
    dropped.
    """
    requests: int | None = None
    """Number of rows to keep: the first of the rows that were not dropped; None = keep all."""
    seed: int = 0


def convert(rows: Iterable[TraceRow], changes: TraceChanges) -> list[TraceRow]:
    """Return the changed rows in order of time; the first row has the timestamp 0.

    Dropped rows leave gaps. A requested rate is the rate of the rows that are kept. With a requested rate, rows that
    all have the same timestamp are sent at equal distances.
    """
    evenly = changes.spread == "even"
    timed = iter(_scattered(rows, Random(changes.seed))) if changes.spread == "random" else arrival_times(rows, 1.0, bursts=not evenly)
    fitting = ((at, row) for at, row in timed if changes.max_input is None or row.input_length < changes.max_input)
    kept = list(islice(fitting, changes.requests))
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


def read_form(
    path: Path,
    form: str | None = None,
    *,
    block_tokens: int | None = None,
    has_rate: bool = False,
    sort: bool = False,
    notes: Notes | None = None,
) -> Iterator[TraceRow]:
    """Yield the rows of a file, in order of time. `form` is the form of the file, a key of FORMS; None = detect the
    form.

    `block_tokens` is the number of tokens per block id; None = the form's usual number. Rows out of order are sorted if
    `sort` is set or if the form has no order; otherwise they are refused. Raises TraceInvalid naming file, line and
    field.
    """
    with opened(path) as source:
        known = form or form_of(source.begin) or "jsonl"
        reading = Reading(block_tokens=block_tokens or FORMS[known].block_tokens, has_rate=has_rate, notes=notes or Notes())
        rows = _reader(known)(source, reading)
        if sort or known in _UNORDERED:
            rows = iter(sorted(rows, key=lambda numbered: numbered[1].timestamp_ms))
        yield from in_order(rows, source.name)


def _reader(form: str) -> _Reader:
    others: dict[str, _Reader] = {"alibaba": read_alibaba, "aiperf": read_aiperf, "guidellm": read_guidellm, "jsonl": _read_jsonl}
    return others[form] if form in others else lambda source, reading: read_csv(source, form, reading)


def _read_jsonl(source: TraceFile, reading: Reading) -> Iterator[tuple[int, TraceRow]]:
    check_mooncake(source.begin, source.name)
    names, rule, size = BlockNames(), PrefixRule(), reading.block_tokens
    for number, line in source:
        record = Record(object_of(line, source.name, number), source.name, number)
        reading.notes.drop(key for key in record.document if key not in COLUMNS)
        row = row_of(record, size)
        if size == BLOCK_TOKENS:
            rule.check(row, source.name, number)
        else:
            row = replace(row, hash_ids=names.of_ids(row.hash_ids, row.input_length, size))
        yield number, row


def write_form(rows: Iterable[TraceRow], out: TextIO, form: str) -> int:
    """Write rows in the form `jsonl` or `csv`, and return their number."""
    if form == "jsonl":
        return write_trace(rows, out)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    return sum(1 for cells in written(rows) if writer.writerow(cells))


def _scattered(rows: Iterable[TraceRow], rng: Random) -> list[tuple[float, TraceRow]]:
    """Return the rows with their times in seconds. Rows with the same timestamp get random times until the next
    timestamp; rows with the last timestamp get random times in a gap as long as the gap before it.
    """
    ordered = list(rows)
    stamps = sorted({row.timestamp_ms for row in ordered})
    gaps = {stamp: after - stamp for stamp, after in pairwise(stamps)}
    if len(stamps) > 1:
        gaps[stamps[-1]] = stamps[-1] - stamps[-2]
    times = sorted(row.timestamp_ms - stamps[0] + gaps.get(row.timestamp_ms, 0.0) * rng.random() for row in ordered)
    return [(time / 1e3, row) for time, row in zip(times, ordered, strict=True)]
