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


def reused(tmp_path: Path, sessions: int = 60) -> Path:
    """Return the file of a trace in which each session's second turn comes after all sessions' first turns."""
    rows = [
        {
            "timestamp": 1000.0 * (turn * sessions + number),
            "input_length": 512 * 8 + 1,
            "output_length": 8,
            "hash_ids": [100 * number + place for place in range(9)],
            "session_id": f"s{number}",
        }
        for turn in range(3)
        for number in range(sessions)
    ]
    file = tmp_path / "reused.jsonl"
    file.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return file


def test_a_host_cache_is_advised_by_what_reuse_distances_and_a_simulation_both_find(tmp_path: Path) -> None:
    small = ["--kv-tokens", "40960", "--instances", "1", "--host-load", "200000"]
    asked = ["host-cache", str(reused(tmp_path)), *small, "--tokens", "20000", "--tokens", "400000", "--kv-bytes", "131072"]
    shown = CliRunner().invoke(traces, asked)
    assert shown.exit_code == 0, shown.output
    little, much = shown.output.splitlines()
    assert little.startswith("3 GB of host cache per instance: +0.0% hits") and little.endswith("confirmed")
    assert much.startswith("52 GB of host cache per instance: +66.7% hits") and much.endswith("confirmed")
    rows = orjson.loads(CliRunner().invoke(traces, [*asked, "--json"]).output)["host_caches"]
    assert [one["is_confirmed"] for one in rows] == [True, True]


def test_a_size_of_a_token_that_is_unknown_is_said_to_be(tmp_path: Path) -> None:
    asked = ["host-cache", str(reused(tmp_path, 4)), "--host-load", "200000", "--tokens", "400000"]
    shown = CliRunner().invoke(traces, asked)
    assert "400,000 tokens of host cache per instance" in shown.output
    assert "The size of a token in the KV cache is not known" in shown.stderr


def test_an_engine_whose_cache_is_in_host_memory_already_is_refused(tmp_path: Path) -> None:
    asked = ["host-cache", str(reused(tmp_path, 4)), "--host-load", "9", "--tokens", "9", "--preset", "dualmap-910b4-qwen7b"]
    refused = CliRunner().invoke(traces, asked)
    assert refused.exit_code == 2 and "choose one with a cache on the GPU" in refused.output
