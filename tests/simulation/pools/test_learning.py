"""A pool's estimates of its engines under load, compared with the engines' true figures."""

from dataclasses import dataclass, replace
from itertools import islice

import pytest

from fairlead.tables import ModelledFacts, RoutingTable
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, load_workload, plan_jobs
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.workloads.kinds import KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold(SimulatedPool):
    """A pool whose table does not have the duration of decode steps, like a real pool's."""

    def first_table(self) -> RoutingTable:
        told = SimulatedPool.first_table(self)
        return replace(told, engine=replace(told.engine, modelled=ModelledFacts()))


@pytest.mark.parametrize("rate", [1.5, 2.3])
def test_decode_steps_learnt_while_prefills_hold_decodes_up_are_those_of_the_engine(rate: float) -> None:
    engine = preset("dualmap-910b4-qwen7b")
    workload = load_workload(
        islice(KINDS["conversation"].rows(None, None, 3), 900), requests=450, max_input=engine.max_input_tokens, infer_sessions=True
    )
    spec = Untold(
        preset=engine, instances=2, policy="fairlead", early_rejection="Predicted", slo_tpot_seconds=0.1, prefill_tokens_per_second=6250.0
    )
    simulation = Simulation(spec, plan_jobs(workload, ArrivalPlan(rate=rate)))
    seen = [job for job in simulation.run().jobs if job.output_tokens > 1 and job.finished_at > 0]
    as_clients_saw = sorted((job.finished_at - job.first_token_at) / (job.output_tokens - 1) for job in seen)[len(seen) // 2]
    view = simulation.scheduler._state.view
    for context, requests, tolerance in ((1_000, 1, 0.4), (50_000, 10, 0.2), (150_000, 25, 0.2)):  # nearly idle is hardly ever seen
        truth = engine.decode.fixed + engine.decode.per_context_token * context + engine.decode.per_sequence * requests
        assert view.decode_seconds(context, requests) == pytest.approx(truth, rel=tolerance)
        assert as_clients_saw > 1.5 * truth


@pytest.mark.parametrize("belief", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.3, 1.5, 2.0])
def test_whole_answers_tell_speed_and_steps_where_nobody_streams_whatever_was_declared(rate: float, belief: float) -> None:
    """At 2 requests/s the pool is full. Of these 450 requests, some 400 are in time if all are streamed.

    Without the engines' word that a request has not begun, 82 were.
    """
    engine = preset("dualmap-910b4-qwen7b")
    rows = islice(KINDS["conversation"].rows(None, None, 3), 900)
    workload = load_workload(rows, requests=450, max_input=engine.max_input_tokens, infer_sessions=True)
    spec = SimulatedPool(
        preset=engine,
        instances=2,
        policy="fairlead",
        early_rejection="Load",
        slo_tpot_seconds=0.1,
        prefill_tokens_per_second=belief / engine.prefill.per_token,
    )
    simulation = Simulation(spec, plan_jobs(workload, ArrivalPlan(rate=rate)), quality=ObservationQuality(streamed_share=0.0))
    jobs = simulation.run().jobs
    assert simulation.scheduler.prefill_figure(1e9).value == pytest.approx(1 / engine.prefill.per_token, rel=0.1)
    truth = engine.decode.fixed + engine.decode.per_context_token * 150_000 + engine.decode.per_sequence * 25
    assert simulation.scheduler._state.view.decode_seconds(150_000, 25) == pytest.approx(truth, rel=0.2)
    in_time = sum(job.finished_at > 0 and job.first_token_at - job.arrives_at <= spec.slo_ttft_seconds for job in jobs)
    assert in_time >= (290 if rate == 2.0 else 425)


@pytest.mark.parametrize(("told", "off"), [(0.5, 0.1), (None, 0.25)])
def test_routers_apart_tell_speed_from_whole_answers_well_if_they_hear_each_other_and_nearly_if_not(told: float | None, off: float) -> None:
    """No answer shows the work that other routers give its instance; each is assumed to give as much as this one on
    average.
    """
    engine = preset("dualmap-910b4-qwen7b")
    rows = islice(KINDS["conversation"].rows(None, None, 3), 1800)
    workload = load_workload(rows, requests=900, max_input=engine.max_input_tokens, infer_sessions=True)
    speed = 1 / engine.prefill.per_token
    spec = SimulatedPool(
        preset=engine,
        instances=4,
        policy="fairlead",
        early_rejection="Load",
        slo_tpot_seconds=0.1,
        prefill_tokens_per_second=speed,
        routers=4,
        told_seconds=told,
    )
    simulation = Simulation(spec, plan_jobs(workload, ArrivalPlan(rate=2.0)), quality=ObservationQuality(streamed_share=0.0))
    jobs = simulation.run().jobs
    for router in simulation.routers:
        assert router.prefill_speed == pytest.approx(speed, rel=off)
    in_time = sum(job.finished_at > 0 and job.first_token_at - job.arrives_at <= spec.slo_ttft_seconds for job in jobs)
    assert in_time > 850
