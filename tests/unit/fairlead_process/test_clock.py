"""Clocks."""

from datetime import UTC

from fairlead_process.clock import SteadyClock, utc_now


def test_a_wall_clock_that_is_stepped_back_does_not_take_the_steady_clock_back() -> None:
    monotonic = iter([5.0, 6.5, 7.0])
    wall = iter([1_000.0])
    clock = SteadyClock(lambda: next(wall), lambda: next(monotonic))
    assert (clock(), clock()) == (1_001.5, 1_002.0)


def test_now_knows_its_zone() -> None:
    assert utc_now().tzinfo is UTC
