"""Clocks."""

import time
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_process.clock import SET_SECONDS, AwakeClock, OtherClock, SteadyClock, file_age, utc_now
from fairlead_testing.examples import examples

HOURS = 48 * 3600.0
SETTINGS = st.floats(-HOURS, HOURS)
"""Seconds by which somebody sets a wall clock."""


@dataclass
class Machine:
    """The wall clock and the monotonic clock of a machine."""

    wall: float = 1_700_000_000.0
    monotonic: float = 5.0

    def clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.monotonic)

    def run(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@examples(100)
@given(st.lists(st.tuples(st.floats(0.0, 90.0), SETTINGS), max_size=20))
def test_what_a_clock_measures_is_the_seconds_that_have_passed_however_the_wall_clock_is_set(steps: list[tuple[float, float]]) -> None:
    machine = Machine()
    clock = machine.clock()
    for passed, set_by in steps:
        began, machine.wall = clock(), machine.wall + set_by
        machine.run(passed)
        assert clock() - began == pytest.approx(passed, abs=1e-5)


def test_a_clock_that_is_two_hours_ahead_for_a_minute_is_not_believed_after_it() -> None:
    machine = Machine()
    clock = machine.clock()
    began, machine.wall = clock(), machine.wall + 7_200.0
    for second in range(1, 181):
        machine.run(1.0)
        assert clock() - began == second


def test_the_clock_of_the_machine_goes_on_from_its_wall_clock() -> None:
    before = time.time()
    clock = SteadyClock()
    first, second = clock(), clock()
    assert before - 1.0 < first <= second < time.time() + 1.0


def test_now_knows_its_zone() -> None:
    assert utc_now().utcoffset() is not None


def test_a_file_of_the_future_is_new() -> None:
    assert file_age(time.time() + 7_200.0) == 0.0
    assert file_age(time.time() - 7_200.0) >= 7_200.0


@examples(100)
@given(st.lists(st.tuples(SETTINGS, st.floats(0.0, 5.0), st.floats(0.0, 5.0)), min_size=1, max_size=10))
def test_another_clock_is_known_within_what_its_answer_took(answers: list[tuple[float, float, float]]) -> None:
    machine, other = Machine(), OtherClock()
    clock = machine.clock()
    for ahead, there, back in answers:
        asked_at = clock()
        machine.run(there)
        said = clock() + ahead
        machine.run(back)
        other.hear(said, asked_at, clock())
        assert abs(other.ahead_seconds - ahead) <= there + back + SET_SECONDS + 1e-5


def test_an_answer_that_a_clock_as_ours_may_have_given_changes_nothing() -> None:
    other = OtherClock()
    assert other.hear(101.0, 100.0, 104.0)
    assert (other.ahead_seconds, other.is_known) == (0.0, True)
    assert not other.hear(103.5, 100.0, 104.0)


def test_a_process_that_says_no_times_counts_as_one_whose_clock_is_as_ours() -> None:
    other = OtherClock()
    assert other.hear(None, 100.0, 104.0)
    assert (other.ahead_seconds, other.is_known) == (0.0, True)
    assert not other.hear(None, 200.0, 204.0)


def test_an_awake_clock_stands_still_while_its_process_does() -> None:
    machine = Machine()
    awake = AwakeClock(machine.clock())
    begun = awake()
    for _ in range(50):
        machine.run(0.02)
        awake.look()
    assert round(awake() - begun, 6) == 1.0
    machine.run(4_000.0)
    awake.look()
    assert awake() - begun <= 1.0 + AwakeClock.LONGEST_LOOK_SECONDS
    machine.wall += 90.0
    for _ in range(100):
        machine.run(1.0)
        awake.look()
    assert awake() - begun <= 102.0 + AwakeClock.LONGEST_LOOK_SECONDS
