"""Figures of runs that were written by hand."""

import pytest

from fairlead_simulator.experiments.measuring import Targets, measure
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.run_results import RunResult, variation


def served(index: int, ttft: float, *, decode: float = 1.0, hit: int = 0, output: int = 11) -> Job:
    arrives = float(index)
    job = Job(index=index, arrives_at=arrives, input_tokens=1000, output_tokens=output, blocks=(), session=None)
    job.phase = Phase.FINISHED
    job.first_token_at = arrives + ttft
    job.finished_at = job.first_token_at + decode
    job.hit_tokens = hit
    return job


def lost(index: int, phase: Phase) -> Job:
    job = Job(index=index, arrives_at=float(index), input_tokens=1000, output_tokens=5, blocks=(), session=None)
    job.phase = phase
    return job


def test_refused_and_failed_requests_count_against_attainment_and_exact_slo_is_late() -> None:
    jobs = [served(0, 9.0), served(1, 4.9), served(2, 5.0), lost(3, Phase.REFUSED), lost(4, Phase.FAILED)]
    figures = measure(RunResult(jobs), [0] * 5, 1, Targets(ttft_seconds=5.0))
    assert figures.requests == 4
    assert figures.attainment == 0.25
    assert figures.rejected_share == 0.25
    assert (figures.served, figures.failed) == (2, 1)
    assert figures.rate_achieved == pytest.approx(1.0)


def test_tpot_counts_when_a_target_is_given() -> None:
    jobs = [served(0, 1.0, decode=1.0), served(1, 1.0, decode=2.0), served(2, 1.0, output=1)]
    assert measure(RunResult(jobs), [0] * 3, 0, Targets(ttft_seconds=5.0)).attainment == 1.0
    assert measure(RunResult(jobs), [0] * 3, 0, Targets(ttft_seconds=5.0, tpot_seconds=0.1)).attainment == pytest.approx(2 / 3)


def test_hit_rates_are_of_tokens_and_the_ideal_of_all_measured() -> None:
    jobs = [served(0, 1.0, hit=512), served(1, 1.0, hit=0), lost(2, Phase.REFUSED)]
    figures = measure(RunResult(jobs), [900, 0, 600], 0, Targets(ttft_seconds=5.0))
    assert figures.hit_rate == pytest.approx(0.256)
    assert figures.ideal_hit_rate == pytest.approx(0.5)


def test_variation_is_that_of_the_population_and_zero_for_nothing() -> None:
    assert variation([2.0, 4.0]) == pytest.approx(1 / 3)
    assert variation([0.0, 0.0]) == 0.0
    assert variation([]) == 0.0


def test_balance_is_taken_over_the_measured_seconds_with_work() -> None:
    result = RunResult([served(0, 1.0), served(1, 1.0), served(2, 1.0)])
    for at, pending in ((0.5, [9, 0]), (1.0, [2, 4]), (1.5, [0, 0]), (2.0, [3, 3]), (2.5, [0, 9])):
        result.variations.add(at, pending)
    assert measure(result, [0] * 3, 1, Targets(ttft_seconds=5.0)).load_cv == pytest.approx(1 / 6)


def test_output_tokens_are_counted_while_measured_requests_arrive_whoever_they_are_for() -> None:
    jobs = [served(0, 0.5, decode=2.0, output=21), served(1, 0.5, decode=1.0), served(2, 0.5, decode=100.0, output=1001), served(3, 9.0)]
    figures = measure(RunResult(jobs), [0] * 4, 1, Targets(ttft_seconds=5.0))
    before, first, long = 15, 11, 1 + 5  # from second 1 to 3; the last has none until then
    assert figures.output_tokens_per_second == pytest.approx((before + first + long) / 2)


def test_a_run_that_served_nothing_has_no_latencies() -> None:
    figures = measure(RunResult([lost(0, Phase.REFUSED)]), [0], 0, Targets(ttft_seconds=5.0))
    assert (figures.ttft_p50, figures.tpot_p90, figures.hit_rate, figures.attainment) == (None, None, 0.0, 0.0)
