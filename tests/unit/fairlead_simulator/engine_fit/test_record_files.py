"""Files of records: what they may hold, and the messages with which they are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead_simulator.engine_fit.record_files import read_records
from fairlead_simulator.errors import TraceInvalid

ROW: dict[str, Any] = {
    "at": 1.5, "engine": "engine-1", "prompt_tokens": 4000, "output_tokens": 100, "cached_share": 0.79, "ttft": 0.4, "tpot": 0.02, "total": 2.4,
    "in_flight": 3.0, "running": 1,
}  # fmt: skip


def written(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_share_of_two_digits_stands_for_whole_blocks(tmp_path: Path) -> None:
    (record,) = read_records(written(tmp_path, ROW))
    assert record.cached_tokens == 3184
    assert record.cached_tokens % 16 == 0
    assert record.in_flight == 3


def test_json_and_csv_say_the_same(tmp_path: Path) -> None:
    row = {**ROW, "cached_tokens": 3200}
    path = tmp_path / "records.csv"
    path.write_text(",".join(row) + "\n" + ",".join(str(value) for value in row.values()) + "\n")
    assert read_records(path) == read_records(written(tmp_path, row))


def test_the_time_between_tokens_follows_from_the_total(tmp_path: Path) -> None:
    (record,) = read_records(written(tmp_path, {name: value for name, value in ROW.items() if name != "tpot"}))
    assert record.tpot == pytest.approx(2.0 / 99)
    assert record.ends_at == pytest.approx(1.5 + 2.4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"at": -1}, "at: -1 must be a number of seconds, from 0"),
        ({"at": None}, "at: is null; a record needs at, engine"),
        ({"ttft": -0.1}, "ttft: -0.1 must be a number of seconds"),
        ({"ttft": 0}, "ttft: is 0; write the seconds"),
        ({"ttft": float("nan")}, "is not JSON"),
        ({"ttft": "0.3"}, "ttft: '0.3' must be a number"),
        ({"ttft": 400_000.0}, "ttft: 400000.0 must be a number of seconds, from 0 to 86400"),
        ({"engine": None}, "engine: is null"),
        ({"prompt_tokens": 0}, "prompt_tokens: 0 must be a whole number of tokens, from 1"),
        ({"cached_share": 1.2}, "cached_share: 1.2 must be a share of the prompt, from 0 to 1"),
        ({"cached_share": None}, "cached_tokens: is missing, and so is cached_share"),
        ({"cached_tokens": 5000}, "cached_tokens: 5000 is more than prompt_tokens, 4000"),
        ({"tpot": None, "total": None}, "tpot: is missing, and so is total"),
        ({"tpot": None, "total": 0.1}, "total: 0.1 is less than ttft, 0.4"),
        ({"tpot": 0}, "tpot: is 0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_line_and_field(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(TraceInvalid) as refused:
        read_records(written(tmp_path, ROW, {**ROW, **change}))
    assert f"records.jsonl:2: {words}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_clock_that_steps_back_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceInvalid, match=r"jsonl:2: at: 1 is before the line above \(1.5\); sort the records"):
        read_records(written(tmp_path, ROW, {**ROW, "at": 1.0}))


def test_a_column_that_is_missing_and_a_number_that_is_none_are_named(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_text("at,engine,prompt_tokens,output_tokens\n1,a,2,3\n")
    with pytest.raises(TraceInvalid, match="csv:1: ttft: is not a column"):
        read_records(path)
    path.write_text("at,engine,prompt_tokens,output_tokens,ttft,tpot,cached_tokens\n1,a,20,3,nan,0.1,0\n")
    with pytest.raises(TraceInvalid, match="csv:2: ttft: 'nan' must be a number of seconds"):
        read_records(path)
    path.write_text("at,engine,prompt_tokens,output_tokens,ttft,tpot,cached_tokens\n1,a,20\n")
    with pytest.raises(TraceInvalid, match="has 3 cells; the first line names 7 columns"):
        read_records(path)


def test_a_file_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceInvalid, match="holds no records"):
        read_records(written(tmp_path))
