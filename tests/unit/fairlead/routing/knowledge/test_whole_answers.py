"""What answers in one piece show about the times of prompt tokens and decode steps, on any engine, and when they show
nothing.
"""

from math import inf, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import UNKNOWN, Source
from fairlead.routing.knowledge.whole_answers import ENOUGH_ANSWERS, KEPT_ANSWERS, KEPT_SECONDS, WholeAnswers

SPEEDS = st.floats(200.0, 200_000.0)
SEEDS = st.integers(0, 10_000)


def answered(speed: float, count: int, draw: Random, *, instance: str = "i0", noise: float = 0.0, since: float = 0.0) -> WholeAnswers:
    answers = WholeAnswers()
    for number in range(count):
        observe(answers, speed, draw, instance=instance, noise=noise, at=since + number)
    return answers


def observe(answers: WholeAnswers, speed: float, draw: Random, *, instance: str = "i0", noise: float = 0.0, at: float = 0.0) -> None:
    tokens, output = draw.randint(100, 20_000), draw.randint(1, 400)
    context, requests = draw.uniform(0, 2e5), draw.uniform(1, 40)
    step = 0.02 + 7e-8 * context + 5e-5 * requests
    seconds = (tokens / speed + (output - 1) * step) * (1 + noise * draw.gauss(0.0, 1.0))
    answers.observe(instance, tokens, output, context, requests, seconds, at)


@given(SPEEDS.filter(lambda speed: speed <= 50_000), SEEDS)
def test_any_speed_is_measured_from_answers_of_any_length(speed: float, seed: int) -> None:
    figure = answered(speed, 100, Random(seed)).figure(120.0)
    assert (figure.source, figure.samples) == (Source.MEASURED, 100)
    assert figure.value == pytest.approx(speed, rel=0.05)
    assert figure.age_seconds == pytest.approx(21.0)


@given(SEEDS)
def test_what_is_said_of_the_error_holds(seed: int) -> None:
    figure = answered(8_000.0, 200, Random(seed), noise=0.2).figure(0.0)
    assert figure.spread is not None and figure.value is not None
    assert figure.spread.p10 / 1.5 < 8_000.0 < figure.spread.p90 * 1.5


@given(SPEEDS, SEEDS)
def test_prompts_and_answers_in_one_proportion_tell_no_speed(speed: float, seed: int) -> None:
    """Any prefill speed fits, with a matching time of decode steps."""
    answers, draw = WholeAnswers(), Random(seed)
    for at in range(100):
        output = draw.randint(2, 400)
        answers.observe("i0", 100 * (output - 1), output, 1e4, 5.0, (output - 1) * (100 / speed + 0.02) + 0.1, float(at))
    assert answers.figure(100.0) == UNKNOWN


@given(SPEEDS, st.integers(2, 400), st.sampled_from([0.0, 0.01]), SEEDS)
def test_answers_all_alike_tell_no_speed_however_exactly_they_come(speed: float, output: int, noise: float, seed: int) -> None:
    """A load test may have prompts and answers of one length only."""
    answers, draw = WholeAnswers(), Random(seed)
    for at in range(100):
        seconds = (1_000 / speed + (output - 1) * 0.02) * (1 + noise * draw.gauss(0.0, 1.0))
        answers.observe("i0", 1_000, output, 1e4, 5.0, seconds, float(at))
    assert answers.figure(100.0) == UNKNOWN


@given(SEEDS, st.lists(st.floats(0.01, 3_000.0), max_size=8))
def test_a_few_odd_answers_do_not_decide(seed: int, odd: list[float]) -> None:
    draw = Random(seed)
    answers = answered(8_000.0, 100, draw)
    for seconds in odd:
        answers.observe("i0", 4_000, 100, 1e4, 5.0, seconds, 100.0)
    for at in range(12):
        observe(answers, 8_000.0, draw, at=100.0 + at)
    assert answers.tokens_per_second == pytest.approx(8_000.0, rel=0.15)


def test_too_few_answers_tell_nothing_and_what_is_no_time_is_ignored() -> None:
    answers = answered(8_000.0, ENOUGH_ANSWERS - 1, Random(1))
    for seconds in (0.0, -1.0, nan, inf, 1e9):
        assert not answers.observe("i0", 1_000, 100, 1e4, 5.0, seconds, 50.0)
    for tokens in (nan, inf, -5.0):
        assert not answers.observe("i0", tokens, 100, 1e4, 5.0, 3.0, 50.0)
    for output in (0, -7, 10**12):
        assert not answers.observe("i0", 1_000.0, output, 1e4, 5.0, 3.0, 50.0)
    assert answers.figure(50.0) == UNKNOWN
    observe(answers, 8_000.0, Random(2), at=51.0)
    assert answers.tokens_per_second == pytest.approx(8_000.0, rel=0.05)


def test_a_pool_whose_engines_became_faster_is_measured_by_the_newest_answers() -> None:
    draw = Random(3)
    answers = answered(4_000.0, KEPT_ANSWERS, draw)
    for at in range(KEPT_ANSWERS):
        observe(answers, 12_000.0, draw, at=1_000.0 + at)
    assert answers.tokens_per_second == pytest.approx(12_000.0, rel=0.05)


def test_what_an_instance_showed_goes_with_it_and_what_is_old_goes_with_time() -> None:
    draw = Random(4)
    answers = answered(4_000.0, 60, draw)
    for at in range(40):
        observe(answers, 12_000.0, draw, instance="i1", at=100.0 + at)
    answers.forget("i0")
    assert answers.tokens_per_second == pytest.approx(12_000.0, rel=0.05)
    answers.forget_older(200.0)
    assert answers.figure(200.0) == UNKNOWN


def test_a_prompt_that_counts_for_twice_as_many_tokens_was_computed_twice_as_fast() -> None:
    answers = answered(4_000.0, 100, Random(5)).recounted(2.0)
    assert answers.tokens_per_second == pytest.approx(8_000.0, rel=0.05)


@given(SEEDS, st.integers(100, 5000))
def test_of_many_answers_a_second_some_are_left_out_until_the_kept_ones_span_two_seconds(seed: int, rate: int) -> None:
    answers, draw, taken = answered(20_000, KEPT_ANSWERS, Random(seed), since=-float(KEPT_ANSWERS)), Random(seed), list[float]()
    for number in range(3 * rate):
        at = number / rate
        if not answers.is_crowded(at):
            observe(answers, 20_000, draw, at=at)
            taken.append(at)
    assert len(taken) <= 3 * KEPT_ANSWERS / KEPT_SECONDS + 1
    assert rate >= KEPT_ANSWERS / KEPT_SECONDS or len(taken) == 3 * rate, "none is left out where they come slowly"
    assert answers.tokens_per_second == pytest.approx(20_000, rel=0.05)
