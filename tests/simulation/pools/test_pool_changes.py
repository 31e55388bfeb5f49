"""Scaling, failures, schedules, transfers and late information during a run."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import fsum
from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, load_workload, plan_jobs
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.run_results import variation
from fairlead_simulator.simulation.timeline import Drain, Fail, Override, ScaleTo, TimelineEvent
from fairlead_simulator.workloads.kinds import KINDS

CONVERSATIONS = load_workload(islice(KINDS["conversation"].rows(None, None, 21), 800), requests=None, max_input=20_480, infer_sessions=True)
AGENTS = load_workload(islice(KINDS["agentic"].rows(None, None, 2), 600), requests=None, max_input=None, infer_sessions=True)


def simulated(
    instances: int = 4,
    rate: float = 3.0,
    timeline: Sequence[TimelineEvent] = (),
    quality: ObservationQuality | None = None,
    **changes: Any,
) -> Simulation:
    facts: dict[str, Any] = {
        "preset": preset("dualmap-910b4-qwen7b"),
        "policy": "dualmap",
        "prefill_tokens_per_second": 6250.0,
        "instances": instances,
    } | changes
    simulation = Simulation(SimulatedPool(**facts), plan_jobs(CONVERSATIONS, ArrivalPlan(rate=rate)), timeline=timeline, quality=quality)
    simulation.run()
    scheduler = simulation.scheduler
    assert scheduler.discrepancies() == ()
    assert scheduler.waiting() == 0
    assert not any(instance.running for name, instance in simulation.fleet.instances.items() if simulation.fleet.alive(name))
    return simulation


def phases(simulation: Simulation) -> dict[str, int]:
    counted: dict[str, int] = {}
    for job in simulation.result.jobs:
        counted[job.phase.value] = counted.get(job.phase.value, 0) + 1
    return counted


def late(simulation: Simulation) -> int:
    return sum(job.first_token_at - job.arrives_at >= 5.0 for job in simulation.result.jobs if job.phase is Phase.FINISHED)


def test_instances_added_in_time_shorten_waits() -> None:
    fixed = simulated(rate=4.5)
    grown = simulated(rate=4.5, timeline=[ScaleTo(at=20.0, instances=8, startup_seconds=5.0)])
    assert phases(grown) == {"finished": 800 - CONVERSATIONS.dropped}
    assert late(grown) < late(fixed) / 2
    assert len(grown.fleet.instances) == 8


def test_instances_removed_drain_without_losing_a_request() -> None:
    shrunk = simulated(instances=8, timeline=[ScaleTo(at=50.0, instances=5)])
    assert phases(shrunk) == {"finished": 800 - CONVERSATIONS.dropped}
    table = shrunk.scheduler.table
    assert len(table.instances) == 5
    assert table.version >= 3, "draining, then gone"
    gone = {name for name in shrunk.fleet.instances if name not in {entry.id for entry in table.instances}}
    assert all(job.first_token_at < 60.0 for job in shrunk.result.jobs if job.instance in gone)


def test_a_failure_loses_only_answers_begun_and_the_rest_is_served_elsewhere() -> None:
    failed = simulated(timeline=[Fail(at=60.0, instance=1, recovered_after_seconds=30.0)])
    counted = phases(failed)
    assert 0 < counted.get("failed", 0) < 40
    assert counted["finished"] + counted["failed"] == 800 - CONVERSATIONS.dropped
    restarted = [job for job in failed.result.jobs if job.instance == "b001-0" and job.first_token_at > 90.0]
    assert restarted
    down = [job for job in failed.result.jobs if job.instance == "b001-0" and 60.0 < job.first_token_at < 90.0]
    assert not down


def test_failing_an_instance_that_is_not_there_is_told() -> None:
    with pytest.raises(InvalidInput, match="write a number from 0 to 3"):
        simulated(timeline=[Fail(at=1.0, instance=4)])


def test_an_instance_dies_once_even_if_the_next_failure_comes_before_it_is_noticed() -> None:
    twice = simulated(timeline=[Fail(at=10.0, instance=0), Fail(at=11.0, instance=0, detected_after_seconds=0.0)])
    states = {load.entry.id: load.entry.state for load in twice.scheduler.loads()}
    assert sorted(name for name, state in states.items() if state is InstanceState.LOST) == sorted(states)[:2]
    with pytest.raises(InvalidInput, match="no instance accepts requests by then"):
        simulated(timeline=[Fail(at=10.0, instance=0) for _ in range(5)])


def test_a_schedule_switches_early_rejection_on() -> None:
    patient = {"queue_timeout_seconds": 10_000.0}
    open_ended = simulated(rate=9.0, parameters=patient)
    scheduled = simulated(rate=9.0, parameters=patient, timeline=[Override(at=40.0, early_rejection="Load")])
    assert set(scheduled.result.refusals) == {"rejected-predicted-ttft"}
    assert open_ended.result.refusals == {}
    assert all(job.arrives_at >= 40.0 for job in scheduled.result.jobs if job.phase is Phase.REFUSED)


def test_a_schedule_can_change_the_policy() -> None:
    changed = simulated(timeline=[Override(at=40.0, policy="round-robin")])
    assert changed.scheduler.table.routing.policy == "round-robin"


@pytest.mark.parametrize("policy", ["static-pd", "mooncake"])
def test_prefill_and_decode_instances_each_do_their_part(policy: str) -> None:
    pools = simulated(
        instances=0, prefill_instances=3, decode_instances=2, policy=policy, preset=preset("mooncake-a800-llama70b"), rate=2.0
    )
    assert phases(pools) == {"finished": 800 - CONVERSATIONS.dropped}
    assert {job.instance[0] for job in pools.result.jobs} == {"p"}
    assert {(job.decode_instance or "?")[0] for job in pools.result.jobs} == {"d"}
    assert pools.result.transferred_tokens >= sum(job.input_tokens for job in pools.result.jobs if job.output_tokens > 1)


def test_a_slow_link_delays_the_second_token() -> None:
    fast = preset("mooncake-a800-llama70b")
    slow = replace(fast, transfer=replace(fast.transfer, bytes_per_second=1e9))
    gaps = []
    for one in (fast, slow):
        pools = simulated(instances=0, prefill_instances=3, decode_instances=2, policy="static-pd", preset=one, rate=1.0)
        jobs = [job for job in pools.result.jobs if job.phase is Phase.FINISHED]
        gaps.append(sum(job.finished_at - job.first_token_at for job in jobs) / len(jobs))
    assert gaps[1] > gaps[0] + 1.0


def test_a_decode_instance_that_dies_is_blamed_for_what_was_on_its_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    blamed: set[tuple[str, bool]] = set()
    lost = Simulation._lost

    def heard(simulation: Simulation, job: Job, instance: str, now: float) -> None:
        blamed.add((instance, simulation.fleet.alive(instance)))
        lost(simulation, job, instance, now)

    monkeypatch.setattr(Simulation, "_lost", heard)
    fast = preset("mooncake-a800-llama70b")
    slow = replace(fast, transfer=replace(fast.transfer, bytes_per_second=1e9))
    died = [Fail(at=60.0, instance=3, detected_after_seconds=20.0)]
    simulated(instances=0, prefill_instances=3, decode_instances=2, policy="static-pd", preset=slow, rate=1.0, timeline=died)
    assert blamed == {("d003-0", False)}


def test_an_instance_that_comes_later_has_no_weight_of_its_own() -> None:
    grown = simulated(weights=(0.5, 2.0), timeline=[ScaleTo(at=20.0, instances=6), Drain(at=30.0, place=0)])
    weights = {entry.id: entry.weight for entry in grown.scheduler.table.instances}
    assert len(weights) == 6 and "b006-0" in weights, "one was replaced"
    assert {weight for name, weight in weights.items() if name >= "b004"} == {1.0}
    assert {weight for name, weight in weights.items() if name < "b004"} == {0.5, 2.0}


@pytest.mark.parametrize("keep_loads", [False, True])
def test_the_loads_of_all_instances_are_kept_only_when_asked_for_and_their_variation_always(*, keep_loads: bool) -> None:
    spec = SimulatedPool(preset=preset("dualmap-910b4-qwen7b"), instances=4, policy="dualmap", prefill_tokens_per_second=6250.0)
    result = Simulation(spec, plan_jobs(CONVERSATIONS, ArrivalPlan(rate=3.0)), keep_loads=keep_loads).run()
    assert bool(result.loads) is keep_loads
    assert len(result.variations) > 100
    if keep_loads:
        busy = [variation(list(point.pending.values())) for point in result.loads if 20 <= point.at <= 90 and any(point.pending.values())]
        assert result.variations.mean(20, 90) == fsum(busy) / len(busy)


def test_prefixes_are_fetched_only_where_engines_can() -> None:
    fetched = [simulated(policy="mooncake", rate=4.5, fetching=fetching).result.transferred_tokens for fetching in (True, False)]
    assert fetched[0] > 0
    assert fetched[1] == 0


def test_refusals_after_prefill_waste_what_was_computed() -> None:
    pools = simulated(
        instances=0,
        prefill_instances=5,
        decode_instances=1,
        policy="static-pd",
        preset=preset("mooncake-a800-llama70b"),
        rate=8.0,
        early_rejection="AfterPrefill",
        slo_ttft_seconds=30.0,
        slo_tpot_seconds=0.04,
    )
    assert pools.result.refusals
    assert any(job.phase is Phase.REFUSED and job.instance for job in pools.result.jobs)


def test_a_request_whose_refusal_comes_after_its_end_is_refused_and_not_served() -> None:
    spec = SimulatedPool(
        preset=preset("vllm-h100-8b"),
        instances=0,
        prefill_instances=4,
        decode_instances=1,
        policy="static-pd",
        early_rejection="AfterPrefill",
        slo_tpot_seconds=0.005,
        knows_decode_times=True,
        prefill_tokens_per_second=16_000.0,
    )
    jobs = [
        Job(index=index, arrives_at=index * 0.1, input_tokens=1000, output_tokens=1 if index % 2 else 400, blocks=(), session=None)
        for index in range(50)
    ]
    result = Simulation(spec, jobs, quality=ObservationQuality(delay_seconds=0.5)).run()
    refused = [job for job in jobs if job.phase is Phase.REFUSED]
    assert any(job.finished_at >= 0 for job in refused)
    assert sum(result.refusals.values()) == len(refused)


def test_noise_and_delay_change_decisions_but_lose_nothing() -> None:
    sharp = simulated(rate=4.0)
    blurred = simulated(rate=4.0, quality=ObservationQuality(token_noise=0.5, delay_seconds=0.1))
    assert phases(blurred) == phases(sharp) == {"finished": 800 - CONVERSATIONS.dropped}
    assert [job.instance for job in blurred.result.jobs] != [job.instance for job in sharp.result.jobs]


def test_in_a_closed_loop_a_turn_comes_when_the_tool_has_run() -> None:
    spec = SimulatedPool(preset=preset("vllm-h100-8b"), instances=2, policy="ear", prefill_tokens_per_second=20_000.0)
    jobs = plan_jobs(AGENTS, ArrivalPlan(rate=3.0, closed_loop=True))
    Simulation(spec, jobs).run()
    assert all(job.phase is Phase.FINISHED for job in jobs)
    followed = [job for job in jobs if job.next_job is not None]
    assert len(followed) > 200
    for job in followed:
        assert job.next_job is not None
        assert job.next_job.arrives_at == pytest.approx(job.finished_at + job.next_pause)


def test_a_slower_pool_is_asked_less_in_a_closed_loop() -> None:
    spans = []
    for instances in (1, 6):
        spec = SimulatedPool(preset=preset("vllm-h100-8b"), instances=instances, policy="ear", prefill_tokens_per_second=20_000.0)
        jobs = plan_jobs(AGENTS, ArrivalPlan(rate=8.0, closed_loop=True))
        Simulation(spec, jobs).run()
        spans.append(max(job.arrives_at for job in jobs))
    assert spans[0] > spans[1]


def test_when_every_prefill_instance_is_lost_decode_instances_compute_all_until_they_are_back() -> None:
    """No request is refused or fails: requests at lost instances are tried again, even if sent before the loss was
    noticed.
    """
    lost = [Fail(at=60.0, instance=0, detected_after_seconds=2.0, recovered_after_seconds=60.0)] * 2
    simulation = simulated(instances=0, rate=2.0, timeline=lost, prefill_instances=2, decode_instances=3, policy="mooncake")
    assert phases(simulation) == {"finished": len(simulation.result.jobs)}
    prefill = {f"p{number:03d}-0" for number in range(2)}
    while_lost = [job for job in simulation.result.jobs if 63.0 <= job.arrives_at < 119.0]
    after = [job for job in simulation.result.jobs if job.arrives_at >= 125.0]
    assert len(while_lost) > 80 and len(after) > 80
    assert not any(job.instance in prefill or job.decode_instance for job in while_lost), "each on one decode instance"
    assert all(job.instance in prefill and job.decode_instance for job in after)
