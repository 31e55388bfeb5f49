"""The `deadline` discipline: which requests are planned, which go first, which are late and when late ones go."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.deadline import (
    FASTEST,
    MOST_TIMES,
    RISING_AMONG_OTHERS,
    SHORT_SECONDS,
    SLOWEST,
    STEP_SECONDS,
    DeadlineQueue,
    DeadlineRules,
    next_pace,
)
from fairlead_testing.builders.routing import load_of, request
from fairlead_testing.examples import examples

TARGET = 5.0
DUE = TARGET * 0.98
"""The time until which a request that arrived at 0 counts as in time; a fiftieth of the target is kept as a margin."""


class Line:
    """A queue of an idle engine whose prefills take the times that a test sets; `calm` may be changed."""

    def __init__(self, share: float = 0.0, calm: bool = False, load: InstanceLoad | None = None, decode_share: float = 0.0) -> None:
        self.calm = calm
        self.late: list[str] = []
        self.decode_share = decode_share
        rules = DeadlineRules(
            late_share=share,
            late_may_go=lambda: self.calm,
            found_late=lambda tracked: self.late.append(tracked.request.id),
            has_time=lambda: self.calm,
            decode_share=lambda load: self.decode_share,
            speed=lambda: 6250.0,
        )
        self.queue = DeadlineQueue(load or load_of("i0"), TARGET, rules)

    def add(self, name: str, seconds: float, at: float = 0.0) -> None:
        """Add a request whose prefill takes this long after it is sent, including the rest of the engine's step."""
        tracked = TrackedRequest(request=request(name, at=at), submitted_at=at, waiting_since=at)
        tracked.prefill_microseconds = round(1e6 * (seconds - STEP_SECONDS))
        self.queue.add(tracked)

    def take(self, now: float) -> str | None:
        tracked = self.queue.take(now)
        return None if tracked is None else tracked.request.id


def line(*prefills: tuple[str, float], share: float = 0.0, calm: bool = False, load: InstanceLoad | None = None) -> Line:
    made = Line(share, calm, load)
    for name, seconds in prefills:
        made.add(name, seconds)
    return made


def test_the_shortest_goes_first_while_all_can_be_in_time() -> None:
    waiting = line(("long", 3.0), ("short", 0.5), ("middle", 1.0))
    assert [waiting.take(0.0), waiting.take(0.5), waiting.take(1.5)] == ["short", "middle", "long"]


def test_beside_what_is_in_flight_only_requests_that_can_be_in_time_are_taken() -> None:
    waiting = line(("late", 6.0), ("good", 1.0), calm=True)
    found = waiting.queue.take_in_time(0.0)
    assert found is not None
    assert found.request.id == "good"
    assert waiting.queue.take_in_time(0.0) is None
    assert waiting.take(0.0) == "late"


def test_the_shortest_waits_when_going_first_would_make_another_late() -> None:
    waiting = line(("urgent", 3.0))
    waiting.add("short", 0.5, at=1.7)
    assert waiting.take(1.7) == "urgent"  # due at 4.9, and 1.7 + 0.5 + 3.0 is later
    assert waiting.take(4.7) == "short"


def test_of_those_that_cannot_all_be_in_time_the_longest_is_left_out() -> None:
    waiting = line(("first", 4.0), ("second", 1.0), ("third", 1.0))
    assert waiting.take(0.0) == "second"
    assert waiting.take(1.0) == "third"
    assert waiting.take(2.0) is None, "the first would now be late, and the pool is not calm"
    assert waiting.late == ["first"]


def test_a_request_left_out_of_one_plan_is_planned_again_when_there_is_room() -> None:
    waiting = line(("first", 4.0), ("second", 1.0), ("third", 1.0))
    waiting.queue.remove("second")
    waiting.queue.remove("third")
    assert waiting.take(0.5) == "first"


