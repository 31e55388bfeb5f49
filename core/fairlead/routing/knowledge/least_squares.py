"""Least squares over the last observations, for fitting the times of an engine.

The same observations in the same order give the same coefficients.
"""

from collections.abc import Sequence
from math import inf
from operator import mul

import numpy as np

from fairlead.routing.contracts.vectors import FloatVector

KEPT_SHARE = 0.9
"""Each fit is made twice, so that outliers have no effect. The second fit uses this share of the observations: the
observations nearest to the first fit.
"""

FITTED_OBSERVATIONS = 400
"""Maximum number of observations in a fit. Beyond it, a new observation replaces the oldest."""
FITTED_AFTER = 0.25
FITTED_FIRST = 8
"""Number of new observations after which the fit is repeated while there are fewer than a hundred observations. With
more observations, the fit is repeated when the share `FITTED_AFTER` of the observations is new.
"""
FITTED_SECONDS = 0.5
"""Minimum seconds between two fits once `FITTED_OBSERVATIONS` observations are kept, because thousands may arrive per
second. The fit is repeated earlier if four times `FITTED_OBSERVATIONS` new observations have arrived.
"""


class LeastSquares:
    """Ridge regression of a few coefficients over the last observations. The fit is repeated after some new
    observations.

    `start` are the prior coefficients, and `doubt` their variances relative to an observation's variance of 1: the
    larger the variance, the sooner observations override the prior. The tenth of the observations that is furthest from
    a first fit is left out of the second fit, so that outliers have no effect.
    """

    def __init__(self, start: Sequence[float], doubt: Sequence[float]) -> None:
        self.start = tuple(start)
        self.coefficients = self.start
        self._trust = 1.0 / np.array(doubt, dtype=np.float64)
        self._believed = self._trust * np.array(start, dtype=np.float64)
        self._features = np.zeros((FITTED_OBSERVATIONS, len(self.start)))
        self._values = np.zeros(FITTED_OBSERVATIONS)
        self._seen_at = np.zeros(FITTED_OBSERVATIONS)
        """The times of the observations. This and the arrays before it are ring buffers: the next observation is
        written at index `_next`.
        """
        self._next = 0
        self._count = 0
        self._since_fit = 0
        self._fitted_at = self._observed_at = -inf

    def __len__(self) -> int:
        return self._count

    def predict(self, features: Sequence[float]) -> float:
        """Return the model's value for these features."""
        return _dot(self.coefficients, features)

    def start_from(self, start: Sequence[float]) -> None:
        """Use these coefficients as the prior; existing observations stay."""
        self.start = tuple(start)
        self._believed = self._trust * np.array(start, dtype=np.float64)
        self._fit()

    def observe(self, features: tuple[float, ...], value: float, now: float) -> None:
        """Add one observation to the fit."""
        at, self._observed_at = self._next, now
        self._features[at], self._values[at], self._seen_at[at] = features, value, now
        self._next = (at + 1) % FITTED_OBSERVATIONS
        self._count = min(self._count + 1, FITTED_OBSERVATIONS)
        self._since_fit += 1
        if self._since_fit >= (FITTED_FIRST if self._count < 100 else FITTED_AFTER * self._count) and self._is_due(now):
            self._fitted_at = now
            self._fit()

    def _is_due(self, now: float) -> bool:
        many = self._count < FITTED_OBSERVATIONS or self._since_fit >= 4 * FITTED_OBSERVATIONS
        return many or not 0 <= now - self._fitted_at < FITTED_SECONDS

    def is_crowded(self, now: float) -> bool:
        """Return whether an observation may be skipped, because observations arrive so fast that all kept observations
        would be replaced between two fits.
        """
        return self._count == FITTED_OBSERVATIONS and 0 <= now - self._observed_at < FITTED_SECONDS / FITTED_OBSERVATIONS

    def forget(self, before: float) -> None:
        """Drop observations made before this time. If no observations remain, the coefficients become the prior's
        again.
        """
        kept = np.flatnonzero(self._seen_at[: self._count] >= before)
        if len(kept) == self._count:
            return
        for ring in (self._features, self._values, self._seen_at):
            ring[: len(kept)] = ring[kept]
        self._count, self._next = len(kept), len(kept) % FITTED_OBSERVATIONS
        self._fit()

    def _fit(self) -> None:
        self._since_fit = 0
        if not self._count:
            self.coefficients = self.start
            return
        features, values = self._features[: self._count], self._values[: self._count]
        off = np.abs(features @ self._solved(features, values) - values)
        least = int(KEPT_SHARE * (self._count - 1))
        kept = off <= np.partition(off, least)[least]
        self.coefficients = tuple(self._solved(features[kept], values[kept]).tolist())

    def _solved(self, features: FloatVector, values: FloatVector) -> FloatVector:
        products = features.T @ features
        products.flat[:: len(products) + 1] += self._trust
        scale = 1 / np.sqrt(products.diagonal())  # else columns of other magnitudes would be taken for dependent ones
        wanted = scale * (features.T @ values + self._believed)
        return np.asarray(scale * np.linalg.lstsq(products * np.outer(scale, scale), wanted, rcond=None)[0], dtype=np.float64)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total
