"""The model against independent results: queueing theory, conservation, the ideal cache, the prefill ceiling."""

from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from fairlead_simulator.engine_model.costs import DecodeCost, PrefillCost
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, ideal_hits, load_workload, plan_jobs
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.workloads.kinds import KINDS

PLAIN = replace(
    preset("dualmap-910b4-qwen7b"),
    kv_tokens=128 * 100_000,
    dram_tokens=None,
    prefill=PrefillCost(per_token=0.001),
    decode=DecodeCost(fixed=0.01, per_context_token=1e-7, per_sequence=0.0001),
)


def spec(instances: int, policy: str = "round-robin", **changes: object) -> SimulatedPool:
    facts: dict[str, object] = {"preset": PLAIN, "prefill_tokens_per_second": 1000.0} | changes
    return SimulatedPool(instances=instances, policy=policy, **facts)  # type: ignore[arg-type] # each test writes only what it is about


def prompts(count: int, rate: float, tokens: int, seed: int) -> list[Job]:
    """Return Poisson arrivals of equal, unshared prompts with one-token answers."""
    source, now, jobs = Random(seed), 0.0, []
    for index in range(count):
        now += source.expovariate(rate)
        jobs.append(Job(index=index, arrives_at=now, input_tokens=tokens, output_tokens=1, blocks=(), session=None))
    return jobs


@pytest.mark.parametrize("load", [0.3, 0.5, 0.8])
def test_one_instance_waits_as_an_m_d_1_queue(load: float) -> None:
    service = 0.4
    jobs = prompts(20_000, load / service, 400, seed=1)
    patient = spec(1, parameters={"queue_timeout_seconds": 1e6, "queue_limit": 100_000})
    Simulation(patient, jobs).run()
    waits = [job.first_token_at - job.arrives_at - service for job in jobs]
    assert min(waits) == pytest.approx(0.0, abs=1e-6)
    assert sum(waits) / len(waits) == pytest.approx(load * service / (2 * (1 - load)), rel=0.06)


def test_an_overloaded_instance_computes_its_ceiling_and_no_more() -> None:
    jobs = prompts(3000, 10.0, 500, seed=2)
    Simulation(spec(1, parameters={"queue_timeout_seconds": 1e6, "queue_limit": 100_000}), jobs).run()
    first, last = min(job.arrives_at for job in jobs), max(job.first_token_at for job in jobs)
    throughput = sum(job.input_tokens for job in jobs) / (last - first)
    assert throughput == pytest.approx(1000.0, rel=1e-3)
    assert throughput <= 1000.0 * (1 + 1e-9)


@pytest.mark.parametrize("mode", ["prefill_priority", "chunked"])
@pytest.mark.parametrize("policy", ["round-robin", "dualmap", "ear"])
@pytest.mark.parametrize("rejection", ["Disabled", "Load"])
def test_what_arrives_is_served_or_refused_and_nothing_stays_counted(mode: str, policy: str, rejection: str) -> None:
    workload = load_workload(islice(KINDS["conversation"].rows(None, 2000.0, 3), 600), requests=None, max_input=20_000, infer_sessions=True)
    small = replace(preset("dualmap-910b4-qwen7b"), mode=mode, kv_tokens=128 * 200, dram_tokens=None)  # type: ignore[arg-type] # parametrised
    tight = spec(
        3, policy, preset=small, early_rejection=rejection, prefill_tokens_per_second=6250.0, parameters={"queue_timeout_seconds": 20}
    )
    simulation = Simulation(tight, plan_jobs(workload, ArrivalPlan(rate=6.0)))
    result = simulation.run()
    ended = [job.phase for job in result.jobs]
    assert ended.count(Phase.FINISHED) + ended.count(Phase.REFUSED) == len(workload.rows)
    assert sum(result.refusals.values()) == ended.count(Phase.REFUSED) > 0
    scheduler = simulation.scheduler
    assert scheduler.discrepancies() == ()
    assert all(load.waiting + load.prefilling + load.decoding == 0 for load in scheduler.loads())
    for instance in simulation.fleet.instances.values():
        assert (instance.running, instance.kv.private, instance.kv.pinned) == (0, 0, 0)
        assert instance.largest_step_tokens <= small.max_batched_tokens


@pytest.mark.parametrize("kind", ["conversation", "tool-agent", "agentic"])
def test_one_instance_with_an_endless_cache_hits_as_the_ideal_does(kind: str) -> None:
    workload = load_workload(islice(KINDS[kind].rows(None, None, 4), 1500), requests=None, max_input=None, infer_sessions=False)
    endless = replace(PLAIN, prefill=PrefillCost(per_token=1e-7), kv_tokens=128 * 4_000_000)
    jobs = plan_jobs(workload, ArrivalPlan(rate=0.5, spread="even"))
    Simulation(spec(1, preset=endless), jobs).run()
    hits, _ = ideal_hits(workload)
    assert [job.hit_tokens for job in jobs] == hits


def test_affinity_on_many_instances_comes_near_the_ideal_and_round_robin_does_not() -> None:
    workload = load_workload(islice(KINDS["conversation"].rows(None, None, 5), 1500), requests=None, max_input=None, infer_sessions=True)
    hits, _ = ideal_hits(workload)
    found = {}
    for policy in ("round-robin", "ear"):
        jobs = plan_jobs(workload, ArrivalPlan(rate=1.0))
        Simulation(spec(8, policy, preset=replace(PLAIN, prefill=PrefillCost(per_token=1e-5)), prefill_tokens_per_second=1e5), jobs).run()
        found[policy] = sum(job.hit_tokens for job in jobs) / sum(hits)
    assert found["ear"] > 0.9
    assert found["round-robin"] < 0.5
