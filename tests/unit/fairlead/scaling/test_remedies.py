"""The remedies for a pool that misses its objectives: judged request by request, confirmed, and steady."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from random import Random

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, floats, integers, lists, none, tuples

from fairlead.instances import Role
from fairlead.scaling.remedies import (
    Reach,
    Simulated,
    Tried,
    drop_of,
    enough_instances,
    enough_time,
    first_numbers,
    further_numbers,
    measured_reach,
    nice,
    reach_of,
    swing_of,
)

SHARES = floats(0.0, 1.0)


def tried(value: float, attainment: float, *, fewer: float | None = None, more: float | None = None, error: float = 0.0) -> Tried:
    low, high = attainment if more is None else more, attainment if fewer is None else fewer
    return Tried(value=value, attainments=(attainment, attainment), fewer=high, more=low, error=error)


def found(*numbers: Tried, before: float = 0.3, held: int | None = None, unlike: str | None = None) -> Simulated:
    return Simulated(
        simulation="s",
        role=Role.BOTH,
        present=2,
        goal=0.9,
        ttft_seconds=2.0,
        tpot_seconds=0.1,
        requests=1000,
        seconds=3600.0,
        before=before,
        numbers=numbers,
        ttfts=numbers,
        reach=Reach(requests=1000),
        held=held,
        unlike=unlike,
    )


def test_the_least_number_that_keeps_the_goal_is_confirmed_with_the_range_of_less_and_more_traffic() -> None:
    chosen = enough_instances(found(tried(4, 0.7, fewer=0.92), tried(6, 0.95, more=0.8), tried(8, 0.99, more=0.96)))
    assert chosen is not None
    assert (chosen.value, chosen.meets, chosen.least, chosen.most) == (6, True, 4, 8)


def test_a_number_that_may_miss_the_goal_by_chance_is_not_said_to_keep_it() -> None:
    chosen = enough_instances(found(tried(6, 0.92, error=0.05), tried(8, 0.97, error=0.02)))
    assert chosen is not None
    assert chosen.value == 8
    assert chosen.surely == pytest.approx(0.95)


def test_where_no_number_keeps_the_goal_the_least_that_is_about_as_good_as_the_best_is_offered_for_what_it_brings() -> None:
    chosen = enough_instances(found(tried(4, 0.40), tried(8, 0.463), tried(20, 0.467)))
    assert chosen is not None
    assert (chosen.value, chosen.attainment, chosen.meets) == (8, 0.463, False)


def test_nothing_is_offered_that_brings_next_to_nothing_or_that_no_simulation_confirms() -> None:
    assert enough_instances(found(tried(8, 0.31), tried(20, 0.31))) is None
    assert enough_instances(found(replace(tried(8, 0.95), unknown="chance decides"))) is None
    assert enough_instances(found(tried(8, 0.95), unlike="it is not like this one")) is None
    assert enough_time(found(tried(8, 0.95), unlike="it is not like this one")) is None


def test_the_number_offered_before_stands_while_it_is_within_the_new_range() -> None:
    numbers = (tried(6, 0.95, more=0.85), tried(7, 0.96, more=0.88), tried(8, 0.99))
    kept, left = enough_instances(found(*numbers, held=7)), enough_instances(found(*numbers, held=12))
    assert kept is not None and left is not None
    assert (kept.value, left.value) == (7, 6)


@given(lists(tuples(integers(3, 64), SHARES, SHARES, SHARES, floats(0.0, 0.2)), max_size=8), SHARES, none() | integers(3, 64))
def test_what_is_confirmed_was_tried_helps_and_lies_in_its_range(
    figures: list[tuple[int, float, float, float, float]], before: float, held: int | None
) -> None:
    numbers = {one[0]: tried(one[0], one[1], fewer=one[2], more=one[3], error=one[4]) for one in figures}
    simulated = found(*numbers.values(), before=before, held=held)
    chosen = enough_instances(simulated)
    if chosen is None:
        return
    assert chosen.attainment == numbers[int(chosen.value)].attainment
    assert chosen.surely > before
    assert chosen.least <= chosen.value <= (chosen.most or chosen.value)
    assert not chosen.meets or chosen.surely >= simulated.goal
    again = enough_instances(replace(simulated, held=int(chosen.value)))
    assert again is not None and again.value == chosen.value, "the same figures give the same number"


def test_requests_beyond_any_number_are_counted_with_the_target_that_would_do() -> None:
    alone = [0.5] * 80 + [3.0] * 16 + [6.0] * 3 + [None]
    refused = [False] * 80 + [True] * 10 + [False] * 6 + [True] * 4
    reach = reach_of(alone, refused, ttft_seconds=2.0, goal=0.9, speed=6250.0)
    assert (reach.beyond, reach.too_long, reach.refused, reach.refused_beyond, reach.tokens) == (20, 1, 14, 14, 12_500)
    assert reach.share == 0.2
    assert reach.share_of_refused == 1.0
    assert reach.ttft_seconds == nice(3.3)
    assert reach.exceeds(0.1)
    assert not reach.exceeds(0.15), "by chance it may be so many"


@given(lists(tuples(none() | floats(0.01, 1000.0), booleans()), max_size=60), floats(0.1, 100.0), floats(0.5, 1.0))
def test_the_target_that_would_do_leaves_fewer_beyond_than_may_be_late(
    each: list[tuple[float | None, bool]], ttft_seconds: float, goal: float
) -> None:
    alone, refused = [one for one, _ in each], [one for _, one in each]
    reach = reach_of(alone, refused, ttft_seconds, goal, None)
    assert reach.refused_beyond <= min(reach.refused, reach.beyond) and reach.beyond <= reach.requests
    if reach.ttft_seconds is not None:
        assert reach.ttft_seconds > ttft_seconds
        assert reach_of(alone, refused, reach.ttft_seconds, goal, None).beyond <= (1 - goal) * len(each) + 1e-9


@given(integers(1, 40), none() | integers(1, 100), integers(1, 64))
def test_numbers_to_try_are_more_than_there_are_and_no_more_than_there_may_be(present: int, estimate: int | None, most: int) -> None:
    numbers = first_numbers(present, estimate, most)
    assert all(present < number <= most for number in numbers)
    assert bool(numbers) == (most > present)


@given(lists(tuples(integers(3, 64), SHARES), min_size=1, max_size=6, unique_by=lambda one: one[0]))
def test_further_numbers_are_about_those_that_were_tried(first: list[tuple[int, float]]) -> None:
    numbers = further_numbers(2, dict(first), 0.9)
    assert numbers
    assert all(2 < number <= max(value for value, _ in first) for number in numbers)


def test_a_number_that_more_work_would_break_promises_less() -> None:
    """There are few requests, and one is a tenth of all work: the next ones may bring half as much work again."""
    swing = swing_of([1.0] * 90 + [10.0])
    assert swing == pytest.approx(1.645 * 2 * (90 + 100) ** 0.5 / 100)
    assert drop_of(0.95, more=0.75, rate=1.25, swing=swing) == pytest.approx(0.2 * swing / 0.25)
    assert drop_of(0.95, more=0.95, rate=1.25, swing=swing) == 0.0, "more work breaks nothing there"
    assert drop_of(0.3, more=0.0, rate=1.25, swing=1.0) == 0.3


@given(lists(floats(0.0, 100.0), min_size=1, max_size=40), integers(1, 5))
def test_the_work_of_sessions_swings_no_less_than_that_of_their_requests(alone: list[float], sessions: int) -> None:
    of_requests, of_sessions = swing_of(alone), swing_of(alone, [str(number % sessions) for number in range(len(alone))])
    assert 0 <= of_requests <= of_sessions + 1e-9 <= 1.645 * 2 + 1e-6
    assert swing_of(alone * 4) == pytest.approx(of_requests / 2), "four times as many swing half as much"


def test_a_poisson_process_brings_more_than_the_swing_in_one_of_twenty_cases() -> None:
    rng = Random(1)

    def half() -> float:
        count = sum(1 for _ in takewhile(lambda at: at < 200, accumulate(rng.expovariate(1.0) for _ in range(400))))
        return sum(rng.lognormvariate(0, 1) for _ in range(count))

    swing = swing_of([rng.lognormvariate(0, 1) for _ in range(400)])
    more = sum(half() > half() * (1 + swing) for _ in range(1000))
    assert 20 <= more <= 90


# --- measured reach


def measured(idle: Sequence[float], others: int = 0, target: float = 0.001) -> Reach | None:
    return measured_reach([*idle, *[None] * others], [1.0] * (len(idle) + others), target, 0.9)


def test_requests_that_idle_instances_serve_too_late_show_the_target_that_they_would_meet() -> None:
    reach = measured([0.04] * 94 + [0.08] * 6)
    assert reach == Reach(requests=100, beyond=100, ttft_seconds=0.1), "95 % took at most 80 ms, and a tenth is added"


def test_a_target_is_a_whole_number_of_milliseconds_as_manifests_write_them() -> None:
    reach = measured([0.00105] * 100)
    assert reach is not None and reach.ttft_seconds == 0.002


@pytest.mark.parametrize(
    ("idle", "others", "target"),
    [
        ([0.04] * 19, 0, 0.001),  # too few
        ([0.04] * 100, 0, 0.05),  # in time
        ([0.04] * 15, 85, 0.001),  # most waited for other prompts: with more instances they might not
        ([0.04] * 92 + [0.2] * 8, 0, 0.05),  # fewer than may be late
        ([], 100, 0.001),
    ],
)
def test_too_few_requests_that_idle_instances_serve_too_late_show_nothing(idle: list[float], others: int, target: float) -> None:
    assert measured(idle, others, target) is None


def test_a_kept_decision_counts_for_the_requests_that_it_stands_for() -> None:
    """All late requests are kept, and one of twenty others. So 50 late and 50 other kept requests mean 5 % late
    ones.
    """
    assert measured_reach([0.04] * 50 + [0.0001] * 50, [1.0] * 50 + [20.0] * 50, 0.001, 0.9) is None
    assert measured_reach([0.04] * 50 + [0.0001] * 50, [20.0] * 50 + [1.0] * 50, 0.001, 0.9) is not None
