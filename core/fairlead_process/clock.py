"""Clocks that a process hands to the code that needs the time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime


def utc_now() -> datetime:
    """The machine's wall clock, in UTC."""
    return datetime.now(UTC)


class SteadyClock:
    """Unix seconds that never go back, even when the machine's wall clock is set back.

    The wall clock is read once; after that the monotonic clock advances the time.
    """

    __slots__ = ("_anchor", "_monotonic")

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._anchor = wall() - monotonic()

    def __call__(self) -> float:
        return self._anchor + self._monotonic()
