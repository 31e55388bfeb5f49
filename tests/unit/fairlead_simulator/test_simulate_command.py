"""`fairlead simulate` as a person runs it."""

import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.policies.ear import Ear
from fairlead_simulator.errors import CellFailed
from fairlead_simulator.simulate_command import simulate
from fairlead_simulator.traces.rows import write_trace
from fairlead_simulator.traces_command import traces
from fairlead_simulator.workloads.kinds import KINDS
from fairlead_testing.waiting import PATIENCE_SECONDS

FIELDS = {
    "policy", "early_rejection", "seed", "rate_target", "rate_achieved", "attainment", "rejected_share", "ttft_p50", "ttft_p90", "ttft_p99",
    "tpot_p90", "e2e_p50", "e2e_p90", "hit_rate", "ideal_hit_rate", "load_cv", "migrations", "reroutes", "wall_seconds",
}  # fmt: skip

WITHOUT_ROLES = [name for name in BUILT_IN.names if not BUILT_IN.entry(name).needs_roles]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "conversation.jsonl"
    with path.open("w") as file:
        write_trace(islice(KINDS["conversation"].rows(None, None, 3), 300), file)
    return path


def without_times(path: Path) -> list[dict[str, Any]]:
    """Return the rows without the columns of measured run time."""
    return [
        {key: value for key, value in row.items() if key not in ("wall_seconds", "cpu_seconds")} for row in orjson.loads(path.read_bytes())
    ]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(simulate, [str(argument) for argument in arguments])


def test_a_comparison_prints_a_table_and_writes_a_row_per_run(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    result = run(
        "--trace", trace, "--instances", 4, "--rates", "2,1x", "--policies", "round-robin,dualmap:rebalance=false", "--early-rejection",
        "disabled,load", "--seeds", 2, "--warmup", 20, "--json", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "saturation about" in result.output
    assert "early rejection disabled" in result.output
    assert "dualmap:rebalance=false" in result.output.replace("│\n│", "")
    rows: list[dict[str, Any]] = orjson.loads(out.read_bytes())
    assert len(rows) == 2 * 2 * 2 * 2
    assert all(set(row) >= FIELDS for row in rows)
    assert {row["early_rejection"] for row in rows} == {"disabled", "load"}
    assert {row["seed"] for row in rows} == {0, 1}
    assert all(row["rate_achieved"] == pytest.approx(row["rate_target"]) for row in rows)
    assert all(0 <= row["hit_rate"] <= row["ideal_hit_rate"] + 0.02 for row in rows if row["rejected_share"] == 0)


def test_processes_change_nothing_but_the_time(trace: Path, tmp_path: Path) -> None:
    found = []
    for jobs in (1, 2):
        out = tmp_path / f"rows-{jobs}.json"
        assert run("--trace", trace, "--rates", "3", "--policies", "ear,dualmap", "--jobs", jobs, "--json", out).exit_code == 0
        found.append(without_times(out))
    assert found[0] == found[1]


def test_figures_do_not_depend_on_the_hash_seed_of_the_process(trace: Path, tmp_path: Path) -> None:
    """Every policy in one run: no set and no `hash` may decide anything."""
    command = [
        sys.executable,
        "-m",
        "fairlead_cli.main",
        "simulate",
        "--trace",
        str(trace),
        "--requests",
        "120",
        "--rates",
        "9",
        "--instances",
        "5",
    ]
    command += ["--policies", ",".join(WITHOUT_ROLES), "--early-rejection", "predicted", "--json"]
    processes = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        processes.append(
            subprocess.Popen([*command, str(tmp_path / seed)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        )
    for process in processes:
        _, complaints = process.communicate()
        assert process.returncode == 0, complaints.decode()
    found = [without_times(tmp_path / seed) for seed in ("1", "2")]
    assert len(found[0]) == len(WITHOUT_ROLES)
    assert found[0] == found[1]


def test_what_had_finished_is_written_when_a_policy_fails_and_the_failure_names_the_run(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(*_: object) -> None:
        raise KeyError("boom")

    monkeypatch.setattr(Ear, "choose", choose)
    out = tmp_path / "rows.json"
    result = run("--trace", trace, "--rates", "3", "--policies", "random,ear,round-robin", "--json", out)
    assert isinstance(result.exception, CellFailed)
    assert str(result.exception).startswith("ear at 3.00/s, early rejection disabled, seed 0: KeyError: 'boom' for request r")
    assert [row["policy"] for row in orjson.loads(out.read_bytes())] == ["random"]
    assert "1 of 3 runs finished; the figures cover only these runs" in result.stderr


def test_an_interrupt_ends_all_processes_and_keeps_what_had_finished(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, "-m", "fairlead_cli.main", "simulate", "--trace", str(trace), "--rates", "2", "--policies", "random"]
    command += ["--seeds", "1000", "--jobs", "2", "--json", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it is ignored where the tests run in the background
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE_SECONDS)  # to the end of what its processes may say, so they are gone too
    assert (process.returncode, first[:11]) == (130, "simulate: 1"), first + rest
    assert "Traceback" not in rest
    assert 1 <= len(orjson.loads(out.read_bytes())) < 1000


def test_plots_are_written_twice_alike(trace: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert (
            run("--trace", trace, "--requests", 100, "--rates", "2,6", "--policies", "dualmap,ear", "--plots", tmp_path / name).exit_code
            == 0
        )
    first = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    assert set(first) == {
        f"{plot}.{form}"
        for plot in ("rates-disabled", "balance-disabled", "load-disabled-dualmap", "load-disabled-ear")
        for form in ("png", "svg")
    }
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()}


def test_a_timeline_is_followed(trace: Path, tmp_path: Path) -> None:
    timeline, out = tmp_path / "timeline.json", tmp_path / "rows.json"
    timeline.write_text('[{"kind": "fail", "at": 20, "instance": 0}]')
    options = ("--trace", trace, "--rates", "3", "--policies", "round-robin", "--timeline", timeline, "--json", out)
    assert run(*options).exit_code == 0
    assert orjson.loads(out.read_bytes())[0]["failed"] > 0


def test_requests_beyond_an_instances_memory_are_told(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    blocks = list(range(500))
    path.write_bytes(orjson.dumps({"timestamp": 0, "input_length": 256_000, "output_length": 1, "hash_ids": blocks}))
    result = run("--trace", path, "--max-input", 0)
    assert result.exit_code == 2
    assert "request 1 needs 256001 tokens of KV memory (256000 in, 1 out); an instance of preset" in result.output
    assert "has 209920; leave such requests out (--max-input bounds the prompt)" in result.output


def test_generated_agents_can_be_converted_and_run_in_a_closed_loop(tmp_path: Path) -> None:
    made, cut, out = tmp_path / "agents.jsonl", tmp_path / "cut.jsonl", tmp_path / "rows.json"
    runner = CliRunner()
    assert runner.invoke(traces, ["generate", "--kind", "agentic", "--requests", "200", "--out", str(made)]).exit_code == 0
    assert runner.invoke(traces, ["convert", str(made), "--requests", "150", "--rate", "4", "--out", str(cut)]).exit_code == 0
    result = run("--trace", cut, "--closed-loop", "--preset", "vllm-h100-8b", "--rates", "4", "--policies", "ear", "--json", out)
    assert result.exit_code == 0, result.output
    assert orjson.loads(out.read_bytes())[0]["requests"] == 150