def test_late_requests_go_shortest_first_when_the_pool_is_calm() -> None:
    waiting = line(("long", 3.0), ("short", 1.0))
    assert waiting.take(4.5) is None
    assert waiting.late == ["long", "short"]
    waiting.calm = True
    assert [waiting.take(4.5), waiting.take(5.5), waiting.take(8.5)] == ["short", "long", None]


def test_a_late_request_that_left_the_queue_is_not_taken() -> None:
    waiting = line(("long", 3.0), ("short", 1.0), calm=True)
    waiting.queue.find_late(4.5)
    waiting.queue.remove("short")
    assert [waiting.take(4.5), waiting.take(7.5)] == ["long", None]


def test_a_request_that_can_be_in_time_goes_before_late_ones_even_when_the_pool_is_calm() -> None:
    waiting = line(("late", 1.0), calm=True)
    waiting.add("fresh", 4.0, at=4.5)
    assert [waiting.take(4.5), waiting.take(8.5)] == ["fresh", "late"]


def test_late_requests_earn_their_share_of_the_time_of_others() -> None:
    waiting = line(("late", 1.0), share=0.25)
    sent = []
    for number in range(8):
        now = 4.5 + number
        waiting.add(f"r{number}", 1.0, at=now)
        sent.append(waiting.take(now))
    assert sent == ["r0", "r1", "r2", "r3", "late", "r4", "r5", "r6"], "after four seconds of others, a quarter of them is one second"


def test_what_is_in_flight_comes_first() -> None:
    waiting = line(("fits", 1.0), load=load_of("i0", dispatched_prefill_tokens=6250 * 4))
    assert waiting.take(0.5) is None, "four seconds of prefill are ahead: 0.5 + 4 + 1 is too late, though it is not late by itself"
    assert waiting.late == []


def test_prefills_are_expected_to_take_as_long_as_the_instances_pace_says() -> None:
    slow = load_of("i0")
    slow.prefill_pace = 2.0
    waiting = line(("long", 3.0), load=slow)
    assert waiting.take(0.0) is None
    assert waiting.late == ["long"]


def test_the_pace_follows_what_prefills_take_and_one_prefill_moves_it_little() -> None:
    pace, usual = next_pace(1.0, 1.0, 100.0, 1.0)
    assert 1.0 < pace < 1.35
    for _ in range(60):
        pace, usual = next_pace(pace, usual, 2.1, 1.0)
    assert abs(pace - 2.0) < 0.02
    assert usual == pytest.approx(1.05, abs=0.01)


def test_a_prefill_counts_for_the_pace_by_its_length() -> None:
    """Nine of ten prefills end before the step for which they were expected to wait. The tenth takes nearly all of the
    time.
    """
    pace = usual = 1.0
    for number in range(2000):
        seconds = 2.05 if number % 10 == 0 else 0.02
        pace, usual = next_pace(pace, usual, seconds, 2.0 if number % 10 == 0 else 0.02, weight=0.002)
    assert pace == pytest.approx((2.05 + 9 * 0.02) / (2.05 + 9 * 0.07), abs=0.01)
    assert usual == pytest.approx((2.05 + 9 * 0.07) / 10, abs=0.02)


@given(st.lists(st.tuples(st.floats(0.001, 100.0), st.floats(0.0, 100.0)), max_size=50), st.sampled_from([0.02, 0.1]))
def test_a_pace_stays_plausible_and_follows_one_prefill_by_a_part_whatever_their_lengths(
    prefills: list[tuple[float, float]], weight: float
) -> None:
    pace = usual = 1.0
    for seconds, predicted in prefills:
        before = pace
        pace, usual = next_pace(pace, usual, seconds, predicted, weight)
        assert FASTEST <= pace <= SLOWEST
        assert before / MOST_TIMES - 1e-9 <= pace <= before * MOST_TIMES + 1e-9
        assert usual > 0


