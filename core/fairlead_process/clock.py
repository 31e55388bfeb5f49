"""Clocks that a process hands to the code that needs the time."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar


def utc_now() -> datetime:
    """Return the machine's wall clock, in UTC."""
    return datetime.now(UTC)


def file_age(modified_at: float) -> float:
    """Return the seconds since a file was written, at `modified_at` by the wall clock; 0 if that time is in the future
    because the clock was set back.
    """
    return max(0.0, time.time() - modified_at)


SET_SECONDS = 1.0
"""Minimum change, in seconds, of the difference from another process's clock that counts as a change of clocks. Such a
change means that a clock was set or that the other process moved to another machine.
"""


def _ticking() -> Callable[[], float]:
    """Return the monotonic clock; if the system has one, the variant that continues while the machine is suspended."""
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic


class SteadyClock:
    """Unix seconds at the start plus the monotonic clock. It always advances by exactly the seconds that have passed,
    even if the machine's wall clock is set.

    So differences of its times are durations. Its times are as wrong as the wall clock was at the start; code that
    stores them corrects them (`OtherClock`, docs/reports.md).
    """

    __slots__ = ("_anchor", "_monotonic")

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] | None = None) -> None:
        self._monotonic = monotonic or _ticking()
        self._anchor = wall() - self._monotonic()

    def __call__(self) -> float:
        return self._anchor + self._monotonic()

    def utc(self) -> datetime:
        """Return this clock's present time as a datetime in UTC."""
        return datetime.fromtimestamp(self(), UTC)


class OtherClock:
    """The difference between another process's clock and this process's steady clock. With it, times written by the
    other process can be compared with this process's times. Until the difference is known, it is 0.
    """

    __slots__ = ("ahead_seconds", "is_known")

    def __init__(self) -> None:
        self.ahead_seconds = 0.0
        self.is_known = False

    def hear(self, said: float | None, asked_at: float, answered_at: float) -> bool:
        """Record the other process's time `said`, which it sent between the times `asked_at` and `answered_at` of this
        process. `said` is None if the other process sends no time. Return whether the known difference changed.
        """
        latest, earliest = said - asked_at if said is not None else 0.0, said - answered_at if said is not None else 0.0
        if self.is_known and earliest - SET_SECONDS <= self.ahead_seconds <= latest + SET_SECONDS:
            return False
        self.is_known = True
        self.ahead_seconds = min(max(0.0, earliest), latest)
        return True


class AwakeClock:
    """A clock that starts at the time of `clock` and then advances only while this process runs: not while the process
    is stopped, swapped out or suspended.

    It measures silence: a process that sleeps receives nothing, so this time must not count as silence. `look` must be
    called often; of the time between two calls, at most `LONGEST_LOOK_SECONDS` count.
    """

    __slots__ = ("_clock", "_looked_at", "_seconds")

    LONGEST_LOOK_SECONDS: ClassVar[float] = 1.0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._looked_at = self._seconds = clock()

    def look(self) -> None:
        """Record that the process runs."""
        now = self._clock()
        self._seconds += min(max(0.0, now - self._looked_at), self.LONGEST_LOOK_SECONDS)
        self._looked_at = now

    def __call__(self) -> float:
        return self._seconds
