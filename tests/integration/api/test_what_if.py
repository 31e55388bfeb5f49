"""What-if through the control API on Postgres, with the simulator's real processes.

Equal requests give equal numbers, even if a process is killed; no request hangs; the best result becomes a plan.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fairlead.advice.findings import Cause
from fairlead.reports.batches import Acknowledgement
from fairlead.reports.engines import LearntFigure
from fairlead.reports.engines import Quantity as LearntQuantity
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.reports.traffic import RecordedRequest
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.expectations import ExpectationState, PlanExpectation, Quantity
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import ApplyRequest, PlanState
from fairlead_client.resources.simulations import (
    EngineModel,
    SimulatedPolicy,
    Simulation,
    SimulationPlanRequest,
    SimulationRequest,
    SimulationState,
    TraceRequest,
)
from fairlead_host.app import SIMULATOR
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_load, a_report, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain
from fairlead_testing.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.timeout(1200)

ENDS = {SimulationState.DONE, SimulationState.FAILED, SimulationState.CANCELLED}
POLICIES = [SimulatedPolicy(policy="round-robin"), SimulatedPolicy(policy="fairlead")]
ASKED = SimulationRequest(policies=POLICIES, rates=[1.0, 4.0], seed=3, engine=EngineModel.VLLM_8B)


@asynccontextmanager
async def simulating_api(url: str, cluster: FakeClusterGateway, processes: int = 1) -> AsyncIterator[ApiInstance]:
    async with running_api(url, overrides={"cluster": cluster, "simulator": SIMULATOR}, simulation_processes=processes) as api:
        yield api


@pytest.fixture
async def cluster() -> FakeClusterGateway:
    made = FakeClusterGateway()
    made.add(CHAT, 2)
    return made


@pytest.fixture
async def api(database_url: str, cluster: FakeClusterGateway) -> AsyncIterator[ApiInstance]:
    async with simulating_api(database_url, cluster) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("i0"), an_instance("i1")))
        yield api


async def record(api: ApiInstance, sessions: int = 15, turns: int = 4) -> None:
    """Store sessions that take turns, two of them every other second, each turn with the whole conversation before it.

    The last one was refused.
    """
    begin = datetime.now(UTC).timestamp() - sessions * turns - 5
    rows = [
        RecordedRequest(
            pool=CHAT,
            at=begin + turn * sessions + session - 0.99 * (session % 2),
            session=session,
            prompt_tokens=1024 * (turn + 1) + 3,
            output_tokens=40 if (turn, session) != (turns - 1, 0) else None,
            blocks=tuple(session * 100 + block for block in range(2 * (turn + 1))),
        )
        for turn in range(turns)
        for session in range(sessions)
    ]
    await api.router.post_report(a_report("traffic", traffic=tuple(rows)))


async def ended(api: ApiInstance, simulation: Simulation) -> Simulation:
    async with asyncio.timeout(2 * PATIENCE_SECONDS):
        while (found := await api.viewer.simulation(CHAT, simulation.id)).state not in ENDS:
            await asyncio.sleep(0.1)
    return found


def trace(requests: int) -> list[TraceRequest]:
    return [TraceRequest(timestamp=1000.0 * at, input_length=2000, output_length=20, hash_ids=[at, 0, 1, 2]) for at in range(requests)]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.02)


def children() -> list[int]:
    """Return the simulator's processes that this process started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"fairlead_simulator.what_if" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


