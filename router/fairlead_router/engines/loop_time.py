"""Bounds the time of the event loop that one engine's answers take.

Reading an engine's bytes costs a few nanoseconds each, if they are what engines send. Bytes that were made to be costly
(blank lines, comments, events without text) cost a hundred times as much, and an engine can send them faster than they
can be read: then one engine would hold the event loop, on which every pool is served. So a long piece is read in steps,
and an engine whose bytes cost too much is read no faster than its share of the loop allows: the router stops reading
its connections until the share is free again, and TCP slows the engine down.

The bound is a leaky bucket for each engine (Turner, "New directions in communications", 1986). Only time beyond the
usual cost of bytes counts, so an honest engine is not slowed, however much it sends.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PART_BYTES = 4096
"""Maximum number of bytes that are read without looking at the clock."""
QUICK_BYTES = 1024
"""Size in bytes up to which a piece is read at once and not counted: the clock would cost more than it saves."""
STEP_SECONDS = 0.0005
"""Time after which a step of reading ends, so that others have their turn."""
USUAL_SECONDS, USUAL_SECONDS_A_BYTE = 50e-6, 20e-9
"""Time that a piece of any size usually takes, most of it to write it to the client, and each byte of it."""
SHARE = 0.05
"""Largest share of the event loop for the unusual cost of one engine's bytes."""
BURST_SECONDS = 0.01
"""Unusual cost that an engine may have at once. A step counts as no more than this: what takes longer is not the bytes,
but a garbage collection or other work that happened to run then.
"""
_SHORTEST_PAUSE = 1e-6
"""A shorter pause in seconds counts as zero, because sums of times are not more exact than that."""


class LoopTime:
    """The unusual cost of each engine's bytes, by address. `clock` returns seconds of work of this thread, from any
    start; `now` returns seconds of any clock that goes on while the thread waits.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time, now: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._now = now
        self.free_at: dict[str, float] = {}
        """The time from which an engine may have a whole burst again; not there if it may now."""

    def pause(self, address: str) -> float:
        """Return for how many seconds this engine must not be read; 0 = it may be read now."""
        free_at = self.free_at.get(address)
        if free_at is None:
            return 0.0
        left = free_at - self._now()
        if left <= 0:
            del self.free_at[address]
        pause = left - BURST_SECONDS / SHARE
        return pause if pause > _SHORTEST_PAUSE else 0.0

    def step(self, address: str, size: int, read: Callable[[int, int], bool]) -> int:
        """Read up to `size` bytes of this engine, for as long as one step may take. `read` is called with the beginning
        and the end of the next part, of at most PART_BYTES, and returns whether more may be read. Return the number of
        bytes that were read.
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
        """Count a step in which `size` bytes of this engine took `spent` seconds."""
        unusual = min(spent - USUAL_SECONDS - size * USUAL_SECONDS_A_BYTE, BURST_SECONDS)
        if unusual > 0:
            now = self._now()
            self.free_at[address] = max(now, self.free_at.get(address, now)) + unusual / SHARE

    def forget(self) -> None:
        """Forget the engines that may have a whole burst again. Called now and then."""
        now = self._now()
        self.free_at = {address: at for address, at in self.free_at.items() if at > now}
