"""The load of a pool, computed from its arriving prefills and from the time that its decodes need.

Load 1 means that an average instance has no time left if every arriving prefill is computed and every answer gets its
tokens within the TPOT target. For example, 0.4 s of prefill per second and instance, plus decode steps of 35 ms with a
target of 100 ms, give a load of 0.75.

A router can observe only its own requests. It assumes that each other router sends the same number, as behind a load
balancer.
"""

from math import exp

from fairlead.routing.contracts.rests import MOST_SHARE

FULL = 1.0
WINDOW_SECONDS = 30.0
"""Time constant in seconds: an arrival of this age has about a third (1/e) of the weight of a new arrival."""
FIRST_SECONDS = 5.0
"""Minimum seconds over which arrivals must be observed before a load is computed."""
MOST_PREFILL_SECONDS = 600.0


class OfferedPrefills:
    """Recent rate of arriving prefills, in seconds of prefill per second."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._at: float | None = None
        self._began_at = 0.0

    def add(self, seconds: float, now: float) -> None:
        """Add an arriving prefill of this many predicted seconds; at most ten minutes are counted."""
        seconds = min(seconds, MOST_PREFILL_SECONDS)
        if self._at is None:
            self._at = self._began_at = now
        self._sum = self._sum * exp((self._at - now) / WINDOW_SECONDS) + seconds
        self._at = now

    def scale(self, times: float) -> None:
        """Multiply the predicted times of earlier arrivals by this factor."""
        self._sum *= times

    def per_second(self, now: float) -> float:
        """Return the smoothed rate; 0 before any arrival."""
        if self._at is None:
            return 0.0
        seen = max(FIRST_SECONDS, now - self._began_at)
        return self._sum * exp((self._at - now) / WINDOW_SECONDS) / (WINDOW_SECONDS * (1 - exp(-seen / WINDOW_SECONDS)))


def affinity(load: float, most: float) -> float:
    """Return the weight of a second of prefill relative to a second of waiting, at this load of the pool; at most
    `most`.

    A second of prefill also delays other requests, as in a queue whose server is busy for the share `load` of the time.
    Its weight is the second itself plus this delay.
    """
    return most if load >= FULL else min(most, 1 / (1 - load))


def decode_share(step_seconds: float, tpot_seconds: float) -> float:
    """Return the share (0-1) of an instance's time that its decodes need to produce each token within the TPOT target.
    0 if the time of decode steps is unknown. Also 0 if decoding alone already misses the target, because reserving time
    would then be useless.
    """
    return min(MOST_SHARE, step_seconds / tpot_seconds) if 0 < step_seconds < tpot_seconds else 0.0