@pytest.mark.parametrize("factor", [0.02, 0.1, 10.0, 50.0])
def test_no_bound_hides_that_an_instance_is_ten_or_fifty_times_as_fast_or_slow(factor: float) -> None:
    pace = usual = 1.0
    for _ in range(100):
        pace, usual = next_pace(pace, usual, factor * 1.05, 1.0)
    assert pace == pytest.approx(factor, rel=0.15)


def test_among_other_routers_the_pace_is_that_of_the_shorter_prefills() -> None:
    """Half of the prefills wait for a prefill of another router with the same length, which does not make the instance
    slower.
    """
    alone = among_others = usual = 1.0
    for number in range(400):
        seconds = 2.1 if number % 2 else 1.05
        alone, _ = next_pace(alone, usual, seconds, 1.0)
        among_others, usual = next_pace(among_others, usual, seconds, 1.0, rising=RISING_AMONG_OTHERS)
    assert alone == pytest.approx(1.5, abs=0.06)
    assert among_others == pytest.approx(1.1, abs=0.06)
    for _ in range(400):
        among_others, usual = next_pace(among_others, usual, 2.1, 1.0, rising=RISING_AMONG_OTHERS)
    assert among_others == pytest.approx(2.0, abs=0.06), "an instance that is slow for all prefills is still found out"


def test_the_order_shown_is_the_planned_by_deadline_then_the_dropped_then_the_late() -> None:
    waiting = line(("late", 2.0))
    waiting.add("dropped", 4.0, at=3.0)
    waiting.add("planned", 1.0, at=3.2)
    waiting.queue.find_late(3.2)
    assert [tracked.request.id for tracked in waiting.queue.in_order(3.2)] == ["planned", "dropped", "late"]


def resting(calm: bool, *prefills: tuple[str, float]) -> Line:
    """Return the queue of an engine whose last prefill ended at 1.0, and whose decodes need three tenths of its
    time.
    """
    waiting = Line(calm=calm, load=load_of("i0", last_first_token_at=1.0), decode_share=0.3)
    for name, seconds in prefills:
        waiting.add(name, seconds, at=1.0)
    return waiting


@pytest.mark.parametrize("calm", [False, True])
def test_decodes_get_their_time_before_the_next_prefill(calm: bool) -> None:
    """Decodes need 0.3 of the time. After a prefill of 1 s, the next one comes after 0.85 of 0.3 / 0.7 s."""
    waiting = resting(calm, ("next", 1.0 + STEP_SECONDS))
    assert [waiting.take(at) for at in (1.0, 1.36)] == [None, None]
    assert waiting.take(1.37) == "next"


def test_a_shorter_prefill_that_comes_during_a_rest_goes_first_and_sooner() -> None:
    waiting = resting(False, ("long", 2.0))
    assert waiting.take(1.2) is None
    waiting.add("short", 0.35, at=1.2)
    assert waiting.take(1.2) == "short"


def test_short_prefills_go_together_until_the_rest_of_one_is_owed_and_then_rest_together() -> None:
    """Decodes need half of the time. Prefills of 0.04 s need rests of 0.034 s each, of which 0.085 s may be owed."""
    load = load_of("i0", last_first_token_at=1.0)
    waiting = Line(load=load, decode_share=0.5)
    for number in range(6):
        waiting.add(f"short{number}", 0.04 + STEP_SECONDS, at=1.0)
    assert [waiting.take(1.0) for _ in range(3)] == ["short0", "short1", None]
    assert load.rest_owed == pytest.approx(2 * 0.85 * 0.04)
    assert [waiting.take(1.016), waiting.take(1.018), waiting.take(1.018)] == [None, "short2", None]
    load.prefilling = 1
    assert waiting.queue.take_in_time(1.5) is None, "while something is computed there nothing rests"
    load.prefilling, load.last_first_token_at = 0, 1.5
    assert [waiting.take(1.5), waiting.take(1.6), waiting.take(1.6)] == [None, "short3", "short4"]


