"""Times that are fitted online: forms, errors, and their use by a scheduler."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.estimators import FURTHEST, DecodeTimes, PrefillTimes
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import EngineFacts, ModelledFacts
from fairlead_testing.builders.routing import dispatches, request, table
from fairlead_testing.examples import examples

ENGINE = EngineFacts(type="vllm", port=8000, prefill_tokens_per_second=6250.0)


def real_seconds(prompt: int, hit: int) -> float:
    """Return a quarter of the time by Preble's bilinear form for a 70B model."""
    x = prompt - hit
    return 0.0072 + 4.555e-5 * x + 1.0e-6 * prompt + 6.375e-10 * x * prompt


def trained(form: str, count: int = 400, noise: float = 0.0) -> PrefillTimes:
    source = random.Random(2)
    times = PrefillTimes(ENGINE, form)
    for _ in range(count):
        prompt = source.randint(500, 60_000)
        hit = source.choice([0, 0, source.randint(0, prompt - 1)])
        times.observe("a", prompt, hit, real_seconds(prompt, hit) * (1 + source.uniform(-noise, noise)))
    return times


def test_the_bilinear_form_finds_the_law_it_was_made_with() -> None:
    times = trained("bilinear")
    report = times.report()
    for prompt, hit in ((30_000, 10_000), (2_000, 0), (60_000, 59_000), (500, 100)):
        assert times.seconds(prompt, hit) == pytest.approx(real_seconds(prompt, hit), rel=0.03)
    assert (report.form, report.in_use, report.samples) == ("bilinear", True, 400)


def test_its_error_is_told_beside_that_of_the_configured_speed() -> None:
    report = trained("bilinear", noise=0.1).report()
    assert report.error is not None
    assert report.declared_error is not None
    assert report.error < 0.15
    assert report.declared_error > 0.5
    linear = trained("linear", noise=0.1).report().error
    assert linear is not None
    assert report.error < linear


def test_until_there_are_enough_samples_the_measured_speed_is_used() -> None:
    times = trained("bilinear", 199)
    assert (times.fitted, times.seconds(6_250, 0)) == (False, 6_250 / times.speed)
    assert times.speed == times.observed_speed != ENGINE.prefill_tokens_per_second
    times.observe("a", 6_250, 0, real_seconds(6_250, 0))
    assert times.fitted
    assert times.seconds(6_250, 0) < 0.5
    assert not trained("configured", 500).fitted


def test_nothing_observed_is_nothing_reported() -> None:
    report = PrefillTimes(ENGINE, "linear").report()
    assert (report.error, report.declared_error, report.samples, report.in_use) == (None, None, 0, False)


def test_without_a_fit_the_mean_is_learnt_and_told_but_not_used() -> None:
    """Engines are steadily half as fast as the table says. After the first prefill the mean predicts each prefill
    exactly.
    """
    times = PrefillTimes(ENGINE)
    for tokens in (1_000, 4_000, 2_500):
        times.observe("a", tokens + 500, 500, tokens / 3_125)
    report = times.report()
    assert report.seconds_per_token == pytest.approx(1 / 3_125)
    assert report.error == pytest.approx(0.0)
    assert report.declared_error == pytest.approx(0.5)
    assert (report.samples, report.in_use, times.seconds(6_250, 0)) == (3, False, 1.0)


def test_the_pace_of_answers_is_told_with_its_error() -> None:
    times = DecodeTimes(ENGINE)
    assert times.report().seconds_per_token is None and times.report().error is None
    times.observe_answer("a", 101, 2.0)
    times.observe_answer("a", 51, 2.0)
    report = times.report()
    assert report.seconds_per_token == pytest.approx(4.0 / 150, rel=0.01)
    assert report.error == pytest.approx(0.5) and report.declared_error is None
    assert (report.samples, report.in_use) == (2, False)


def test_an_answer_that_came_in_one_burst_does_not_decide_the_error() -> None:
    times = DecodeTimes(ENGINE)
    for _ in range(40):
        times.observe_answer("a", 101, 2.0)
    times.observe_answer("a", 101, 0.001)
    error = times.report().error
    assert error is not None and error < 0.05


