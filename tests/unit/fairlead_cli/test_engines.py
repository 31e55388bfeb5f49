"""`fairlead engines`: presets are estimated, and an engine is fitted to a file of records."""

import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairlead.tables import PoolKey
from fairlead_cli.engines import engines
from fairlead_client.client import ControlApi
from fairlead_client.resources.engine_fits import EngineFit
from fairlead_simulator.engine_fit.engine_files import read_engine
from fairlead_simulator.errors import EngineFileInvalid
from fairlead_simulator.simulate_command import simulate
from fairlead_simulator.traces.rows import write_trace
from fairlead_simulator.workloads.kinds import KINDS
from fairlead_testing.builders.served_records import served_records
from fairlead_testing.running.command_line import Command


def run(*arguments: object) -> Result:
    return CliRunner().invoke(engines, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "records.jsonl"
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in served_records(count=120)))
    return path


@pytest.fixture(scope="module")
def engine(records: Path) -> Path:
    path = records.with_name("engine.yaml")
    result = run("fit", records, "--out", path, "--name", "mine", "--kv-tokens", 200_000)
    assert result.exit_code == 0, result.output
    assert "fitted to the 60 oldest" in result.output
    assert "TPOT modelled" in result.output
    return path


def test_every_preset_is_said_to_be_estimated() -> None:
    lines = run("list").output.splitlines()[1:]
    assert lines
    assert all("estimated" in line for line in lines)
    assert all(one["is_estimated"] for one in json.loads(run("list", "-o", "json").output))


def test_a_fit_is_a_file_that_simulate_takes(engine: Path, tmp_path: Path) -> None:
    preset = read_engine(engine).preset()
    assert (preset.name, preset.kv_tokens, preset.is_estimated) == ("mine", 200_000, False)
    trace = tmp_path / "trace.jsonl"
    with trace.open("w") as file:
        write_trace(islice(KINDS["conversation"].rows(None, None, 3), 60), file)
    chosen = ["--trace", str(trace), "--instances", "2", "--rates", "1x", "--policies", "round-robin"]
    result = CliRunner().invoke(simulate, [*chosen, "--engine", str(engine), "--json", str(tmp_path / "rows.json")])
    assert result.exit_code == 0, result.output
    assert "mine (fitted)" in result.output
    assert json.loads((tmp_path / "rows.json").read_text())[0]["engine_is_estimated"] is False
    both = CliRunner().invoke(simulate, [*chosen, "--engine", str(engine), "--preset", "simulated"])
    assert both.exit_code == 2
    assert "give --preset or --engine" in both.output
    assert "vllm-h100-8b (estimated)" in CliRunner().invoke(simulate, [*chosen, "--preset", "vllm-h100-8b"]).output


def test_a_fit_is_told_to_programs(records: Path) -> None:
    document = json.loads(run("fit", records, "-o", "json").output)
    assert document["costs"]["decode_fixed"] > 0
    assert set(document) == set(EngineFit.__dataclass_fields__)


def test_records_that_cannot_be_used_are_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text('{"at": 1, "engine": "a", "prompt_tokens": 5, "output_tokens": 2, "cached_tokens": 0, "ttft": 1, "tpot": 1}\n')
    result = run("fit", path)
    assert result.exit_code == 2
    assert result.output.strip().count("\n") == 0
    assert "holds 1 records" in result.output
    assert "cannot be read" in run("fit", tmp_path / "none.jsonl").output


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kv_tokens: 200000", "kv_tokens: 0", "kv_tokens: 0 must be a whole number from 1"),
        ("kv_tokens: 200000", "kv_tokens: many", "Expected `int`, got `str` - at `$.kv_tokens`"),
        ("block_tokens: 16", "block_tokens: 17", "block_tokens: 17 must divide 512"),
        ("max_batched_tokens: 2048", "max_batched_tokens: -1", "max_batched_tokens: -1 cannot be used; write 1 to"),
        ("overhead_seconds: 0", "overhead_seconds: -0", "cannot be used; write seconds, from 0"),
        ("name: mine", "name: [", "is neither YAML nor JSON"),
    ],
)
def test_an_engine_file_that_cannot_be_used_is_refused(engine: Path, tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "engine.yaml"
    text = engine.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(EngineFileInvalid) as refused:
        read_engine(path)
    assert words in str(refused.value)


def test_a_stored_fit_can_be_forgotten(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pools = []

    async def forget(_: ControlApi, pool: PoolKey) -> dict[str, str]:
        pools.append(str(pool))
        return {"pool": str(pool)}

    monkeypatch.setattr(ControlApi, "forget_engine", forget)
    code, out, err = command("engines", "forget", "chat", role="operator")
    assert (code, err) == (0, "")
    assert out == "Forgotten: what-if and plans simulate default/chat as if no fit had been stored.\n"
    assert json.loads(command("engines", "forget", "research/code", "-o", "json", role="operator")[1]) == {"pool": "research/code"}
    assert pools == ["default/chat", "research/code"]