@given(
    st.lists(st.tuples(st.floats(0.0, 0.4), st.floats(0.001, 1.0)), min_size=1, max_size=30),
    st.floats(0.05, 0.75),
)
def test_however_prefills_come_decodes_get_their_share_but_for_one_short_rest(arrivals: list[tuple[float, float]], share: float) -> None:
    """The engine computes what it is sent and is observed every 10 ms. When a prefill ends, the engine has rested for
    it and for all prefills before it, except for the time that may be owed.
    """
    load = load_of("i0", last_first_token_at=0.0)
    waiting = Line(load=load, decode_share=share)
    due: list[tuple[float, float]] = []
    at = 0.0
    for gap, seconds in arrivals:
        at += gap
        due.append((at, seconds))
    now, busy_until, computed, rested = 0.0, 0.0, 0.0, 0.0
    lengths: dict[str, float] = {}
    while now < at + 2.0:
        while due and due[0][0] <= now:
            name = f"r{len(lengths)}"
            lengths[name] = due[0][1]
            waiting.add(name, due.pop(0)[1] + STEP_SECONDS, at=now)
        if busy_until <= now:
            if load.prefilling:
                load.prefilling, load.last_first_token_at = 0, now
            taken = waiting.take(now)
            if taken is not None:
                computed += lengths[taken]
                assert rested >= computed * 0.85 * share / (1 - share) - 0.1 * 0.85 * share / (1 - share) - 1e-6
                load.prefilling, busy_until = 1, now + lengths[taken]
        if not load.prefilling:
            rested += 0.01
        now += 0.01


def test_only_what_is_short_goes_without_a_rest_together_with_what_is_in_flight() -> None:
    load = load_of("i0", dispatched_prefill_tokens=round(6250 * 0.05), prefilling=1)
    waiting = Line(load=load, decode_share=0.5)
    waiting.add("long", 2.0)
    assert waiting.queue.take_in_time(0.0) is None, "2 s of prefill need as long a rest, which begins when that is over"
    waiting.add("short", SHORT_SECONDS - 0.01)
    found = waiting.queue.take_in_time(0.0)
    assert found is not None
    assert found.request.id == "short"
    waiting.decode_share = 0.0
    assert waiting.queue.take_in_time(0.0) is not None, "nothing decodes"


def test_a_long_one_goes_together_with_what_is_in_flight_before_a_rest_would_make_it_late() -> None:
    load = load_of("i0", dispatched_prefill_tokens=round(6250 * 0.05), prefilling=1)
    waiting = Line(load=load, decode_share=0.5, calm=True)
    waiting.add("long", 3.0)
    assert waiting.queue.take_in_time(0.0) is None
    assert waiting.queue.take_in_time(1.0) is not None, "due at 4.9, and a quarter of the target is kept for who comes next"


def test_while_the_pool_has_time_nobody_becomes_late_for_a_rest_and_beyond_it_rests_are_kept() -> None:
    """The request is due at 5.9 and takes 3.4 s. The rest would last until 2.24. It ends at 1.28, a quarter of the
    target (1.22 s) before the request would become late.
    """
    for calm, sent in ((True, "urgent"), (False, None)):
        waiting = resting(calm, ("urgent", 3.4))
        assert waiting.take(1.22) is None
        assert waiting.take(1.23) == sent, "at the last look before"
        assert waiting.late == []


def test_a_rest_ends_early_when_those_in_line_would_be_in_time_only_just() -> None:
    """Two requests take 2.2 s each. The second would end half a second before it is due, which is less than a quarter
    of the target.
    """
    waiting = resting(True, ("first", 2.2))
    assert waiting.take(1.45) is None, "alone it rests until 1.80"
    waiting.add("second", 2.2, at=1.45)
    assert waiting.take(1.45) == "first"


