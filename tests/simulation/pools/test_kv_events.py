"""Simulated engines publish their cache's changes, and routers learn them: late, through losses, evictions and
restarts.
"""

from dataclasses import replace
from itertools import islice
from math import inf

import pytest
from benchmarks.expected_blocks import Bursts
from benchmarks.expected_blocks import figures as burst_figures

from fairlead.kv_events.sources import Source, Tier
from fairlead_simulator.engine_model.presets import EnginePreset, preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, ideal_hits, load_workload, plan_jobs
from fairlead_simulator.experiments.measuring import Figures, Targets, measure
from fairlead_simulator.simulation.kv_events import KvEventQuality, PromptKeys
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.run_results import RunResult
from fairlead_simulator.simulation.timeline import Fail, RestartRouters, TimelineEvent
from fairlead_simulator.workloads.kinds import KINDS

WORKLOAD = load_workload(islice(KINDS["conversation"].rows(None, None, 4), 1200), requests=400, max_input=20_480, infer_sessions=True)
IDEAL, _ = ideal_hits(WORKLOAD)
IN_GPU = preset("vllm-h100-8b")
IN_DRAM = preset("dualmap-910b4-qwen7b")


def small(of: EnginePreset) -> EnginePreset:
    """Return an engine whose prefix cache overflows."""
    return replace(of, kv_tokens=81_920) if of.dram_tokens is None else replace(of, dram_tokens=81_920)


def run(
    engine: EnginePreset,
    heard: KvEventQuality | None,
    *,
    routers: int = 1,
    timeline: tuple[TimelineEvent, ...] = (),
    policy: str = "min-ttft",
) -> tuple[Simulation, RunResult]:
    spec = SimulatedPool(
        preset=engine, instances=3, policy=policy, slo_ttft_seconds=60.0, prefill_tokens_per_second=6250.0, routers=routers
    )
    jobs = plan_jobs(WORKLOAD, ArrivalPlan(rate=2.0))
    simulation = Simulation(spec, jobs, quality=ObservationQuality(kv_events=heard), timeline=timeline)
    result = simulation.run()
    _settle(simulation)
    if heard is not None and heard.replay and simulation._delivery is not None:
        # Nobody notices that the last batch was lost before the next one comes, or the connection was down.
        simulation._delivery.connect(simulation.fleet.instances, result.ended_at + 10.0)
        _settle(simulation)
    return simulation, result


def _settle(simulation: Simulation) -> None:
    """Deliver all events that are on their way."""
    while simulation._events.next_at() < inf:
        simulation._events.let_happen()


def figures(result: RunResult) -> Figures:
    return measure(result, IDEAL, 50, Targets(ttft_seconds=60.0))


def wrong(simulation: Simulation, result: RunResult) -> list[tuple[str, int, int]]:
    """Return instances and prompts for which a router is wrong: (instance, blocks believed, blocks held)."""
    keys = PromptKeys()
    found = []
    for scheduler in simulation.routers.serving:
        for name, instance in simulation.fleet.instances.items():
            for job in result.jobs:
                known = keys.of(job.blocks, job.input_tokens)
                believed = scheduler.caches.index.match(Source(instance=name), known)
                held = min(instance.kv.holds(job.blocks), len(known))
                if believed != held:
                    found.append((name, believed, held))
    return found


HOST_LOAD = 100_000
"""Tokens per second that an engine loads from host memory."""
WITH_HOST = replace(small(IN_GPU), host_tokens=400_000, dram_seconds_per_token=1 / HOST_LOAD)
"""The engine with a host memory that overflows too, but later."""


@pytest.mark.parametrize(
    "engine",
    [small(IN_GPU), small(IN_DRAM), IN_DRAM, WITH_HOST],
    ids=["gpu, evictions", "dram, evictions", "dram", "gpu before host memory"],
)
@pytest.mark.parametrize(
    "heard",
    [KvEventQuality(), KvEventQuality(delay_seconds=0.5), KvEventQuality(delay_seconds=0.2, loss=0.2)],
    ids=["at once", "late", "lost and replayed"],
)
def test_when_all_is_quiet_a_router_knows_exactly_what_every_engine_holds(engine: EnginePreset, heard: KvEventQuality) -> None:
    simulation, result = run(engine, heard)
    assert wrong(simulation, result) == []
    assert (result.event_gaps > 10) == (heard.loss > 0)
    if engine is not IN_DRAM:
        assert any(
            instance.kv.evicted or (instance.kv.dram and instance.kv.dram.evicted) for instance in simulation.fleet.instances.values()
        )


