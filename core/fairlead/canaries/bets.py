"""Bets: evidence about the difference between two arms. The evidence is valid at any time, so it may be read after
every pair.

For every effect θ of a grid, one gambler bets that pairs differ by more than θ, and another gambler bets that pairs
differ by less. If θ is the true effect, a pair's score is symmetric about 0, so neither gambler gains on average. By
Ville's inequality, the probability that a gambler's wealth ever reaches 1/α is then at most α. The wealth is averaged
over several stakes, because the best stake is not known in advance. So the bounds hold at any stopping time
(Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024; Ramdas et al.,
"Game-theoretic statistics and safe anytime-valid inference", Statistical Science 2023). Scores are cut off at ±1, so
that no outlier decides (Huber 1964).
"""

from dataclasses import dataclass

import numpy as np

_STAKES = np.array([0.02, 0.06, 0.15, 0.35, 0.7])
_NEAR = np.arange(-70, 71) * 0.01
_FAR = np.arange(15, 37) * 0.05
GRID = np.concatenate((-_FAR[::-1], _NEAR, _FAR))
"""The effects that are tested: logarithms of ratios, or differences of shares. The grid covers every limit that the
rules can set, such as six times as many tokens (logarithm 1.79).
"""
_FIRST_SPREAD = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate of the effect (see `GRID`) from `pairs` pairs: the best guess and its bounds. A bound is None if no
    effect on its side is excluded yet.
    """

    pairs: int
    guess: float
    low: float | None
    high: float | None


class Bets:
    """The evidence for one metric.

    With `scaled`, scores are in units of the differences' spread, which suits unbounded differences. Otherwise
    differences must be within ±1 and are used unscaled.
    """

    def __init__(self, *, scaled: bool) -> None:
        self._scaled = scaled
        self._above = np.zeros((len(_STAKES), len(GRID)))
        self._below = np.zeros((len(_STAKES), len(GRID)))
        self._scores = np.zeros(len(GRID))
        self._absolute = _FIRST_SPREAD
        self.pairs = 0

    def add(self, difference: float) -> None:
        """Add the result of a pair of sessions: the canary session's value minus the other session's value."""
        spread = 2 * self._absolute / (self.pairs + 1) if self._scaled else 1.0  # by earlier pairs only: a bet precedes its outcome
        scores = np.clip((difference - GRID) / max(spread, 1e-9), -1.0, 1.0)
        staked = _STAKES[:, None] * scores
        self._above += np.log1p(staked)
        self._below += np.log1p(-staked)
        self._scores += scores
        self._absolute += abs(difference)
        self.pairs += 1

    def interval(self, alpha: float) -> Interval:
        """Return the bounds of the effect. Each bound is wrong with a chance of at most `alpha`, whenever it is
        read.
        """
        needed = np.log(len(_STAKES) / alpha)
        above = np.flatnonzero(np.logaddexp.reduce(self._above, axis=0) >= needed)
        below = np.flatnonzero(np.logaddexp.reduce(self._below, axis=0) >= needed)
        guess = float(GRID[int(np.argmin(np.abs(self._scores)))]) if self.pairs else 0.0
        return Interval(
            pairs=self.pairs,
            guess=guess,
            low=float(GRID[above[-1]]) if len(above) else None,
            high=float(GRID[below[0]]) if len(below) else None,
        )