def test_late_requests_keep_rests_unless_the_pool_is_calm() -> None:
    waiting = resting(True, ("late", 6.0))
    assert waiting.take(1.0) == "late"
    waiting = Line(load=load_of("i0", last_first_token_at=1.0), decode_share=0.3, share=0.0)
    waiting.add("late", 6.0, at=1.0)
    waiting.calm = False
    assert waiting.take(1.0) is None


def test_a_rest_ends_when_nothing_decodes_any_more() -> None:
    waiting = resting(False, ("next", 1.0))
    waiting.decode_share = 0.0
    assert waiting.take(1.0) == "next"


PREFILLS = st.lists(st.tuples(st.floats(0.06, 6.0), st.floats(0.0, 4.0)), max_size=9)


def most_in_time(prefills: Sequence[tuple[float, float]], now: float) -> int:
    """Return the largest number of requests that can be in time together from `now` on, by trying all subsets."""
    best = 0
    for chosen in range(1 << len(prefills)):
        ends, fits = now, True
        for seconds, at in sorted((one for index, one in enumerate(prefills) if chosen >> index & 1), key=lambda one: one[1]):
            ends += seconds
            fits = fits and ends <= at + DUE
        best = max(best, chosen.bit_count() if fits else 0)
    return best


@examples(60)
@given(PREFILLS)
def test_as_many_are_in_time_as_any_order_could_bring(prefills: list[tuple[float, float]]) -> None:
    rounded = [(round(seconds, 6), at) for seconds, at in prefills]
    waiting = Line()
    for number, (seconds, at) in enumerate(rounded):
        waiting.add(f"r{number}", seconds, at)
    now, sent = 4.0, 0
    while (name := waiting.take(now)) is not None:
        seconds, at = rounded[int(name[1:])]
        now += seconds
        assert now <= at + DUE + 1e-6, "nothing is sent in vain while the pool is not calm"
        sent += 1
    assert sent == most_in_time(rounded, 4.0)


@examples(60)
@given(PREFILLS, st.lists(st.floats(0.0, 3.0), max_size=9), st.booleans(), st.sampled_from([0.0, 0.1, 1.0]))
def test_every_request_is_taken_exactly_once_when_the_pool_calms_down(
    prefills: list[tuple[float, float]], pauses: list[float], calm: bool, share: float
) -> None:
    waiting = Line(share=share, calm=calm)
    for number, (seconds, at) in enumerate(prefills):
        waiting.add(f"r{number}", seconds, at)
    assert len(waiting.queue) == len(prefills)
    now, taken = 4.0, []
    for pause in pauses:
        now += pause
        taken.append(waiting.take(now))
    waiting.calm = True
    taken.extend(waiting.take(now) for _ in prefills)
    assert sorted(name for name in taken if name is not None) == sorted(f"r{number}" for number in range(len(prefills)))
    assert len(waiting.queue) == 0
    assert waiting.take(now) is None


@examples(60)
@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.sampled_from([0.5, 1.0, 1.5, 2.0]), st.floats(0.06, 3.0), st.booleans()), max_size=30))
def test_late_are_at_each_look_those_past_their_latest_start_however_the_pace_moves(steps: list[tuple[float, float, float, bool]]) -> None:
    load = load_of("i0")
    waiting = Line(load=load)
    able: dict[str, tuple[float, int]] = {}
    now = 0.0
    for number, (pause, pace, seconds, leaves) in enumerate(steps):
        now += pause
        waiting.add(f"r{number}", seconds, at=now)
        able[f"r{number}"] = now, round(1e6 * (seconds - STEP_SECONDS))
        load.prefill_pace = pace
        if leaves:
            oldest = next(iter(able))
            waiting.queue.remove(oldest)
            del able[oldest]
        waiting.late.clear()
        waiting.queue.find_late(now)
        late = [name for name, (at, micros) in able.items() if now > at + DUE - (micros / 1e6 * pace + STEP_SECONDS)]
        assert waiting.late == late
        for name in late:
            del able[name]
