"""Decode lifetimes, from the last decodes that finished: for requests that decode now, the share that will still decode
some seconds later.

A single mean time would not do: a request found decoding has outlived the short ones, and requests older than the mean
still exist. If all decodes last the same time, both methods agree.
"""

from bisect import bisect_left, insort
from collections import deque
from math import inf

import numpy as np

from fairlead.routing.contracts.vectors import FloatVector

KEPT = 200
"""Number of finished decodes that are remembered; they start as this many decodes of the assumed time."""


LONGEST_SECONDS = 86_400.0
MEMORY_SECONDS = 3600.0
"""Seconds for which remembered decodes count while no further one finishes."""


class DecodeLifetimes:
    """Seconds from first token to end of the last `KEPT` finished decodes."""

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
        """The mean of the remembered lifetimes."""
        return sum(self._ordered) / KEPT

    def observe(self, seconds: float, now: float = 0.0) -> None:
        """Record that a decode finished after this many seconds. Impossible times are ignored, and a longer time than
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
        """Forget all remembered decodes if none has finished for `MEMORY_SECONDS`."""
        if self._observed_at is not None and now - self._observed_at > MEMORY_SECONDS:
            self._begin()

    def surviving(self, ages: FloatVector) -> FloatVector:
        """For each age in seconds, the share of decodes that last at least as long."""
        if self._vector is None:
            self._vector = np.array(self._ordered)
        share: FloatVector = 1.0 - np.searchsorted(self._vector, ages, side="left") / KEPT
        return share

    def remaining(self, ages: FloatVector, seconds: float) -> FloatVector:
        """The share of decodes of these ages (s) that last `seconds` more.

        A decode older than all remembered ones may end at any time.
        """
        alive = self.surviving(ages)
        outlived = alive <= 0
        later = self.surviving(ages + seconds) / np.where(outlived, 1.0, alive)
        share: FloatVector = np.where(outlived, np.exp(-seconds / max(self.mean_seconds, 1e-9)), later)
        return share
