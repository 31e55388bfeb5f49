"""Clocks that a process hands to the code that needs the time."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar


def utc_now() -> datetime:
    """The machine's wall clock, in UTC."""
    return datetime.now(UTC)


LOOK_SECONDS = 1.0
"""Pause between two looks at the wall clock."""
BEHIND_SECONDS = 5.0
"""The time lags behind the wall clock by more than this only if the machine was suspended unnoticed, or the wall clock
was set.
"""
BELIEVED_SECONDS = 60.0
"""A wall clock that is ahead is trusted after this long, because a wrongly set clock may be corrected before."""


def _ticking() -> Callable[[], float]:
    """The monotonic clock; if the system has one, the variant that continues while the machine is suspended."""
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic


class SteadyClock:
    """Unix seconds that never go back, even when the machine's wall clock is set back.

    The monotonic clock advances the time. Because that may stand still (for example with a paused virtual machine), the
    time jumps to the wall clock after being far behind it for a while.
    """

    __slots__ = ("_anchor", "_behind_since", "_look_at", "_monotonic", "_wall")

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] | None = None) -> None:
        self._wall = wall
        self._monotonic = monotonic or _ticking()
        self._anchor = wall() - self._monotonic()
        self._look_at = 0.0
        self._behind_since: float | None = None

    def __call__(self) -> float:
        ticks = self._monotonic()
        if ticks >= self._look_at:
            self._look(ticks)
        return self._anchor + ticks

    def _look(self, ticks: float) -> None:
        self._look_at = ticks + LOOK_SECONDS
        anchor = self._wall() - ticks
        if anchor - self._anchor <= BEHIND_SECONDS:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = ticks
        elif ticks - self._behind_since >= BELIEVED_SECONDS:
            self._anchor, self._behind_since = anchor, None


class AwakeClock:
    """Starts at the time of `clock` and then advances only while this process runs: not while it is stopped, swapped
    out or suspended.

    It is used to measure silence, because a process receives nothing while it sleeps. `look` must be called often; of
    the time between two calls, at most `LONGEST_LOOK_SECONDS` count.
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
