"""Clocks."""

from datetime import UTC

from fairlead_process.clock import SteadyClock, utc_now


def test_a_wall_clock_that_is_stepped_back_does_not_take_the_steady_clock_back() -> None:
    monotonic = iter([5.0, 6.5, 7.0, 9.0])
    wall = iter([1_000.0, 400.0, 402.0])
    clock = SteadyClock(lambda: next(wall), lambda: next(monotonic))
    assert (clock(), clock(), clock()) == (1_001.5, 1_002.0, 1_004.0)


def test_the_time_for_which_the_machine_was_suspended_is_caught_up_with_and_nothing_less() -> None:
    monotonic = iter([5.0, 6.0, 7.5, 8.0, 9.0])
    wall = iter([1_000.0, 1_003.0, 8_200.0, 8_000.0])
    clock = SteadyClock(lambda: next(wall), lambda: next(monotonic))
    assert clock() == 1_001.0, "a wall clock that is corrected by little changes nothing"
    assert clock() == 8_200.0
    assert (clock(), clock()) == (8_200.5, 8_201.5)


def test_now_knows_its_zone() -> None:
    assert utc_now().tzinfo is UTC
