import io
from pathlib import Path

import pytest

from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.traces.descriptions import IdealCache, describe, percentile
from fairlead_simulator.traces.rows import TraceRow, read_trace, write_trace

GOOD = '{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}'


def row(stamp: float, length: int, *ids: int) -> TraceRow:
    return TraceRow(timestamp_ms=stamp, input_length=length, output_length=10, hash_ids=ids)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{nope", "trace.jsonl:2: is not JSON"),
        ("[1]", "trace.jsonl:2: must be a JSON object, not list"),
        ('{"input_length": 1, "output_length": 1, "hash_ids": [1]}', "trace.jsonl:2: timestamp: is missing"),
        ('{"timestamp": 6, "output_length": 1, "hash_ids": [1]}', "trace.jsonl:2: input_length: is missing"),
        ('{"timestamp": 6, "input_length": 1, "hash_ids": [1]}', "trace.jsonl:2: output_length: is missing"),
        ('{"timestamp": 6, "input_length": 1, "output_length": 1}', "trace.jsonl:2: hash_ids: is missing"),
        (GOOD.replace("5", "-5"), "trace.jsonl:2: timestamp: -5 must be a number of milliseconds, from 0 to 1e+15"),
        (GOOD.replace("5", '"5"'), "trace.jsonl:2: timestamp: '5' must be"),
        (GOOD.replace("600", "-600"), "trace.jsonl:2: input_length: -600 must be a whole number of tokens, from 1 to 10,000,000"),
        (GOOD.replace("600", "0"), "trace.jsonl:2: input_length: 0 must be"),
        (GOOD.replace("600", "true"), "trace.jsonl:2: input_length: True must be"),
        (GOOD.replace("3", "-3"), "trace.jsonl:2: output_length: -3 must be"),
        (GOOD.replace("3", "1.5"), "trace.jsonl:2: output_length: 1.5 must be"),
        (GOOD.replace("[0, 1]", "[0, 1, 2]"), "trace.jsonl:2: hash_ids: holds 3 ids; input_length 600 needs 2 (one per 512 tokens)"),
        (GOOD.replace("[0, 1]", '[0, "1"]'), "trace.jsonl:2: hash_ids: [0, '1'] must be a list of whole numbers"),
        (GOOD.replace("[0, 1]", "7"), "trace.jsonl:2: hash_ids: 7 must be a list of whole numbers"),
        (
            GOOD.replace("[0, 1]", "[2, 1]"),
            "trace.jsonl:2: hash_ids: id 1 comes after 2 here, and after 0 elsewhere; equal ids must mean equal text from the prompt's beginning on",
        ),
        (GOOD.replace("[0, 1]", "[0, 0]"), "trace.jsonl:2: hash_ids: id 0 comes after 0 here, and first elsewhere"),
        (GOOD.replace("5", "4"), "trace.jsonl:2: timestamp: 4 is before the previous row's 5; sort the rows by time"),
    ],
)
def test_a_bad_line_is_told_by_file_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{GOOD}\n{line}\n")
    with pytest.raises(TraceInvalid) as caught:
        list(read_trace(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n\n")
    with pytest.raises(TraceInvalid, match=r"empty\.jsonl: holds no rows"):
        list(read_trace(empty))
    with pytest.raises(TraceInvalid, match="cannot be read: No such file"):
        list(read_trace(tmp_path / "missing.jsonl"))


def test_reading_stops_at_the_limit_before_later_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{GOOD}\nrubbish\n")
    assert len(list(read_trace(path, 1))) == 1


def test_rows_survive_writing_and_reading(tmp_path: Path) -> None:
    rows = [row(0, 1, 9), row(0.5, 512, 9), row(3000, 1025, 9, 10, 11)]
    out = io.StringIO()
    assert write_trace(rows, out) == 3
    path = tmp_path / "trace.jsonl"
    path.write_text(out.getvalue())
    assert list(read_trace(path)) == rows


def test_an_ideal_cache_reuses_leading_whole_blocks_only() -> None:
    cache = IdealCache()
    assert cache.add(row(0, 1100, 0, 1, 2)) == 0
    assert cache.add(row(0, 1100, 0, 1, 2)) == 1024, "the last id names a partial block"
    assert cache.add(row(0, 1024, 0, 1)) == 512, "a prompt is never reused whole"
    assert cache.add(row(0, 1536, 5, 1, 2)) == 0, "only leading blocks count"
    assert cache.hit_tokens == 1536
    assert cache.block_references == 11


def test_a_description_counts_what_is_there() -> None:
    found = describe([row(0, 1100, 0, 1, 2), row(0, 600, 0, 3), row(4000, 1100, 0, 1, 2)])
    assert (found.requests, found.span_seconds, found.requests_per_second, found.distinct_stamps) == (3, 4.0, 0.75, 2)
    assert (found.block_references, found.distinct_blocks) == (8, 4)
    assert found.block_hit_rate == 4 / 8
    assert found.token_hit_rate == (512 + 1024) / 2800
    assert (found.input_tokens.p50, found.input_tokens.maximum) == (1100, 1100)


def test_percentiles_are_by_nearest_rank() -> None:
    values = [float(value) for value in range(1, 11)]
    assert [percentile(values, percent) for percent in (0, 1, 50, 90, 99, 100)] == [1, 1, 5, 9, 10, 10]
    assert percentile([3.0], 50) == 3.0
