"""EAR in virtual time, on engines with little KV memory: its record agrees with the instances that computed
requests.
"""

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise

from fairlead.reports.bindings import BindingReason
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, load_workload, plan_jobs
from fairlead_simulator.simulation.jobs import Phase
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.workloads.agents import AgentShape, generate_agents


def test_sessions_are_computed_where_the_record_says_that_they_moved_or_stayed() -> None:
    shape = AgentShape(requests_per_second=12.0, giant_share=0.0, turns_median=8.0, turns_sigma=0.5)
    workload = load_workload(islice(generate_agents(shape, 1), 800), requests=None, max_input=None, infer_sessions=False)
    pool = SimulatedPool(
        preset=replace(preset("vllm-h100-8b"), kv_tokens=200_000),
        instances=4,
        policy="ear",
        prefill_tokens_per_second=20_000.0,
        prefills_in_flight=1,
        parameters={"hot_slo_fraction": 0.2, "cooldown_seconds": 5.0},
    )
    simulation = Simulation(pool, plan_jobs(workload, ArrivalPlan(rate=workload.native_rate, closed_loop=True)))
    simulation.run()
    result = simulation.result
    seen = Counter(move.trigger for move in (*result.migrations, *result.reroutes))
    assert seen[BindingReason.HOT_MIGRATION] > 5
    assert seen[BindingReason.NO_ROOM] > 2
    computed_on = {job.request.id: job.instance for job in result.jobs if job.request is not None and job.phase is Phase.FINISHED}
    followed = Counter(computed_on[move.request] == move.target for move in result.migrations if move.request in computed_on)
    stayed = Counter(computed_on[back.request] == back.target for back in result.reroutes if back.request in computed_on)
    assert followed[False] == stayed[False] == 0
    migrated: dict[str, list[tuple[str, str]]] = {}
    for move in result.migrations:
        migrated.setdefault(move.session, []).append((move.source, move.target))
    assert all(before[1] == after[0] for steps in migrated.values() for before, after in pairwise(steps))
