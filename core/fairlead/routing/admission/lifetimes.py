"""Decode lifetimes: the durations of the last finished decodes. They determine which share of the running decodes will
still run some seconds later.

The mean duration alone is not sufficient: a running decode has already lasted longer than the short decodes, and some
decodes last longer than the mean. The mean would be sufficient only if all decodes lasted equally long.
"""

from bisect import bisect_left, insort
from collections import deque
from math import inf

import numpy as np

from fairlead.routing.contracts.vectors import FloatVector

KEPT = 200
"""Number of durations that are remembered. At first, all remembered durations equal the assumed duration."""


LONGEST_SECONDS = 86_400.0
MEMORY_SECONDS = 3600.0
"""Seconds after the last finished decode at which all remembered durations are forgotten."""


class DecodeLifetimes:
    """The durations of the last `KEPT` finished decodes, in seconds from first token to end."""

    def __init__(self, assumed_seconds: float) -> None:
        self._assumed = assumed_seconds
        self._begin()

    def _begin(self) -> None:
        self._latest = deque([self._assumed] * KEPT)
        self._ordered = [self._assumed] * KEPT
        self._vector: FloatVector | None = None
        self._observed_at: float | None = None

    @property
    def mean_seconds(self) -> float:
        """The mean of the remembered durations, in seconds."""
        return sum(self._ordered) / KEPT

    def observe(self, seconds: float, now: float = 0.0) -> None:
        """Record that a decode finished after this many seconds. A negative or infinite time is ignored; a time above
        `LONGEST_SECONDS` counts as `LONGEST_SECONDS`.
        """
        if not 0 <= seconds < inf:
            return
        seconds, self._observed_at = min(seconds, LONGEST_SECONDS), now
        oldest = self._latest.popleft()
        del self._ordered[bisect_left(self._ordered, oldest)]
        self._latest.append(seconds)
        insort(self._ordered, seconds)
        self._vector = None

    def forget_older(self, now: float) -> None:
        """Forget all remembered durations if no decode has finished for `MEMORY_SECONDS`."""
        if self._observed_at is not None and now - self._observed_at > MEMORY_SECONDS:
            self._begin()

    def surviving(self, ages: FloatVector) -> FloatVector:
        """Return, for each age in seconds, the share of remembered decodes that lasted at least as long as this age."""
        if self._vector is None:
            self._vector = np.array(self._ordered)
        share: FloatVector = 1.0 - np.searchsorted(self._vector, ages, side="left") / KEPT
        return share

    def remaining(self, ages: FloatVector, seconds: float) -> FloatVector:
        """Return, for running decodes of each of these ages (seconds), the share that is expected to last at least
        `seconds` more.

        If an age exceeds all remembered durations, the remaining time is assumed to be exponentially distributed, with
        the mean of the remembered durations as its mean.
        """
        alive = self.surviving(ages)
        outlived = alive <= 0
        later = self.surviving(ages + seconds) / np.where(outlived, 1.0, alive)
        share: FloatVector = np.where(outlived, np.exp(-seconds / max(self.mean_seconds, 1e-9)), later)
        return share
