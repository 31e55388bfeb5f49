"""Clocks."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC

from fairlead_process.clock import AwakeClock, SteadyClock, utc_now


def test_a_wall_clock_that_is_stepped_back_does_not_take_the_steady_clock_back() -> None:
    monotonic = iter([5.0, 6.5, 7.0, 9.0])
    wall = iter([1_000.0, 400.0, 402.0])
    clock = SteadyClock(lambda: next(wall), lambda: next(monotonic))
    assert (clock(), clock(), clock()) == (1_001.5, 1_002.0, 1_004.0)


@dataclass
class Machine:
    """The two clocks of a machine."""

    wall: float = 1_000.0
    monotonic: float = 5.0

    def clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.monotonic)


def a_minute_of(clock: Callable[[], float], machine: Machine) -> list[float]:
    """What the clock says at the beginning, then every second for a minute."""
    said = [clock()]
    for _ in range(60):
        machine.monotonic += 1.0
        machine.wall += 1.0
        said.append(clock())
    return said


def test_the_time_for_which_the_machine_stood_still_is_caught_up_with_after_a_minute() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall += 7_200.0
    said = a_minute_of(clock, machine)
    assert (said[0], said[59], said[60]) == (1_000.0, 1_059.0, 8_260.0)
    assert a_minute_of(clock, machine)[60] == 8_320.0


def test_a_wall_clock_that_is_corrected_by_little_changes_nothing() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall += 4.0
    assert a_minute_of(clock, machine)[60] == 1_060.0


def test_a_wall_clock_that_is_set_far_ahead_and_back_within_a_minute_does_not_take_the_time_along() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(3):
        machine.wall += 31_536_000.0
        machine.monotonic += 59.0
        assert clock() == 995.0 + machine.monotonic
        machine.wall -= 31_536_000.0 - 59.0
        machine.monotonic += 1.0
        machine.wall += 1.0
        assert clock() == 995.0 + machine.monotonic
    assert a_minute_of(clock, machine)[60] == machine.wall


def test_the_clock_of_the_machine_goes_on_from_its_wall_clock() -> None:
    before = time.time()
    clock = SteadyClock()
    first, second = clock(), clock()
    assert before - 1.0 < first <= second < time.time() + 1.0


def test_now_knows_its_zone() -> None:
    assert utc_now().tzinfo is UTC


def test_an_awake_clock_stands_still_while_its_process_does() -> None:
    machine = Machine()
    awake = AwakeClock(machine.clock())
    begun = awake()
    for _ in range(50):
        machine.monotonic += 0.02
        machine.wall += 0.02
        awake.look()
    assert round(awake() - begun, 6) == 1.0
    machine.monotonic += 4_000.0
    machine.wall += 4_000.0
    awake.look()
    assert awake() - begun <= 1.0 + AwakeClock.LONGEST_LOOK_SECONDS
    machine.wall += 90.0  # the steady clock leaps to a wall clock that is far ahead
    for _ in range(100):
        machine.monotonic += 1.0
        machine.wall += 1.0
        awake.look()
    assert awake() - begun <= 102.0 + AwakeClock.LONGEST_LOOK_SECONDS
