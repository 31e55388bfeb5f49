"""`fairlead what-if`: its request, the display of results, and errors in one line."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fairlead_cli import asking
from fairlead_cli import main as command_line
from fairlead_client.client import ControlApi
from fairlead_client.resources.plan_kinds import PlanRequest
from fairlead_client.resources.simulations import (
    SimulatedPolicy,
    Simulation,
    SimulationPlanRequest,
    SimulationRequest,
    SimulationResult,
    SimulationState,
)
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport

AT = datetime(2026, 11, 23, 10, tzinfo=UTC)
POLICIES = [SimulatedPolicy(policy="dualmap"), SimulatedPolicy(policy="ear", parameters={"cooldown_seconds": 60})]


def result(policy: SimulatedPolicy, attainment: float, change: float) -> SimulationResult:
    return SimulationResult(
        policy=policy.policy,
        parameters=policy.parameters,
        rate=1.5,
        requests_per_second=15.0,
        requests=100,
        served=99,
        failed=0,
        attainment=attainment,
        attainment_change=change,
        refused_share=0.01,
        ttft_p50=0.5,
        ttft_p90=1.25,
        ttft_p99=None,
        tpot_p90=0.02,
        hit_rate=0.4,
        ideal_hit_rate=0.5,
        migrations=0,
        reroutes=0,
    )


def simulation(state: SimulationState, **changes: Any) -> Simulation:
    values: dict[str, Any] = {
        "id": "s1",
        "pool": "default/chat",
        "state": state,
        "created_at": AT,
        "created_by": "jane",
        "policies": POLICIES,
        "rates": [1.5],
        "seed": 4,
        "done": 50,
        "total": 200,
        "replicas": 32,
        "requests": 100,
        "start": AT,
        "end": AT,
    }
    return Simulation(**{**values, **changes})


DONE = simulation(
    SimulationState.DONE,
    done=200,
    results=[result(POLICIES[0], 0.8, 0.0), result(POLICIES[1], 0.9, 0.1)],
    winner=1,
    notes=["Engines: a model."],
)


class Answering(ControlApi):
    """An API whose simulation is running when it is created, and done at the first read."""

    asked: SimulationRequest
    end = DONE

    async def create_simulation(self, pool: Any, request: SimulationRequest) -> Simulation:
        Answering.asked = request
        return simulation(SimulationState.RUNNING)

    async def simulation(self, pool: Any, simulation_id: str) -> Simulation:
        assert (str(pool), simulation_id) == ("default/chat", "s1")
        return Answering.end

    async def create_simulation_plan(self, pool: Any, simulation_id: str, request: SimulationPlanRequest) -> Any:
        assert (simulation_id, request.policy) == ("s1", None)
        return await self.create_plan(pool, PlanRequest(kind="policy", fields={"policy": "ear", "parameters": {}}))  # type: ignore[arg-type]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    fake = FakePublicApi(World(now=datetime.now(UTC)))

    def connected(url: str, token: str | None, **more: Any) -> ControlApi:
        return Answering(url, token, StreamingAsgiTransport(fake.app), **more)

    monkeypatch.setattr(asking, "ControlApi", connected)
    monkeypatch.setattr("fairlead_cli.what_if.LOOK_SECONDS", 0.0)
    monkeypatch.setattr(Answering, "end", DONE)

    def command(*arguments: str, role: str = "admin") -> tuple[int, str, str]:
        code = command_line.run(["what-if", *arguments, "--token", f"{role}-token"])
        heard = capsys.readouterr()
        return code, heard.out, heard.err

    return command


Run = Callable[..., tuple[int, str, str]]


def test_a_simulation_is_asked_for_awaited_and_shown_as_a_table(run: Run) -> None:
    code, out, _ = run("run", "chat", "--policy", "dualmap", "--policy", 'ear:{"cooldown_seconds": 60}', "--rate", "1.5", "--seed", "4")
    assert code == 0
    assert (Answering.asked.policies, Answering.asked.rates, Answering.asked.seed) == (POLICIES, [1.5], 4)
    rows = [line for line in out.splitlines() if "1.5x" in line]
    assert "80.0%" in rows[0]
    assert "2*" in rows[1]
    assert "+10.0" in rows[1]
    assert 'ear {"cooldown_seconds":60}' in rows[1]
    assert "fairlead what-if apply default/chat s1" in out
    assert "Engines: a model." in out


def test_json_is_what_the_api_answers(run: Run) -> None:
    assert json.loads(run("show", "chat", "s1", "--json")[1])["winner"] == 1
    assert json.loads(run("run", "chat", "--policy", "dualmap", "--no-wait", "--json")[1])["state"] == "running"


def test_a_failed_simulation_is_a_failed_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answering, "end", simulation(SimulationState.FAILED, error="no reason"))
    code, _, told = run("show", "chat", "s1", "--watch")
    assert code == 1
    assert "the simulation failed: no reason" in told


def test_the_winner_is_applied_by_a_plan(run: Run) -> None:
    code, out, told = run("apply", "chat", "s1", "--yes", "--reason", "it won")
    assert code == 0, told
    assert "ear" in out
    assert "fairlead change undo p-0001" in out


def test_what_cannot_be_read_is_told_in_one_line(run: Run, tmp_path: Path) -> None:
    code, _, told = run("run", "chat", "--policy", "ear:{")
    assert (code, "ear:{" in told) == (2, True)
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n{"timestamp": 2}\n')
    code, _, told = run("run", "chat", "--policy", "ear", "--trace", str(trace))
    assert code == 2
    assert "trace.jsonl:2" in told
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n")
    code, _, told = run("run", "chat", "--policy", "ear", "--trace", str(trace))
    assert code == 2
    assert f"convert it: fairlead traces convert --from azure {trace}" in told
