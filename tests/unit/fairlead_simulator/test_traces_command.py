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