async def test_recorded_traffic_is_simulated_and_the_winner_becomes_a_plan(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    await record(api)
    asked = await api.operator.create_simulation(CHAT, ASKED)
    assert (asked.state, asked.requests, asked.total, asked.replicas) == (SimulationState.QUEUED, 60, 240, 2)
    with pytest.raises(ApiProblem) as second:
        await api.operator.create_simulation(CHAT, ASKED)
    assert second.value.problem.type == "simulation-running"
    done = await ended(api, asked)
    assert (done.state, done.done, done.error) == (SimulationState.DONE, 240, None)
    assert [(one.rate, one.policy) for one in done.results] == [(rate, one.policy) for rate in (1.0, 4.0) for one in POLICIES]
    assert all(one.requests == 60 and one.failed == 0 for one in done.results)
    assert done.results[0].requests_per_second == pytest.approx(1.0, rel=0.02)
    assert done.results[1].hit_rate > done.results[0].hit_rate, "fairlead sends a session to its prefix"
    assert any("such as refused ones: 1." in note for note in done.notes)
    again = await ended(api, await api.operator.create_simulation(CHAT, replace(ASKED, start=str(done.start), end=str(done.end))))
    assert again.results == done.results, "same seed, same numbers"
    assert [one.id for one in (await api.viewer.simulations(CHAT)).items] == [again.id, done.id]

    plan = await api.admin.create_simulation_plan(CHAT, done.id, SimulationPlanRequest(policy=1))
    (change,) = [step for step in plan.diff if step["path"] == "/spec/routing/policy"]
    assert (change["before"], change["after"]) == ("dualmap", "fairlead")
    assert plan.effect.predicted_attainment == done.results[1].attainment
    assert str(plan.effect.prediction_basis).startswith(f"in simulation {done.id} of 60 requests recorded from")
    assert (await api.admin.apply_plan(plan.id, ApplyRequest(reason="it won"))).state is PlanState.APPLIED
    assert [found.spec["routing"]["policy"] for found in cluster.objects.values()] == ["fairlead"]
    actions = [entry.action for entry in (await api.viewer.audit()).items]
    assert actions[:2] == ["plan.applied", "plan.created"]
    assert actions.count("simulation.created") == 2


async def test_roles_and_what_cannot_be_simulated(api: ApiInstance) -> None:
    async def refusal(call: object) -> tuple[int, str]:
        with pytest.raises(ApiProblem) as refused:
            await call  # type: ignore[misc]
        return refused.value.problem.status, refused.value.problem.type

    assert await refusal(api.viewer.create_simulation(CHAT, ASKED)) == (403, "denied")
    assert await refusal(api.operator.create_simulation(CHAT, ASKED)) == (422, "invalid-input"), "no traffic was recorded"
    assert await refusal(api.operator.create_simulation(replace(CHAT, name="none"), ASKED)) == (404, "not-found")
    assert await refusal(api.viewer.simulation(CHAT, "none")) == (404, "not-found")
    huge = replace(trace(2)[0], input_length=5_000_000, hash_ids=[0] * 9766)
    failed = await ended(api, await api.operator.create_simulation(CHAT, replace(ASKED, trace=[huge, replace(huge, timestamp=99.0)])))
    assert failed.state is SimulationState.FAILED
    assert "two requests or more" in str(failed.error)
    assert await refusal(api.admin.create_simulation_plan(CHAT, failed.id, SimulationPlanRequest())) == (409, "simulation-not-done")
    assert await refusal(api.operator.create_simulation_plan(CHAT, failed.id, SimulationPlanRequest())) == (403, "denied")


async def test_a_killed_simulator_is_started_again_and_a_cancelled_one_ends(api: ApiInstance, database_url: str) -> None:
    asked = replace(ASKED, rates=[1.0], trace=trace(300))
    first = await api.operator.create_simulation(CHAT, asked)
    await until(children)
    (child,) = children()
    os.kill(child, signal.SIGKILL)
    done = await ended(api, first)
    assert (done.state, done.done) == (SimulationState.DONE, 600)
    second = await api.operator.create_simulation(CHAT, replace(asked, rates=[1.0, 1.5, 2.0]))
    await until(children)
    assert (await api.operator.cancel_simulation(CHAT, second.id)).state is SimulationState.CANCELLED
    await until(lambda: not children())
    assert (await api.operator.cancel_simulation(CHAT, done.id)).state is SimulationState.DONE
    third = await ended(api, await api.operator.create_simulation(CHAT, asked))
    assert third.results == done.results


async def test_a_simulation_whose_process_is_gone_is_begun_anew_once_and_then_fails(database_url: str, cluster: FakeClusterGateway) -> None:
    async with simulating_api(database_url, cluster) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("i0"), an_instance("i1")))
        asked = await api.operator.create_simulation(CHAT, replace(ASKED, trace=trace(200)))
        await until(children)
    assert children() == [], "they end with the process that started them"
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        silent = "UPDATE simulations SET heard_at = now() - interval '1 minute', attempts = %s"
        connection.execute(silent, (1,))
        async with simulating_api(database_url, cluster) as api:
            assert (await ended(api, asked)).state is SimulationState.DONE
        connection.execute("UPDATE simulations SET state = 'running', heard_at = now() - interval '1 minute', attempts = 2")
        async with simulating_api(database_url, cluster) as api:
            found = await ended(api, asked)
    assert (found.state, found.error) == (SimulationState.FAILED, "the process that ran it ended twice; request it again")
    async with running_api(database_url, overrides={"simulator": SIMULATOR}, simulation_processes=0) as api:
        with pytest.raises(ApiProblem) as refused:
            await api.operator.create_simulation(CHAT, ASKED)
    assert refused.value.problem.type == "simulations-disabled"


