from pathlib import Path

import orjson
from click.testing import CliRunner

from fairlead_simulator.traces_command import traces


def test_a_generated_trace_is_described(tmp_path: Path) -> None:
    out = tmp_path / "made.jsonl"
    made = CliRunner().invoke(traces, ["generate", "--requests", "300", "--seed", "5", "--out", str(out)])
    assert made.exit_code == 0, made.output
    shown = CliRunner().invoke(traces, ["describe", str(out)])
    assert "requests        300 over" in shown.output
    document = orjson.loads(CliRunner().invoke(traces, ["describe", str(out), "--json"]).output)
    assert document["requests"] == 300
    assert set(document["input_tokens"]) == {"mean", "p50", "p90", "p99", "maximum"}


def test_a_bad_trace_ends_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("not json\n")
    result = CliRunner().invoke(traces, ["describe", str(path)])
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {path}:1: is not JSON")
    assert result.output.count("\n") == 1


def test_an_unwritable_file_ends_with_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(traces, ["generate", "--out", str(tmp_path / "no" / "such.jsonl")])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "cannot be written: No such file or directory" in result.output
