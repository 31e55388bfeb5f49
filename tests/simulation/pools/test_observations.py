"""The simulator's scheduler and a router's are equal: the same observations give the same answers."""

from itertools import islice

import pytest

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, load_workload, plan_jobs
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.timeline import Fail, ScaleTo
from fairlead_simulator.workloads.kinds import KINDS
from fairlead_testing.worlds.observed_scheduler import Observation, ObservedScheduler, observed_scheduler, replay_observations

WORKLOAD = load_workload(islice(KINDS["conversation"].rows(None, None, 9), 500), requests=None, max_input=20_480, infer_sessions=True)


def simulated(policy: str, seed: int = 3, rejection: str = "Load") -> Simulation:
    spec = SimulatedPool(
        preset=preset("dualmap-910b4-qwen7b"),
        instances=4,
        policy=policy,
        early_rejection=rejection,
        prefill_tokens_per_second=6250.0,
        seed=seed,
    )
    timeline = (ScaleTo(at=20.0, instances=6), Fail(at=40.0, instance=1, recovered_after_seconds=20.0), ScaleTo(at=60.0, instances=3))
    scheduler = observed_scheduler(spec.first_table(), "simulator", seed)
    simulation = Simulation(spec, plan_jobs(WORKLOAD, ArrivalPlan(rate=4.0, seed=seed)), timeline=timeline, scheduler=scheduler)
    simulation.run()
    return simulation


def log_of(simulation: Simulation) -> list[Observation]:
    assert isinstance(simulation.scheduler, ObservedScheduler)
    return simulation.scheduler.log


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_a_second_scheduler_told_the_same_decides_the_same(policy: str) -> None:
    simulation = simulated(policy)
    log = log_of(simulation)
    assert sum(len(observation.answer) for observation in log) >= len(WORKLOAD.rows)
    router = PoolScheduler(simulation.spec.first_table(), "simulator", simulation.spec.seed, sample_rate=0.0)
    assert replay_observations(log, router) is None


def test_a_scheduler_told_something_else_is_found_out() -> None:
    simulation = simulated("dualmap")
    other = PoolScheduler(simulation.spec.first_table(), "simulator", simulation.spec.seed + 1, sample_rate=0.0)
    log = log_of(simulation)
    position = replay_observations(log, other)
    assert position is not None, "another seed gives other decision ids"
    assert log[position].answer


def test_the_same_seed_gives_the_same_calls_and_answers() -> None:
    assert log_of(simulated("dualmap")) == log_of(simulated("dualmap"))
    assert log_of(simulated("dualmap")) != log_of(simulated("dualmap", seed=4))