def test_a_changed_engine_is_learnt_anew() -> None:
    times = trained("linear")
    source = random.Random(3)
    for _ in range(3_000):
        prompt = source.randint(500, 60_000)
        times.observe("a", prompt, 0, 0.01 + prompt / 3_000)
    assert times.seconds(30_000, 0) == pytest.approx(10.01, rel=0.03)


def test_the_same_observations_give_the_same_coefficients() -> None:
    assert trained("bilinear", noise=0.2).report() == trained("bilinear", noise=0.2).report()


@examples(60)
@given(
    st.sampled_from(["linear", "bilinear"]),
    st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 100_000), st.floats(-1.0, 1e4)), min_size=30, max_size=60),
    st.integers(1, 200_000),
)
def test_whatever_was_observed_predictions_stay_within_bounds_and_vectors_agree(
    form: str, observed: list[tuple[int, int, float]], prompt: int
) -> None:
    times = PrefillTimes(ENGINE, form, min_samples=10)
    for tokens, hit, seconds in observed:
        times.observe("a", tokens, min(hit, tokens - 1), seconds)
    hits = np.array([0, prompt // 2, prompt])
    configured = np.maximum(1, prompt - hits) / times.speed
    vector = times.seconds_vector(prompt, hits)
    assert vector.tolist() == pytest.approx([times.seconds(prompt, int(hit)) for hit in hits], rel=1e-6)
    assert (vector >= configured / FURTHEST - 1e-12).all()
    assert (vector <= configured * FURTHEST + 1.0 + 1e-9).all()


def test_decode_times_come_from_the_table_where_it_knows() -> None:
    known = DecodeTimes(
        replace(
            ENGINE,
            modelled=ModelledFacts(decode_base_seconds=0.02, decode_seconds_per_context_token=1e-7, decode_seconds_per_request=1e-4),
        )
    )
    assert known.known
    assert known.seconds(100_000, 10) == pytest.approx(0.031)
    known.observe(1, 1, 99.0)
    assert known.samples == 0


def test_decode_times_nobody_tells_are_fitted() -> None:
    times = DecodeTimes(ENGINE)
    assert times.seconds(10**6, 100) == 0.0
    source = random.Random(4)
    for _ in range(300):
        context, batch = source.randint(0, 400_000), source.randint(1, 200)
        times.observe(context, batch, 0.02 + 7.2e-8 * context + 5e-5 * batch)
    assert times.known
    assert times.seconds(200_000, 50) == pytest.approx(0.0369, rel=0.05)


def test_a_scheduler_that_is_asked_to_predicts_by_what_it_saw() -> None:
    parameters = {"prefill_estimate": "bilinear", "estimate_min_samples": 20}
    scheduler = PoolScheduler(table(1, policy="min-ttft", parameters=parameters), "router-0", 1)
    now = 0.0
    for number in range(25):
        tokens = 2_000 + 500 * number
        assert dispatches(scheduler.submit(request(f"r{number}", tokens, at=now), now))
        now += 2 * tokens / 6250  # half as fast as the table says
        scheduler.first_token(f"r{number}", now)
        scheduler.complete(f"r{number}", now, 1, None)
    report = scheduler.prefill_estimate()
    assert (report.in_use, report.samples) == (True, 25)
    assert report.declared_error == pytest.approx(0.5)
    scheduler.submit(request("ahead", 6_250, at=now), now)
    decision = scheduler.choose(request("r", 6_250, at=now), now)
    assert decision is not None
    assert decision.candidates[0].total == pytest.approx(4.0, rel=0.05)
    load = scheduler.load("i00")
    assert load is not None
    assert load.pending_prefill_microseconds == pytest.approx(2_000_000, rel=0.05)
    scheduler.cancel("ahead", now)
    assert (load.pending_prefill_microseconds, scheduler.discrepancies()) == (0, ())
