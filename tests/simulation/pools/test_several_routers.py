"""Several routers of one pool.

Each sees only its own requests and knows their share of all, or one router decides for all.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pytest

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, load_workload, plan_jobs
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import Clients, SimulatedPool
from fairlead_simulator.simulation.router_links import RouterLink, RouterLinks
from fairlead_simulator.simulation.timeline import Fail, PartRouters, RestartRouters, ScaleTo, TimelineEvent
from fairlead_simulator.workloads.kinds import KINDS

WORKLOAD = load_workload(islice(KINDS["conversation"].rows(None, None, 4), 1500), requests=600, max_input=20_480, infer_sessions=True)
SHORT = load_workload(islice(KINDS["tool-agent"].rows(None, None, 2), 400), requests=300, max_input=10_000, infer_sessions=True)
BEGIN, END = 100.0, 190.0
"""The seconds between which loads are measured; requests come from 0 to 200."""
SPEED = 6250.0


def run(routers: int) -> tuple[Simulation, float, float]:
    """Return the simulation, the mean load that the first router saw relative to the computed one, and a ratio.

    The ratio is the largest between two speeds.
    """
    spec = SimulatedPool(
        preset=preset("dualmap-910b4-qwen7b"),
        instances=0,
        prefill_instances=3,
        decode_instances=3,
        policy="fairlead",
        prefill_tokens_per_second=SPEED,
        routers=routers,
    )
    loads: list[float] = []
    unlike: list[float] = []

    def look(simulation: Simulation, now: float) -> None:
        if BEGIN <= now < END:
            view = simulation.scheduler._state.view
            view.now = now
            loads.append(view.pool_load())
            paces = view.vectors().lasting_pace
            unlike.append(float(paces.max() / paces.min()))

    simulation = Simulation(spec, plan_jobs(WORKLOAD, ArrivalPlan(rate=3.0)), probe=look)
    jobs = [job for job in simulation.run().jobs if BEGIN <= job.arrives_at < END]
    computed = sum(job.input_tokens - job.hit_tokens for job in jobs) / SPEED / (END - BEGIN) / 3
    return simulation, sum(loads) / len(loads) / computed, max(unlike)


@pytest.mark.parametrize("routers", [1, 2, 3, 4])
def test_each_router_sees_the_load_of_the_whole_pool_and_equal_instances_as_equal(routers: int) -> None:
    _, seen, unlike = run(routers)
    assert seen == pytest.approx(1.0, abs=0.25)
    assert unlike < 1.25, "others' prefills do not make an instance look slow"


def test_routers_know_how_many_they_are_also_after_a_restart() -> None:
    spec = run(2)[0].spec
    simulation = Simulation(spec, plan_jobs(WORKLOAD, ArrivalPlan(rate=6.0)), timeline=(RestartRouters(at=20.0),))
    simulation.run()
    assert [scheduler.routers for scheduler in simulation.routers] == [2, 2, 2, 2]


def test_routers_that_begin_anew_hear_also_of_caches_that_do_not_change() -> None:
    spec = SimulatedPool(preset=preset("vllm-h100-8b"), instances=2, policy="round-robin", prefill_tokens_per_second=16_000.0)
    jobs = [Job(index=index, arrives_at=30.0 * index, input_tokens=1000, output_tokens=100, blocks=(), session=None) for index in range(2)]
    simulation = Simulation(spec, jobs, timeline=(RestartRouters(at=10.5),))
    simulation.run()
    assert None not in [load.kv_usage for load in simulation.scheduler.loads()]


TOGETHER = SimulatedPool(
    preset=preset("dualmap-910b4-qwen7b"), instances=4, policy="fairlead", prefill_tokens_per_second=SPEED, asking_seconds=0.0005
)


def shares(spec: SimulatedPool, *timeline: TimelineEvent) -> tuple[float, float]:
    """Return the share of requests in time, and the share of prompt tokens found in caches."""
    jobs = Simulation(spec, plan_jobs(WORKLOAD, ArrivalPlan(rate=3.0)), timeline=timeline).run().jobs
    served = [job for job in jobs if job.phase is Phase.FINISHED]
    in_time = sum(job.first_token_at - job.arrives_at < spec.slo_ttft_seconds for job in served)
    return in_time / len(jobs), sum(job.hit_tokens for job in served) / sum(job.input_tokens for job in served)


@pytest.mark.parametrize("clients", ["in-turn", "random", "session", "prefix"])
def test_routers_that_let_one_decide_serve_as_a_single_one(clients: Clients) -> None:
    in_time, hits = shares(replace(TOGETHER, asking_seconds=None))
    alone = shares(replace(TOGETHER, routers=8, clients=clients, asking_seconds=None))
    together = shares(replace(TOGETHER, routers=8, clients=clients))
    assert together[0] == pytest.approx(in_time, abs=0.02)
    assert together[1] == pytest.approx(hits, abs=0.02)
    if clients == "prefix":
        assert alone[0] == pytest.approx(in_time, abs=0.02), "prompts with one beginning have one router and, by its hash, one home"
    else:
        assert alone[0] < in_time - 0.05, "which routers that decide for themselves do not"


def test_routers_that_never_hear_each_other_serve_as_if_they_had_never_asked() -> None:
    parted = PartRouters(at=0.0, for_seconds=10_000.0, noticed_after_seconds=0.0)
    assert shares(replace(TOGETHER, routers=4), parted) == shares(replace(TOGETHER, routers=4, asking_seconds=None))


@pytest.mark.parametrize(("told_seconds", "most"), [(2.0, 0.05), (None, 0.15)])
def test_routers_that_decide_for_themselves_give_late_requests_no_time_that_others_need(told_seconds: float | None, most: float) -> None:
    in_time, _ = shares(replace(TOGETHER, asking_seconds=None))
    apart, _ = shares(replace(TOGETHER, routers=4, asking_seconds=None, told_seconds=told_seconds))
    assert apart >= in_time - most


def test_a_break_costs_no_more_than_deciding_alone_as_long_as_it_lasts() -> None:
    alone, _ = shares(replace(TOGETHER, routers=4, asking_seconds=None))
    broken, _ = shares(replace(TOGETHER, routers=4), PartRouters(at=60.0, for_seconds=60.0))
    whole, _ = shares(replace(TOGETHER, routers=4))
    assert alone - 0.01 <= broken <= whole + 0.01


def test_a_break_of_one_direction_costs_no_more_than_one_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests still reach the decider, but no verdict comes back, until the routers notice."""

    def fall_silent(links: RouterLinks) -> None:
        for link in links._links:
            monkeypatch.setattr(link, "_come_back", lambda verdict, now: None)

    monkeypatch.setattr(RouterLinks, "break_off", fall_silent)
    alone, _ = shares(replace(TOGETHER, routers=4, asking_seconds=None))
    broken, _ = shares(replace(TOGETHER, routers=4), PartRouters(at=60.0, for_seconds=60.0, noticed_after_seconds=1.5))
    whole, _ = shares(replace(TOGETHER, routers=4))
    assert alone - 0.01 <= broken <= whole + 0.01


