"""Several routers of one pool: each sees its own requests only, and knows how many they are."""

from itertools import islice

import pytest

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, load_workload, plan_jobs
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.timeline import RestartRouters
from fairlead_simulator.workloads.kinds import KINDS

WORKLOAD = load_workload(islice(KINDS["conversation"].rows(None, None, 4), 1500), requests=600, max_input=20_480, infer_sessions=True)
BEGIN, END = 100.0, 190.0
"""Seconds in which is looked; requests come from 0 to 200."""
SPEED = 6250.0


def run(routers: int) -> tuple[Simulation, float, float]:
    """The mean load that the first router saw, of what was really computed, and the largest ratio of two paces."""
    spec = SimulatedPool(
        preset=preset("dualmap-910b4-qwen7b"),
        instances=0,
        prefill_instances=3,
        decode_instances=3,
        policy="fairlead",
        prefill_tokens_per_second=SPEED,
        fetching=False,
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


@pytest.mark.parametrize("routers", [1, 2, 3])
def test_each_router_sees_the_load_of_the_whole_pool_and_equal_instances_as_equal(routers: int) -> None:
    _, seen, unlike = run(routers)
    assert seen == pytest.approx(1.0, abs=0.25)
    assert unlike < 1.25, "others' prefills do not make an instance look slow"


def test_routers_know_how_many_they_are_also_after_a_restart() -> None:
    spec = run(2)[0].spec
    simulation = Simulation(spec, plan_jobs(WORKLOAD, ArrivalPlan(rate=6.0)), timeline=(RestartRouters(at=20.0),))
    simulation.run()
    assert [scheduler.routers for scheduler in simulation.routers] == [2, 2, 2, 2]
