"""Reads files of records of served requests: JSON with one object per line, or CSV with the same columns."""

import csv
from collections.abc import Iterator
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from fairlead_simulator.engine_fit.records import LATEST_SECONDS, LONGEST_SECONDS, ServedRecord
from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.traces.fields import Cells, Record, shown
from fairlead_simulator.traces.rows import object_of
from fairlead_simulator.traces.sources import TraceFile, opened

NEEDED = ("at", "engine", "prompt_tokens", "output_tokens", "ttft")
_WHOLE_SHARE_TOKENS = 16
"""Block size in tokens. A cached share of a prompt is rounded up to whole blocks of this size, because engines cache
whole blocks.
"""
_MIDDLE_OF_TWO_DIGITS = 0.0025
"""Number added to a cached share that is given with two digits. Such a share may have been rounded or truncated: 0.79
may stand for any value from 0.785 to 0.8, and the middle of this range is 0.7925.
"""
_NEEDS = f"a record needs {', '.join(NEEDED)}, cached_tokens or cached_share, and tpot or total"
_IN_CSV = "name it in the first line; "


class _Record(Record):
    __slots__ = ()
    NEEDS = _NEEDS


class _Cells(Cells):
    __slots__ = ()
    NEEDS = _NEEDS


def read_records(path: Path) -> list[ServedRecord]:
    """Return the records in a file, in order of time. The path `-` stands for standard input.

    Raises TraceInvalid, naming line and field.
    """
    with opened(path) as source:
        if not source.begin:
            raise TraceInvalid(source.name, 0, "", "holds no records; write one request per line")
        is_json = source.begin.lstrip().startswith(b"{")
        records = []
        before = 0.0
        for row in _objects(source) if is_json else _cells(source):
            record = _record(row)
            if record.at < before:
                problem = f"{record.at:.12g} is before the line above ({before:.12g})"
                raise row.refusal("at", f"{problem}; sort the records by time; if a clock was set, leave out the records before that")
            before = record.at
            records.append(record)
        if not records:
            raise TraceInvalid(source.name, 0, "", "holds no records; write one request per line")
    return records


def _objects(source: TraceFile) -> Iterator[Record]:
    for number, line in source:
        yield _Record(object_of(line, source.name, number), source.name, number)


def _cells(source: TraceFile) -> Iterator[Record]:
    lines = iter(source)
    number, first = next(lines, (0, b""))
    names = next(csv.reader([first.decode(errors="replace").strip()]), [])
    for name in NEEDED:
        if name not in names:
            raise TraceInvalid(source.name, number, name, f"is not a column; {_IN_CSV}{_NEEDS}")
    for number, line in lines:
        cells = next(csv.reader([line.decode(errors="replace").strip()]), [])
        if len(cells) != len(names):
            raise TraceInvalid(source.name, number, "", f"has {len(cells)} cells; the first line names {len(names)} columns")
        yield _Cells(dict(zip(names, cells, strict=True)), source.name, number)


def _record(row: Record) -> ServedRecord:
    prompt, output = row.tokens("prompt_tokens", 1), row.tokens("output_tokens", 1)
    ttft = _seconds(row, "ttft", LONGEST_SECONDS)
    if ttft == 0:
        raise row.refusal("ttft", "is 0; write the seconds from sending the request to its first token")
    engine = row.needed("engine")
    if isinstance(engine, bool) or not isinstance(engine, str | int | float):
        raise row.refusal("engine", f"{shown(engine)} must be the name of the engine that served the request")
    return ServedRecord(
        at=_seconds(row, "at", LATEST_SECONDS),
        engine=str(engine),
        prompt_tokens=prompt,
        cached_tokens=min(_cached(row, prompt), prompt - 1),
        output_tokens=output,
        ttft=ttft,
        tpot=_tpot(row, ttft, output),
        in_flight=None if row.given("in_flight") is None else int(_seconds(row, "in_flight", 1e6)),
    )


def _seconds(row: Record, field: str, most: float) -> float:
    value: Any = row.needed(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not 0 <= value <= most:
        unit = "requests" if field == "in_flight" else "seconds"
        raise row.refusal(field, f"{shown(value)} must be a number of {unit}, from 0 to {most:g}")
    return float(value)


def _cached(row: Record, prompt: int) -> int:
    if row.given("cached_tokens") is not None:
        cached = row.tokens("cached_tokens", 0)
        if cached > prompt:
            raise row.refusal("cached_tokens", f"{cached} is more than prompt_tokens, {prompt}; write only the cached tokens of the prompt")
        return cached
    if row.given("cached_share") is None:
        raise row.refusal("cached_tokens", "is missing, and so is cached_share; write one of them, 0 for nothing cached")
    share: Any = row.given("cached_share")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise row.refusal("cached_share", f"{shown(share)} must be a share of the prompt, from 0 to 1")
    if 0 < share < 1 and round(share, 2) == share:
        share += _MIDDLE_OF_TWO_DIGITS
    blocks: int = ceil(share * prompt / _WHOLE_SHARE_TOKENS - 1e-6)
    return blocks * _WHOLE_SHARE_TOKENS


def _tpot(row: Record, ttft: float, output: int) -> float | None:
    if output < 2:
        return None
    if row.given("tpot") is not None:
        tpot = _seconds(row, "tpot", LONGEST_SECONDS)
    elif row.given("total") is not None:
        total = _seconds(row, "total", LONGEST_SECONDS)
        tpot = (total - ttft) / (output - 1)
        if tpot < 0:
            raise row.refusal("total", f"{total:g} is less than ttft, {ttft:g}; write the seconds from sending to the last token")
    else:
        raise row.refusal("tpot", "is missing, and so is total; write one of them, in seconds")
    if tpot == 0:
        raise row.refusal("tpot", "is 0; write the mean seconds between tokens, or leave out answers that were not streamed")
    return tpot
