"""Bounds the share of the event loop's time in which the responses of one engine are read.

Reading an engine's bytes usually costs a few nanoseconds each. Bytes that were made to be costly (blank lines,
comments, events without text) cost a hundred times as much, and an engine can send them faster than they can be read.
Such an engine would block the event loop, which serves every pool. Therefore a long piece is read in steps, and an
engine whose bytes cost too much is read no faster than its share of the loop allows. The router stops reading the
engine's connections until the share is free again, and TCP slows the engine down.

The bound is a leaky bucket for each engine (Turner, "New directions in communications", 1986). It counts only the time
beyond the usual cost of bytes, so an engine that sends usual responses is not slowed, however much it sends.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PART_BYTES = 4096
"""Maximum number of bytes that are read without looking at the clock."""
QUICK_BYTES = 1024
"""Maximum size in bytes of a piece that is read without measuring its time, because the measurement would cost more
than it saves.
"""
STEP_SECONDS = 0.0005
"""Seconds after which a step of reading ends, so that the event loop can serve others."""
USUAL_SECONDS, USUAL_SECONDS_A_BYTE = 50e-6, 20e-9
"""Usual seconds for a piece of a response: a fixed part, mostly for writing the piece to the client, and a part for
each byte.
"""
SHARE = 0.05
"""Maximum share of the event loop's time that one engine's bytes may take beyond their usual time."""
BURST_SECONDS = 0.01
"""Seconds beyond the usual time that an engine's bytes may take at once. A step counts with at most this many seconds,
because a longer step was delayed by other work, such as a garbage collection, and not by the bytes.
"""
_SHORTEST_PAUSE = 1e-6
"""Pauses shorter than this many seconds count as zero, because the computed times are not more exact."""


class LoopTime:
    """The time beyond the usual time that each engine's bytes have taken, by the engine's address. `clock` returns the
    seconds of CPU time of this thread; `now` returns seconds of a clock that also runs while the thread waits.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time, now: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._now = now
        self.free_at: dict[str, float] = {}
        """By engine address: the time from which the engine may have a whole burst again. An engine that may have one
        now is missing.
        """

    def pause(self, address: str) -> float:
        """Return the number of seconds for which the engine must not be read; 0 if it may be read now."""
        free_at = self.free_at.get(address)
        if free_at is None:
            return 0.0
        left = free_at - self._now()
        if left <= 0:
            del self.free_at[address]
        pause = left - BURST_SECONDS / SHARE
        return pause if pause > _SHORTEST_PAUSE else 0.0

    def step(self, address: str, size: int, read: Callable[[int, int], bool]) -> int:
        """Read up to `size` bytes of this engine for at most the time of one step, and return the number of bytes read.

        `read` is called with the start and the end of each part, which has at most PART_BYTES, and returns whether more
        may be read.
        """
        began, at, spent, more = self.clock(), 0, 0.0, True
        while more and at < size and spent <= STEP_SECONDS:
            end = min(size, at + PART_BYTES)
            more = read(at, end)
            at = end
            spent = self.clock() - began
        self.count(address, spent, at)
        return at

    def count(self, address: str, spent: float, size: int) -> None:
        """Record that a step took `spent` seconds for `size` bytes of this engine."""
        unusual = min(spent - USUAL_SECONDS - size * USUAL_SECONDS_A_BYTE, BURST_SECONDS)
        if unusual > 0:
            now = self._now()
            self.free_at[address] = max(now, self.free_at.get(address, now)) + unusual / SHARE

    def forget(self) -> None:
        """Forget the engines that may have a whole burst again. Called regularly, to bound the memory."""
        now = self._now()
        self.free_at = {address: at for address, at in self.free_at.items() if at > now}
