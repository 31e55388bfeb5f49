"""How full a pool is: arriving prefills, and the time that its decodes need.

Load 1 means that an instance has, on average, no time left when every arriving prefill is computed and every answer
gets its tokens within the TPOT target. For example, 0.4 s of prefill a second for each instance, and decode steps of 35
ms under a target of 100 ms: 0.75.

A router sees only its own requests. It assumes that the others send as much as itself, as behind a load balancer.
"""

from math import exp

from fairlead.routing.contracts.rests import MOST_SHARE

FULL = 1.0
WINDOW_SECONDS = 30.0
"""Seconds after which an arrival counts a third of a new one."""
FIRST_SECONDS = 5.0
"""Fewer seconds of arrivals give no load."""
MOST_PREFILL_SECONDS = 600.0


class OfferedPrefills:
    """Seconds of prefill that came per second, of late."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._at: float | None = None
        self._began_at = 0.0

    def add(self, seconds: float, now: float) -> None:
        """A prefill of this many predicted seconds arrived; at most ten minutes are believed."""
        seconds = min(seconds, MOST_PREFILL_SECONDS)
        if self._at is None:
            self._at = self._began_at = now
        self._sum = self._sum * exp((self._at - now) / WINDOW_SECONDS) + seconds
        self._at = now

    def scale(self, times: float) -> None:
        """Arrivals so far are now predicted to take this many times as long."""
        self._sum *= times

    def per_second(self, now: float) -> float:
        """The rate, smoothed; 0 before any came."""
        if self._at is None:
            return 0.0
        seen = max(FIRST_SECONDS, now - self._began_at)
        return self._sum * exp((self._at - now) / WINDOW_SECONDS) / (WINDOW_SECONDS * (1 - exp(-seen / WINDOW_SECONDS)))


def affinity(load: float, most: float) -> float:
    """Seconds of waiting that a second of prefill is worth at this load of the pool, at most `most`.

    It counts for itself, and for what it makes others wait, as in any queue that is busy for that share of the time.
    """
    return most if load >= FULL else min(most, 1 / (1 - load))


def decode_share(step_seconds: float, tpot_seconds: float) -> float:
    """The share (0-1) of an instance's time that its decodes need so that each gets its tokens within the target. 0 if
    decode steps are unknown, and if decoding alone cannot meet the target: then leaving time for it gains nothing.
    """
    return min(MOST_SHARE, step_seconds / tpot_seconds) if 0 < step_seconds < tpot_seconds else 0.0
