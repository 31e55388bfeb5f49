"""`fairlead kv-events record`: a running engine's events and counts in a file, with which an index agrees."""

import gzip
import json
from pathlib import Path

import pytest

from fairlead_cli import main as command_line
from fairlead_testing.running.engine import StartEngine

FLAGS = (
    "--kv-events-endpoint", "tcp://*:0", "--kv-events-topic", "kv@pod-0@m", "--kv-cache-tokens", "12800",
    "--prefill-tokens-per-second", "1000000", "--decode-step-ms", "1",
)  # fmt: skip


def record(engine: str, out: Path, *more: str) -> int:
    return command_line.run(["kv-events", "record", "--engine", engine, "--out", str(out), "--engine-type", "simulated", *more])


def test_an_index_agrees_with_what_was_recorded(start_engine: StartEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "recording.jsonl.gz"
    assert record(start_engine(*FLAGS).url, out, "--requests", "60", "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in gzip.decompress(out.read_bytes()).splitlines()]
    assert (told["requests"], told["batches"]) == (60, sum(row["kind"] == "event" for row in rows))
    assert 0 < told["cached_tokens"] < told["prompt_tokens"]
    assert command_line.run(["kv-events", "check", str(out), "-o", "json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert (checked["agrees"], checked["requests"], checked["batches_lost"], checked["bad_rows"]) == (True, 60, 0, 0)
    assert checked["reported_cached_tokens"] == told["cached_tokens"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "publishes no KV events that one can connect to"),
        (("--kv-events-endpoint", "tcp://127.0.0.2:9"), "start it with an endpoint tcp://*:PORT"),
    ],
)
def test_an_engine_that_tells_too_little_is_one_line_and_no_file(
    start_engine: StartEngine, tmp_path: Path, flags: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(start_engine(*flags).url, tmp_path / "a.jsonl") == 1
    assert told in (error := capsys.readouterr().err) and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_is_away_and_a_file_that_is_there_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record("http://127.0.0.1:9", tmp_path / "a.jsonl") == 1
    assert "is it running, and is --engine right?" in capsys.readouterr().err
    (tmp_path / "b.jsonl").write_text("kept")
    assert record("http://127.0.0.1:9", tmp_path / "b.jsonl") == 2
    assert "--out: " in capsys.readouterr().err and (tmp_path / "b.jsonl").read_text() == "kept"
