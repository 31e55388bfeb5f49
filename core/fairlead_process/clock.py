"""Clocks that a process hands to the code that needs the time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime


def utc_now() -> datetime:
    """The machine's wall clock, in UTC."""
    return datetime.now(UTC)


LOOK_SECONDS = 1.0
"""Pause between two looks at the wall clock."""
BEHIND_SECONDS = 5.0
"""By more than this the time is behind only if the machine was suspended, or its wall clock set."""


class SteadyClock:
    """Unix seconds that never go back, even when the machine's wall clock is set back.

    The monotonic clock advances the time. As that stands still while the machine is suspended, the time leaps to the
    wall clock when it is far behind it.
    """

    __slots__ = ("_anchor", "_look_at", "_monotonic", "_wall")

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._anchor = wall() - monotonic()
        self._look_at = 0.0

    def __call__(self) -> float:
        ticks = self._monotonic()
        if ticks >= self._look_at:
            self._look_at = ticks + LOOK_SECONDS
            anchor = self._wall() - ticks
            if anchor - self._anchor > BEHIND_SECONDS:
                self._anchor = anchor
        return self._anchor + ticks