def test_two_deciders_at_once_serve_no_worse_than_routers_that_never_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of routers differ, so that half of the routers ask one decider and half another."""

    def connect(links: RouterLinks, decider: SharedScheduler, fronts: Sequence[SharedScheduler], now: float) -> None:
        half = len(fronts) // 2
        for group in (fronts[:half], fronts[half:]):
            for front in group[1:]:
                links._links.append(RouterLink(front, group[0], links._seconds, links._events, links._see))
        for link in links._links:
            link.open(now)

    alone, few_hits = shares(replace(TOGETHER, routers=4, asking_seconds=None))
    whole, hits = shares(replace(TOGETHER, routers=4))
    monkeypatch.setattr(RouterLinks, "connect", connect)
    halves, half_hits = shares(replace(TOGETHER, routers=4))
    assert alone - 0.01 <= halves <= whole + 0.01
    assert few_hits - 0.01 <= half_hits <= hits + 0.01


def test_a_decider_that_is_slow_to_answer_is_still_better_than_none() -> None:
    alone, few_hits = shares(replace(TOGETHER, routers=4, asking_seconds=None))
    slow, hits = shares(replace(TOGETHER, routers=4, asking_seconds=0.1))
    assert slow >= alone
    assert hits >= few_hits


@pytest.mark.parametrize("mode", ["Disabled", "Predicted", "AfterPrefill"])
@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_requests_of_routers_that_part_and_meet_end_once_and_nothing_is_left(policy: str, mode: str) -> None:
    spec = replace(
        TOGETHER,
        instances=0,
        prefill_instances=3,
        decode_instances=2,
        policy=policy,
        parameters={"queue_timeout_seconds": 15, "queue_limit": 20},
        early_rejection=mode,
        routers=3,
        asking_seconds=0.05,
    )
    timeline = (
        PartRouters(at=10.0, for_seconds=10.0),
        Fail(at=25.0, instance=0, recovered_after_seconds=5.0),
        PartRouters(at=25.5, for_seconds=3.0, noticed_after_seconds=2.0),
        RestartRouters(at=40.0),
        ScaleTo(at=45.0, instances=2, role=spec.first_table().instances[0].role),
        Fail(at=50.0, instance=2, recovered_after_seconds=5.0),
    )
    simulation = Simulation(spec, plan_jobs(SHORT, ArrivalPlan(rate=5.0)), timeline=timeline)
    ended = Counter(job.phase for job in simulation.run().jobs)
    assert ended.keys() <= {Phase.FINISHED, Phase.REFUSED, Phase.FAILED}
    assert ended[Phase.FINISHED] > 0.5 * len(SHORT.rows)
    for scheduler in simulation.routers:
        assert scheduler.discrepancies() == ()
        assert scheduler.waiting() == 0
