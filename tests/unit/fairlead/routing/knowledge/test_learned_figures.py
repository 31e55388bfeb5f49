"""Every learned figure, after any history: it stays within its bounds, and false observations are forgotten in favour
of true ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.admission.lifetimes import LONGEST_SECONDS, DecodeLifetimes
from fairlead.routing.knowledge.answer_lengths import MOST_TOKENS, AnswerLengths
from fairlead.routing.knowledge.estimators import (
    FURTHEST,
    LONGEST_PREFILL_SECONDS,
    LONGEST_STEP_SECONDS,
    DecodeTimes,
    PrefillTimes,
)
from fairlead.routing.knowledge.pool_load import MOST_PREFILL_SECONDS, OfferedPrefills
from fairlead.routing.knowledge.prefill_speeds import LEAST_SECONDS, MEMORY_SECONDS
from fairlead.routing.knowledge.token_sizes import LEAST, MOST, TokenSizes
from fairlead.routing.queues.deadline import FASTEST, SLOWEST, next_pace
from fairlead.tables import EngineFacts
from fairlead_testing.examples import examples

ENGINE = EngineFacts(type="vllm", port=8000, prefill_tokens_per_second=6250.0)
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -1.0, 1e-12, 1e12, 1e300, inf, -inf, nan]),
    st.floats(0.001, 100.0),
)
COUNTS = st.one_of(st.integers(-5, 10**12), st.integers(1, 100_000))


@dataclass
class Learner:
    """A learned figure with its `bounds` and its `first` value.

    `lie` gives it any observation. `tell` gives it the true observation of the step with this number, whose figure is
    `truth`. `wait` lets its longest memory pass; None if the figure forgets only by the number of observations.
    """

    figure: Callable[[], float]
    bounds: tuple[float, float]
    lie: Callable[[int, float], object]
    tell: Callable[[int], object]
    truth: float
    wait: Callable[[], object] | None = None
    first: float = 0.0


def bytes_per_token() -> Learner:
    sizes = TokenSizes(4)
    return Learner(
        lambda: sizes.bytes_per_token,
        (LEAST, MOST),
        lambda count, number: sizes.observe(count, int(number) if abs(number) < 1e15 else count, 0.0),
        lambda step: sizes.observe(1000 + step, (1000 + step) // 2, 1.0),
        2.0,
        lambda: sizes.forget(1e6),
        4.0,
    )


def prefill_times(form: str) -> Callable[[], Learner]:
    def make() -> Learner:
        times = PrefillTimes(ENGINE, form, min_samples=10)
        return Learner(
            lambda: times.seconds(6250, 0),
            (0.0, FURTHEST * 6250 * LONGEST_PREFILL_SECONDS + 1),
            lambda count, number: times.observe("a", count, 0, number, 0.0),
            lambda step: times.observe("a", 500 + 97 * (step % 100), 0, (500 + 97 * (step % 100)) / 3125, 1.0),
            2.0,
            lambda: times.forget_older(1 + 2 * MEMORY_SECONDS),
            1.0,
        )

    return make


def prefill_speed() -> Learner:
    times = PrefillTimes(ENGINE)
    return Learner(
        lambda: times.speed,
        (1 / LONGEST_PREFILL_SECONDS, 1 / LEAST_SECONDS),
        lambda count, number: times.observe("a", count, 0, number, 0.0),
        lambda step: times.observe("a", 5000, 0, 5000 / 3125, 1.0),
        3125.0,
        lambda: times.forget_older(1 + 2 * MEMORY_SECONDS),
        6250.0,
    )


def prefill_mean() -> Learner:
    times = PrefillTimes(ENGINE)
    return Learner(
        lambda: times.report().seconds_per_token or 1 / 6250,
        (0.0, LONGEST_PREFILL_SECONDS),
        lambda count, number: times.observe("a", count, 0, number, 0.0),
        lambda step: times.observe("a", 5000, 0, 5000 / 3125, 1.0),
        1 / 3125,
        lambda: times.forget_older(1 + 2 * MEMORY_SECONDS),
        1 / 6250,
    )


def decode_step() -> Learner:
    times = DecodeTimes(ENGINE, min_samples=10)
    return Learner(
        lambda: times.seconds(100_000, 20),
        (0.0, LONGEST_STEP_SECONDS),
        lambda count, number: times.observe(number, count, number, 0.0),
        lambda step: times.observe(1000.0 * (step % 200), step % 40, 0.02 + 1e-4 * (step % 200) + 0.001 * (step % 40), 1.0),
        0.05,
        lambda: times.forget_older(1 + 2 * MEMORY_SECONDS),
    )


def decode_mean() -> Learner:
    times = DecodeTimes(ENGINE)
    return Learner(
        lambda: times.report().seconds_per_token or 0.0,
        (0.0, LONGEST_STEP_SECONDS),
        lambda count, number: times.observe_answer("a", count, number, 0.0),
        lambda step: times.observe_answer("a", 101, 3.0, 1.0),
        0.03,
        lambda: times.forget_older(1 + 2 * MEMORY_SECONDS),
    )


def pace() -> Learner:
    state = [1.0, 1.0]

    def see(seconds: float, predicted: float) -> None:
        state[:] = next_pace(state[0], state[1], seconds, predicted)

    return Learner(
        lambda: state[0],
        (FASTEST, SLOWEST),
        lambda count, number: see(number, max(0, count) / 6250),
        lambda step: see(2 * 1.05, 1.0),
        2.0,
    )


def lifetimes() -> Learner:
    decodes = DecodeLifetimes(20.0)
    return Learner(
        lambda: decodes.mean_seconds,
        (0.0, LONGEST_SECONDS),
        lambda count, number: decodes.observe(number, 0.0),
        lambda step: decodes.observe(5.0, 1.0),
        5.0,
        lambda: decodes.forget_older(1 + 2 * MEMORY_SECONDS),
        20.0,
    )


def answer_lengths() -> Learner:
    answers = AnswerLengths()
    return Learner(
        lambda: answers.expected("t"),
        (0.0, MOST_TOKENS),
        lambda count, number: answers.observe("t", count),
        lambda step: answers.observe("t", 300),
        300.0,
    )


def offered() -> Learner:
    clock = [0.0]
    prefills = OfferedPrefills()

    def tell(step: int) -> None:
        clock[0] += 1.0
        prefills.add(0.5, clock[0])

    def wait() -> None:
        clock[0] += 1e4

    return Learner(
        lambda: prefills.per_second(clock[0]),
        (0.0, inf),
        lambda count, number: prefills.add(min(max(0, count) / 6250, 2 * MOST_PREFILL_SECONDS), clock[0]),
        tell,
        0.5,
        wait,
    )


LEARNERS = {
    "bytes per token": bytes_per_token,
    "prefill, linear": prefill_times("linear"),
    "prefill, bilinear": prefill_times("bilinear"),
    "prefill, mean": prefill_mean,
    "prefill, speed": prefill_speed,
    "decode step": decode_step,
    "decode, mean": decode_mean,
    "pace": pace,
    "lifetimes": lifetimes,
    "answer lengths": answer_lengths,
    "offered prefills": offered,
}


@pytest.mark.parametrize("name", LEARNERS)
@examples(40)
@given(history=st.lists(st.tuples(COUNTS, NUMBERS), max_size=120))
def test_no_history_takes_a_figure_beyond_its_bounds_and_new_truth_outweighs_any(name: str, history: list[tuple[int, float]]) -> None:
    learner = LEARNERS[name]()
    least, most = learner.bounds
    for count, number in history:
        learner.lie(count, number)
        assert least * 0.999 <= learner.figure() <= most * 1.001
    for step in range(3000):
        learner.tell(step)
    assert learner.figure() == pytest.approx(learner.truth, rel=0.1)


@pytest.mark.parametrize("name", [name for name, make in LEARNERS.items() if make().wait is not None])
@examples(40)
@given(history=st.lists(st.tuples(COUNTS, NUMBERS), max_size=120))
def test_a_lie_is_forgotten_with_time_alone(name: str, history: list[tuple[int, float]]) -> None:
    learner = LEARNERS[name]()
    for count, number in history:
        learner.lie(count, number)
    assert learner.wait is not None
    learner.wait()
    assert learner.figure() == pytest.approx(learner.first, abs=1e-6)


def test_a_few_odd_prefills_and_steps_move_a_fit_by_little() -> None:
    times, decodes = PrefillTimes(ENGINE, "linear", min_samples=10), DecodeTimes(ENGINE, min_samples=10)
    dice = np.random.default_rng(5)
    for number in range(400):
        tokens, odd = int(dice.integers(500, 20_000)), number % 20 == 0
        times.observe("a", tokens, 0, tokens / 6250 * (15 if odd else 1), 0.0)
        decodes.observe(float(tokens), 10, 8.0 if odd else 0.03, 0.0)
    assert times.seconds(6250, 0) == pytest.approx(1.0, rel=0.1)
    assert decodes.seconds(5000, 10) == pytest.approx(0.03, rel=0.1)
