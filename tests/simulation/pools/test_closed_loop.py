"""The closed loop against laws that hold for any closed loop; every quantity is counted independently of the others."""

from itertools import islice
from math import fsum

import pytest

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, load_workload, plan_jobs
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.workloads.agents import AgentShape, generate_agents


def spec(instances: int) -> SimulatedPool:
    return SimulatedPool(
        preset=preset("vllm-h100-8b"), instances=instances, policy="ear", prefill_tokens_per_second=20_000.0, prefills_in_flight=0
    )


def test_a_closed_loop_obeys_littles_law() -> None:
    """Turns in flight as the router counts them, second by second, are throughput times time in the system."""
    shape = AgentShape(requests_per_second=1.2, giant_share=0.0, turns_median=8.0, turns_sigma=0.5)
    workload = load_workload(islice(generate_agents(shape, 1), 2400), requests=None, max_input=None, infer_sessions=False)
    jobs = plan_jobs(workload, ArrivalPlan(rate=workload.native_rate, closed_loop=True))
    begin, end = 300.0, 1500.0
    seen: list[int] = []

    def count(simulation: Simulation, now: float) -> None:
        if begin <= now < end:
            seen.append(sum(load.waiting + load.prefilling + load.decoding for load in simulation.scheduler.loads()))

    Simulation(spec(3), jobs, probe=count).run()
    assert len(seen) == 1200
    ended = [job for job in jobs if begin <= job.finished_at < end]
    throughput = len(ended) / (end - begin)
    time_in_system = fsum(job.finished_at - job.arrives_at for job in ended) / len(ended)
    assert sum(seen) / len(seen) > 5
    assert sum(seen) / len(seen) == pytest.approx(throughput * time_in_system, rel=0.03)


@pytest.mark.parametrize("pause", [2.0, 20.0])
def test_sessions_that_never_end_share_their_time_between_engine_and_tool(pause: float) -> None:
    """M sessions in a loop of one turn and a pause of Z seconds: throughput times (time in the system + Z) is M."""
    sessions, turns = 12, 60
    jobs: list[Job] = []
    for session in range(sessions):
        before: Job | None = None
        for turn in range(turns):
            job = Job(
                index=len(jobs),
                arrives_at=session / 3 if before is None else -1.0,
                input_tokens=2000 + 600 * turn,
                output_tokens=100 + 20 * session,
                blocks=(),
                session=f"s{session}",
            )
            if before is not None:
                before.next_job, before.next_pause = job, pause
            before = job
            jobs.append(job)
    Simulation(spec(1), jobs).run()
    first_over = min(job.finished_at for job in jobs if job.index % turns == turns - 1)
    begin, end = sessions / 3 + pause, first_over
    ended = [job for job in jobs if begin <= job.finished_at < end]
    throughput = len(ended) / (end - begin)
    time_in_system = fsum(job.finished_at - job.arrives_at for job in ended) / len(ended)
    assert throughput * (time_in_system + pause) == pytest.approx(sessions, rel=0.03)
