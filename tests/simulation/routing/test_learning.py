"""Policies learn in virtual time, and faults of their models change only which policy chooses."""

from functools import cache
from itertools import islice
from statistics import mean
from typing import Any

from fairlead.predictors.reports import HeuristicReason
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, load_workload, plan_jobs
from fairlead_simulator.simulation.jobs import Phase
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.run_results import RunResult
from fairlead_simulator.simulation.timeline import RestartRouters
from fairlead_simulator.workloads.kinds import KINDS

WORKLOAD = load_workload(islice(KINDS["tool-agent"].rows(None, None, 5), 2900), requests=2400, max_input=20_480, infer_sessions=True)
MEASURED_FROM = 1500
QUICK: dict[str, Any] = {"first_samples": 600, "round_samples": 600, "hidden_units": 64}


@cache
def run(policy: str, rate: float = 7.0, speeds: tuple[float, ...] = (1.0, 0.5), **parameters: Any) -> RunResult:
    spec = SimulatedPool(
        preset=preset("dualmap-910b4-qwen7b"),
        instances=8,
        speeds=speeds,
        policy=policy,
        parameters=parameters,
        prefill_tokens_per_second=6250.0,
        seed=2,
    )
    return Simulation(spec, plan_jobs(WORKLOAD, ArrivalPlan(rate=rate, seed=2))).run()


def test_new_routers_have_models_trained_for_them_too() -> None:
    spec = SimulatedPool(
        preset=preset("dualmap-910b4-qwen7b"), instances=8, policy="lodestar", parameters=QUICK, prefill_tokens_per_second=6250.0, seed=2
    )
    jobs = plan_jobs(WORKLOAD, ArrivalPlan(rate=7.0, seed=2))
    result = Simulation(spec, jobs, timeline=[RestartRouters(at=jobs[1000].arrives_at)]).run()
    assert any(one.at > jobs[1000].arrives_at for one in result.rounds)
    assert result.learning is not None and result.learning.model is not None
    assert result.learning.learned_choices > 100


def mean_ttft(result: RunResult) -> float:
    return mean(job.first_token_at - job.arrives_at for job in result.jobs if job.index >= MEASURED_FROM and job.phase is Phase.FINISHED)


def share_on_fast_instances(result: RunResult) -> float:
    """Return the share of the computed prompt tokens that fast instances computed."""
    computed = [
        (int(job.instance[1:4]) % 2 == 0, job.input_tokens - job.hit_tokens)
        for job in result.jobs
        if job.index >= MEASURED_FROM and job.phase is Phase.FINISHED
    ]
    return sum(tokens for is_fast, tokens in computed if is_fast) / sum(tokens for _, tokens in computed)


def test_after_two_rounds_a_mixed_pool_answers_sooner_than_by_the_heuristic_and_fast_instances_do_more() -> None:
    learnt, heuristic = run("lodestar", **QUICK), run("prefix-cache-load")
    assert [one.round for one in learnt.rounds][:2] == [1, 2]
    second = learnt.rounds[1]
    assert max(job.arrives_at for job in learnt.jobs if job.index < MEASURED_FROM) > second.at
    assert mean_ttft(learnt) < 0.9 * mean_ttft(heuristic)
    assert share_on_fast_instances(learnt) > share_on_fast_instances(heuristic) + 0.05
    assert learnt.learning is not None
    assert learnt.learning.learned_choices > 900


def test_a_round_ends_later_than_it_begins_and_the_heuristic_chooses_until_the_first_has() -> None:
    result = run("lodestar", **QUICK)
    assert result.learning is not None
    cold = result.learning.heuristic_choices[HeuristicReason.COLD_START]
    before = sum(job.arrives_at < result.rounds[0].at for job in result.jobs)
    assert cold == before > QUICK["first_samples"]


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = run("lodestar", **QUICK), run.__wrapped__("lodestar", **QUICK)
    assert [job.instance for job in one.jobs] == [job.instance for job in two.jobs]
    assert one.rounds == two.rounds


def test_in_shadow_mode_everything_happens_as_by_the_heuristic_and_errors_are_known() -> None:
    watching, heuristic = run("lodestar", mode="Shadow", **QUICK), run("prefix-cache-load")
    assert [job.instance for job in watching.jobs] == [job.instance for job in heuristic.jobs]
    assert watching.learning is not None
    assert watching.learning.learned_choices == 0
    assert watching.learning.error_seconds is not None
    assert watching.learning.mean_ttft_seconds is not None
    assert watching.learning.error_seconds < watching.learning.mean_ttft_seconds


def test_without_a_trainer_everything_happens_as_by_the_heuristic() -> None:
    silent, heuristic = run("lodestar", first_samples=1_000_000), run("prefix-cache-load")
    assert [job.first_token_at for job in silent.jobs] == [job.first_token_at for job in heuristic.jobs]
    assert silent.rounds == []


def test_fairlead_obeys_what_it_learnt_only_once_that_is_proven_to_err_less_than_its_formula() -> None:
    learnt, plain = run("fairlead", learned_ttft=True), run("fairlead")
    proven_at = learnt.rounds[0].at
    assert [job.instance for job in learnt.jobs if job.arrives_at < proven_at] == [
        job.instance for job in plain.jobs if job.arrives_at < proven_at
    ]
    report = learnt.learning
    assert report is not None
    assert plain.learning is None
    assert report.heuristic_choices[HeuristicReason.COLD_START] == sum(job.arrives_at < proven_at for job in learnt.jobs)
    assert report.heuristic_choices[HeuristicReason.UNPROVEN] >= 100
    assert report.learned_choices > 500
    assert report.error_seconds is not None
    assert report.formula_error_seconds is not None, "they are compared again and again, and either may err less in the end"
