"""`fairlead simulate` as a person runs it."""

from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from fairlead_simulator.simulate_command import simulate
from fairlead_simulator.traces import write_trace
from fairlead_simulator.traces_command import traces
from fairlead_simulator.workloads.kinds import KINDS

FIELDS = {
    "policy", "early_rejection", "seed", "rate_target", "rate_achieved", "attainment", "rejected_share", "ttft_p50", "ttft_p90", "ttft_p99",
    "tpot_p90", "e2e_p50", "e2e_p90", "hit_rate", "ideal_hit_rate", "load_cv", "migrations", "wall_seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "conversation.jsonl"
    with path.open("w") as file:
        write_trace(islice(KINDS["conversation"].rows(None, None, 3), 300), file)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(simulate, [str(argument) for argument in arguments])


def test_a_comparison_prints_a_table_and_writes_a_row_per_run(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    result = run(
        "--trace", trace, "--instances", 4, "--rates", "2,1x", "--policies", "round-robin,dualmap:rebalance=false", "--early-rejection",
        "off,load", "--seeds", 2, "--warmup", 20, "--json", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "saturation about" in result.output
    assert "early rejection off" in result.output
    assert "dualmap:rebalance=false" in result.output.replace("│\n│", "")
    rows: list[dict[str, Any]] = orjson.loads(out.read_bytes())
    assert len(rows) == 2 * 2 * 2 * 2
    assert all(set(row) >= FIELDS for row in rows)
    assert {row["early_rejection"] for row in rows} == {"off", "load"}
    assert {row["seed"] for row in rows} == {0, 1}
    assert all(row["rate_achieved"] == pytest.approx(row["rate_target"]) for row in rows)
    assert all(0 <= row["hit_rate"] <= row["ideal_hit_rate"] + 0.02 for row in rows if row["rejected_share"] == 0)


def test_processes_change_nothing_but_the_time(trace: Path, tmp_path: Path) -> None:
    found = []
    for jobs in (1, 2):
        out = tmp_path / f"rows-{jobs}.json"
        assert run("--trace", trace, "--rates", "3", "--policies", "ear,dualmap", "--jobs", jobs, "--json", out).exit_code == 0
        found.append([{key: value for key, value in row.items() if not key.endswith("_seconds")} for row in orjson.loads(out.read_bytes())])
    assert found[0] == found[1]


def test_plots_are_written_twice_alike(trace: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert (
            run("--trace", trace, "--requests", 100, "--rates", "2,6", "--policies", "dualmap,ear", "--plots", tmp_path / name).exit_code
            == 0
        )
    first = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    assert set(first) == {
        f"{plot}.{form}" for plot in ("rates-off", "balance-off", "load-off-dualmap", "load-off-ear") for form in ("png", "svg")
    }
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()}


def test_a_timeline_is_followed(trace: Path, tmp_path: Path) -> None:
    timeline, out = tmp_path / "timeline.json", tmp_path / "rows.json"
    timeline.write_text('[{"kind": "fail", "at": 20, "instance": 0}]')
    options = ("--trace", trace, "--rates", "3", "--policies", "round-robin", "--timeline", timeline, "--json", out)
    assert run(*options).exit_code == 0
    assert orjson.loads(out.read_bytes())[0]["failed"] > 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--policies", "fastest"), "policy 'fastest' is unknown; known: "),
        (("--policies", "dualmap:x=1"), "policy dualmap has no such parameter"),
        (("--preset", "abacus"), "preset 'abacus' is unknown; known: dualmap-910b3-qwen14b, "),
        (("--early-rejection", "maybe"), "early rejection mode 'maybe' is unknown"),
        (("--rates", "fast"), "--rates: 'fast' cannot be used"),
        (("--warmup", "300"), "--warmup 300 leaves none of"),
        (("--max-input", "500"), "no request is shorter than 500 tokens"),
        (("--closed-loop",), "request 1 has no session_id"),
        (("--prefill-instances", "2"), "--decode-instances"),
        (("--timeline", "/nowhere.json"), "/nowhere.json: cannot be read"),
    ],
)
def test_impossible_requests_are_told_in_one_line(trace: Path, arguments: tuple[str, ...], told: str) -> None:
    result = run("--trace", trace, *arguments)
    assert result.exit_code in (1, 2)
    assert told in result.output.strip().splitlines()[-1]
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_requests_beyond_an_instances_memory_are_told(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    blocks = list(range(500))
    path.write_bytes(orjson.dumps({"timestamp": 0, "input_length": 256_000, "output_length": 1, "hash_ids": blocks}))
    result = run("--trace", path, "--max-input", 0)
    assert result.exit_code == 1
    assert "request 1 needs 256001 tokens of KV memory" in result.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("nonsense", ":2: is not JSON"),
        ('{"timestamp": 1, "input_length": 512, "output_length": 1}', ":2: hash_ids: is missing"),
        ('{"timestamp": 1, "input_length": -5, "output_length": 1, "hash_ids": []}', ":2: input_length: -5 must be"),
        ('{"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]}', ":2: hash_ids: holds 2 ids"),
        ('{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}', ":2: timestamp: 0 is before"),
        ('{"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1], "delay": -1}', ":2: delay: -1 must be"),
        ('{"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1], "session_id": []}', ":2: session_id: [] must be"),
    ],
)
def test_bad_traces_name_line_and_field(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [0]}\n' + line + "\n")
    result = run("--trace", path)
    assert result.exit_code == 1
    assert result.output.strip() == f"Error: {path}{told}{result.output.strip().partition(told)[2]}"


def test_an_empty_trace_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert "holds no rows" in run("--trace", tmp_path / "empty.jsonl").output


def test_generated_agents_can_be_converted_and_run_in_a_closed_loop(tmp_path: Path) -> None:
    made, cut, out = tmp_path / "agents.jsonl", tmp_path / "cut.jsonl", tmp_path / "rows.json"
    runner = CliRunner()
    assert runner.invoke(traces, ["generate", "--kind", "agentic", "--requests", "200", "--out", str(made)]).exit_code == 0
    assert runner.invoke(traces, ["convert", str(made), "--requests", "150", "--rate", "4", "--out", str(cut)]).exit_code == 0
    result = run("--trace", cut, "--closed-loop", "--preset", "vllm-h100-8b", "--rates", "4", "--policies", "ear", "--json", out)
    assert result.exit_code == 0, result.output
    assert orjson.loads(out.read_bytes())[0]["requests"] == 150


def test_conversions_that_contradict_or_leave_nothing_are_told(trace: Path) -> None:
    runner = CliRunner()
    assert "not both" in runner.invoke(traces, ["convert", str(trace), "--rate", "1", "--speed", "2"]).output
    assert "raise --max-input" in runner.invoke(traces, ["convert", str(trace), "--max-input", "5"]).output
    assert "cannot be read" in runner.invoke(traces, ["convert", str(trace.parent / "none")]).output