def test_a_host_cache_brings_hits_whose_load_time_is_learned_from_first_tokens() -> None:
    simulation, result = run(WITH_HOST, KvEventQuality(), policy="fairlead")
    assert all(instance.kv.host and instance.kv.host.evicted for instance in simulation.fleet.instances.values())
    alone = figures(run(small(IN_GPU), KvEventQuality(), policy="fairlead")[1])
    assert figures(result).hit_rate > alone.hit_rate + 0.1
    (scheduler,) = simulation.routers.serving
    learned = scheduler._state.load_times.figure(Tier.HOST, result.ended_at)
    assert learned.value == pytest.approx(HOST_LOAD, rel=0.25)
    assert result.jobs, "and what a router counts as cached is what engines do not compute"
    beliefs = [(job.believed_tokens, job.hit_tokens) for job in result.jobs if job.believed_tokens is not None]
    assert sum(believed == held for believed, held in beliefs) > 0.95 * len(beliefs)


def test_without_replays_a_router_believes_in_nothing_that_an_engine_does_not_hold() -> None:
    simulation, result = run(small(IN_DRAM), KvEventQuality(delay_seconds=0.2, loss=0.1, replay=False))
    assert result.event_gaps > 10
    unknown = wrong(simulation, result)
    lost_last = [one for one in unknown if one[1] > one[2]]
    assert unknown, "what was lost is not known"
    assert len(lost_last) <= len(unknown) / 10, "only a batch lost at the very end can leave a belief in what is gone"


def test_two_routers_know_by_events_what_the_other_one_sent() -> None:
    by_history, by_events = (figures(run(IN_DRAM, heard, routers=2)[1]) for heard in (None, KvEventQuality(delay_seconds=0.1)))
    assert by_events.hit_rate > by_history.hit_rate + 0.04
    assert by_history.belief_error is not None
    assert by_events.belief_error is not None
    assert by_events.belief_error < by_history.belief_error / 2


def test_one_router_without_evictions_knows_nearly_as_much_by_itself() -> None:
    by_history, by_events = (figures(run(IN_DRAM, heard)[1]) for heard in (None, KvEventQuality()))
    assert abs(by_events.hit_rate - by_history.hit_rate) < 0.03
    assert by_history.belief_exact is not None
    assert by_history.belief_exact > 0.95


def test_a_router_that_has_just_started_learns_from_replays_what_engines_hold() -> None:
    restart = (RestartRouters(at=100.0, remember=False),)
    simulation, result = run(IN_DRAM, KvEventQuality(delay_seconds=0.1), timeline=restart)
    assert wrong(simulation, result) == []
    assert len(list(simulation.routers)) == 2
    by_history, by_events = (figures(run(IN_DRAM, heard, timeline=restart)[1]) for heard in (None, KvEventQuality(delay_seconds=0.1)))
    assert by_events.hit_rate > by_history.hit_rate


def test_routers_that_begin_anew_lose_no_hits_where_they_recall_what_the_old_ones_believed() -> None:
    restarts = (RestartRouters(at=100.0), RestartRouters(at=100.0, remember=False))
    recalled, lost = (figures(run(IN_DRAM, None, timeline=(restart,))[1]) for restart in restarts)
    unchanged = figures(run(IN_DRAM, None)[1])
    assert recalled.hit_rate > lost.hit_rate
    assert recalled.hit_rate == pytest.approx(unchanged.hit_rate, abs=0.005)


def test_a_restarted_engine_is_believed_empty_until_it_tells_more() -> None:
    died = (Fail(at=60.0, instance=1, recovered_after_seconds=10.0),)
    simulation, result = run(IN_DRAM, KvEventQuality(delay_seconds=0.3, loss=0.05), timeline=died)
    assert wrong(simulation, result) == []
    assert set(simulation.scheduler.caches.heard) == set(simulation.fleet.instances)


def test_prompts_share_keys_exactly_as_far_as_they_share_blocks() -> None:
    keys = PromptKeys()
    first, second = keys.of((1 << 63, 5, 7), 2000), keys.of((1 << 63, 5, 9), 2000)
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert keys.of((1 << 63, 5, 7), 1536) == first[:2], "the block that ends a prompt is always computed"
    assert keys.of((), 100) == ()


def test_blocks_expected_before_their_events_come_keep_bursts_of_a_new_prefix_together() -> None:
    bursts = Bursts(groups=40)
    for policy in ("heimdall", "fairlead"):
        told, expected = (burst_figures(policy, 1.0, seconds, 0, bursts) for seconds in (0.0, 2.0))
        assert expected.hit_rate > told.hit_rate + 0.2
        assert told.belief_exact is not None and expected.belief_exact is not None
        assert expected.belief_exact > 0.99 > told.belief_exact
