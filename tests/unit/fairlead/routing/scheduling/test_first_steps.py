"""What a pool knows about its decode steps before its first answers have ended, and when it begins to use that."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import request, table


def decoding(answers: int) -> PoolScheduler:
    """Return a pool of one instance on which this many answers began at 1 s."""
    scheduler = PoolScheduler(table(1, policy="fairlead", window=0), "router-0", 1)
    for number in range(answers):
        scheduler.submit(request(f"r{number}", 1), 0.0)
        scheduler.first_token(f"r{number}", 1.0)
    return scheduler


def step_seconds(scheduler: PoolScheduler) -> float:
    """Return the predicted decode step of the instance at its present load."""
    load = scheduler.load("i00")
    assert load is not None
    return scheduler._state.decode_times.seconds(load.decode_tokens, load.decoding)


@given(st.integers(4, 40), st.floats(0.004, 0.06))
def test_answers_under_way_say_how_long_steps_take_before_any_has_ended(answers: int, step: float) -> None:
    scheduler = decoding(answers)
    for second in range(2, 27):
        for number in range(answers):
            scheduler.generated(f"r{number}", float(second), 1 + int((second - 1) / step))
    assert scheduler.knows_decode_times
    assert step_seconds(scheduler) == pytest.approx(step, rel=0.1)


def test_few_tokens_say_nothing_of_steps() -> None:
    scheduler = decoding(40)
    for number in range(40):
        scheduler.generated(f"r{number}", 1.5, 15)
    assert not scheduler.knows_decode_times


def test_each_token_is_learned_from_once() -> None:
    scheduler = decoding(12)
    for number in range(12):
        scheduler.generated(f"r{number}", 2.0, 51)  # 20 ms a step
    assert not scheduler.knows_decode_times
    for number in range(12):
        scheduler.complete(f"r{number}", 4.0, 101, None)  # 40 ms since then, 30 ms in all
    assert scheduler.knows_decode_times
    assert scheduler._state.decode_times.seconds(0, 12) == pytest.approx(0.03, rel=0.1)
    assert scheduler.decode_estimate().samples == 12


def test_answers_at_the_same_time_teach_no_step_and_are_judged_each_by_its_own_pace() -> None:
    scheduler = PoolScheduler(table(1, policy="fairlead", window=0), "router-0", 1)
    for number in range(12):
        scheduler.submit(replace(request(f"r{number}", 1), answers=8), 0.0)
        scheduler.first_token(f"r{number}", 1.0)
    for number in range(12):
        scheduler.generated(f"r{number}", 2.0, 8 * 11)
        scheduler.complete(f"r{number}", 3.0, 8 * 11, None)  # 11 tokens each in two seconds: 0.2 s a token
    assert not scheduler.knows_decode_times
    (samples,) = [one for one in scheduler.take_records(100.0).loads if one.tpot_total]
    assert (samples.tpot_total, samples.tpot_within_slo) == (12, 0)