async def test_a_plans_effect_is_simulated_after_it_was_made_or_the_reason_is_told(api: ApiInstance) -> None:
    async def settled(plan: str) -> PlanExpectation:
        async with asyncio.timeout(2 * PATIENCE_SECONDS):
            while (found := await api.viewer.plan_expectation(plan)).state in {ExpectationState.QUEUED, ExpectationState.RUNNING}:
                await asyncio.sleep(0.1)
        return found

    early = await api.operator.create_scale_plan(CHAT, 3)
    nothing = await settled(early.id)
    assert nothing.state is ExpectationState.UNKNOWN
    assert re.fullmatch(r"0 requests were recorded in the hour until \d\d:\d\d UTC, and 200 are needed", nothing.reason or "")
    await record(api, sessions=55)
    fewer = await api.operator.create_scale_plan(CHAT, 1)
    asked = await api.operator.create_simulation(CHAT, ASKED)
    done = await settled(fewer.id)
    assert (done.state, done.requests, done.seeds, done.rates) == (ExpectationState.DONE, 220, [0, 1], [0.8, 1.25])
    assert done.done == done.total == 220 * 6
    figures = {one.quantity: one for one in done.figures}
    moved = figures[Quantity.SESSIONS_MOVED]
    assert moved.before == 0
    assert 0 < moved.after < 55
    assert "not recorded" in str(figures[Quantity.ATTAINMENT].unknown), "routers reported no latencies of these requests"
    assert (await ended(api, asked)).state is SimulationState.DONE, "a plan's simulation is in nobody's way"
    assert [one.id for one in (await api.viewer.simulations(CHAT)).items] == [asked.id]
    slo = await api.admin.create_plan(CHAT, PlanRequest(kind=PlanKind.SLO, fields={"ttft": "3s"}))
    assert "recorded latencies" in str((await settled(slo.id)).reason)
    with pytest.raises(ApiProblem) as unknown:
        await api.viewer.plan_expectation("none")
    assert unknown.value.problem.status == 404


async def test_advice_sentence_button_and_plan_come_from_one_simulation_of_what_came(api: ApiInstance, database_url: str) -> None:
    """Two instances get twice the work they can compute, and refuse prompts that neither computes within the target."""
    spec = SPEC | {"earlyRejection": {"mode": "Load"}}
    api.clock.stop()  # what was recorded stays the last five minutes, however long the simulation takes
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("i0"), an_instance("i1"), spec=spec, version=2, generation=2))
    with psycopg.connect(plain(database_url), autocommit=True) as connection:  # requests under another spec are not simulated
        connection.execute("UPDATE pool_revisions SET at = at - interval '10 minutes'")
    begin = int(api.clock().timestamp()) - 303
    traffic, loads, refused = [], [], []
    for number in range(600):
        second, is_long = number // 2, number % 50 == 0
        tokens = 60_000 if is_long else 8192
        traffic.append(
            RecordedRequest(
                pool=CHAT,
                at=begin + number / 2,
                session=number,
                prompt_tokens=tokens,
                output_tokens=None if is_long else 1,
                blocks=tuple(number * 1000 + block for block in range(tokens // 512)),
            )
        )
        in_time: dict[str, Any] = {
            "completed": 1,
            "ttft_total": 1,
            "judged_by_slo": 1,
            "prompt_tokens": tokens,
            "within_slo": 1,
            "ttft_within_slo": 1,
        }
        loads.append(a_load(f"i{number % 2}", begin + second, requests=1, **in_time))
        if is_long:
            record = RejectionRecord(
                pool=CHAT,
                second=begin + second,
                reason=RejectionReason.PREDICTED_TTFT,
                count=20,
                status=429,
                sample_request="r",
                sample_prompt_tokens=tokens,
                retry_after_seconds=1.0,
            )
            refused.append(record)
    known = (Acknowledgement(pool=CHAT, version=1),)
    measured = LearntFigure(
        pool=CHAT,
        instance=None,
        quantity=LearntQuantity.PREFILL,
        learnt=1 / 6250,
        declared=1 / 6250,
        samples=600,
        error=None,
        declared_error=None,
        in_use=True,
        value=6250.0,
        value_samples=200,
        age_seconds=1.0,
    )
    report = a_report(
        "long",
        at=api.clock().timestamp(),
        traffic=tuple(traffic),
        loads=tuple(loads),
        rejections=tuple(refused),
        acknowledged=known,
        learnt_figures=(measured,),
    )
    await api.router.post_report(report)
    await api.app.state.upkeep.roll_up(api.clock())
    async with asyncio.timeout(3 * PATIENCE_SECONDS):
        while True:
            await api.app.state.sizing.look(api.clock())
            found = (await api.viewer.advice(CHAT)).items
            beyond = [one for one in found if one.cause is Cause.PROMPTS_TOO_LONG]
            advised = [one for one in found if one.plan is not None and one.plan.simulation is not None]
            if beyond and advised:
                break
            await asyncio.sleep(0.2)
    assert (
        "2.0 % of requests (100.0 % of the refused ones) need more than the TTFT target of 5 s alone on an idle instance"
        in beyond[0].sentence
    )
    (group,) = (await api.viewer.rejections({"pool": str(CHAT)})).groups
    assert "no number of instances can serve them in time" in group.suggestion
    (replicas,) = [one.plan.replicas for one in advised if one.plan]
    assert replicas in (3, 4), "16,400 tokens/s come, and two instances compute 12,500"
    assert f"{replicas} replicas would " in advised[0].sentence
    for one in advised:
        assert one.plan is not None
        plan = await api.admin.create_plan(CHAT, one.plan)
        expected = await api.viewer.plan_expectation(plan.id)
        assert expected.state is ExpectationState.DONE, "it was simulated before it was planned"
        figure = next(figure for figure in expected.figures if figure.quantity is Quantity.ATTAINMENT)
        assert figure.unknown is None
        assert f"{figure.after * 100:.1f} %" in one.sentence or "would serve it" in one.sentence
        assert "This is the simulation that recommended the plan." in expected.notes
