"""Traces are converted from and to other formats."""

import io
from pathlib import Path

import pytest

from fairlead_simulator.errors import TraceInvalid
from fairlead_simulator.traces.conversions import TraceChanges, convert, read_form, write_form
from fairlead_simulator.traces.rows import TraceRow


def row(stamp: float, ids: tuple[int, ...] = (1,), **more: str | float) -> TraceRow:
    return TraceRow(timestamp_ms=stamp, input_length=512 * len(ids), output_length=7, hash_ids=ids, **more)  # type: ignore[arg-type] # session, pause_ms


ROWS = [row(5000.0, (1, 2), session="a"), row(5000.0, (3,)), row(8000.0, (1, 2, 4), session="a", pause_ms=250.5), row(8000.0)]


def test_even_spreading_divides_each_gap() -> None:
    assert [one.timestamp_ms for one in convert(ROWS, TraceChanges(spread="even"))] == [0.0, 1500.0, 3000.0, 4500.0]


def test_random_spreading_keeps_rows_between_their_stamps_and_depends_on_the_seed() -> None:
    found = [[one.timestamp_ms for one in convert(ROWS, TraceChanges(spread="random", seed=seed))] for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert found[0][1] < 3000.0
    assert [one.hash_ids for one in convert(ROWS, TraceChanges(spread="random"))] == [one.hash_ids for one in ROWS]


def test_rate_speed_and_cuts() -> None:
    assert [one.timestamp_ms for one in convert(ROWS, TraceChanges(speed=2.0))] == [0.0, 0.0, 1500.0, 1500.0]
    stretched = convert(ROWS, TraceChanges(spread="even", requests_per_second=10.0))
    assert stretched[-1].timestamp_ms == pytest.approx(300.0)
    assert [len(one.hash_ids) for one in convert(ROWS, TraceChanges(max_input=1024, requests=1))] == [1]
    assert convert(ROWS, TraceChanges(max_input=512)) == []


def test_rows_of_one_moment_come_evenly_at_a_rate() -> None:
    changed = convert([row(5.0, (number,)) for number in range(3)], TraceChanges(requests_per_second=4.0))
    assert [one.timestamp_ms for one in changed] == [0.0, 250.0, 500.0]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_is_written_reads_back(tmp_path: Path, form: str) -> None:
    out = io.StringIO()
    assert write_form(ROWS, out, form) == 4
    path = tmp_path / "trace"
    path.write_text(out.getvalue())
    assert list(read_form(path, form)) == ROWS


def test_burstgpt_columns_become_prompts_never_seen_before(tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens\n5,ChatGPT,472,18,490\n45,ChatGPT,0,0,0\n118,GPT-4,1087,230,1317\n"
    )
    assert [(one.timestamp_ms, one.input_length, one.hash_ids) for one in read_form(path, "burstgpt")] == [
        (5000.0, 472, (0,)),
        (118_000.0, 1087, (1, 2, 3)),
    ]


HEADER = "timestamp,input_length,output_length,hash_ids\n"


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("a,b\n1,2\n", ":1", "timestamp: is not a column"),
        (HEADER, "", "holds no rows"),
        (HEADER + "0,512,1,1\nx,512,1,2\n", ":3", "timestamp: 'x' must be a number"),
        (HEADER + "0,0,1,\n", ":2", "input_length: 0 must be a whole number of tokens, from 1 to 10,000,000"),
        (HEADER + "0,512,-1,1\n", ":2", "output_length: -1 must be a whole number of tokens, from 0"),
        (HEADER + "0,1024,1,1\n", ":2", "hash_ids: holds 1 ids; input_length needs 2"),
        (HEADER + "0,512,1,one\n", ":2", "hash_ids: must be whole numbers"),
        (HEADER + "0,512,1,1\n1,512,1,18446744073709551616\n", ":3", "hash_ids: 18446744073709551616 must be a whole number of 64 bits"),
        (
            HEADER + "5,512,1,1\n4,512,1,2\n",
            ":3",
            "timestamp: 4 is before the previous row's 5; sort the rows by time (fairlead traces convert --sort does)",
        ),
        (HEADER + "0,600,1,\n5,700,1,0 1\n", ":3", "hash_ids: must be in all rows or in none"),
        (HEADER + "0,600,1,0 1\n5,700,1,\n", ":3", "hash_ids: must be in all rows or in none"),
        (HEADER + "0,1024,1,0 1\n5,1024,1,2 1\n", ":3", "hash_ids: id 1 comes after 2 here, and after 0 elsewhere"),
    ],
)
def test_faulty_csv_is_told_with_line_and_field(tmp_path: Path, text: str, place: str, told: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(TraceInvalid) as caught:
        list(read_form(path, "csv"))
    assert str(caught.value).startswith(f"{path}{place}: ")
    assert told in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceInvalid, match="cannot be read"):
        list(read_form(tmp_path / "none.csv", "csv"))
