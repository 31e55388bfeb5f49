"""The prefill speed and the decode step time of a pool's instances, measured on answers that arrive in one piece.

If an answer is not streamed, its first token cannot be observed, but its whole duration can. The duration has two
parts: the time for all prompt tokens that the instance computed in the meantime, and one decode step for each token
after the first, at the load of that time. So it is linear in the time per prompt token and the time per step. Least
squares over many answers, each scaled by its duration, separates the two times, unless all answers have the same
proportion of prompt to output. In that case the fit's error is large, and the figures stay unknown.
"""

from math import inf, isfinite

import numpy as np

from fairlead.capabilities import UNKNOWN, Figure, Source, Spread
from fairlead.routing.contracts.vectors import FloatVector

KEPT_ANSWERS = 400
"""Number of answers from which the figures are computed. Beyond it, a new answer replaces the oldest."""
ENOUGH_ANSWERS = 16
"""Minimum number of answers for a speed to count as measured."""
AGAIN_SHARE = 0.1
"""The figures are computed again when this share of the kept answers is new."""
AGAIN_SECONDS = 0.5
"""Minimum seconds between two computations once the maximum number of answers is kept. With thousands of answers per
second, computing the figures whenever a tenth is new would take more than a tenth of the router's CPU time.
"""
KEPT_SECONDS = 2.0
"""Minimum seconds over which the kept answers are spread. If thousands of answers arrive per second, most are skipped,
because a few hundred give the same accuracy.
"""
AGAIN_TIMES = 4
"""Factor: the figures are computed again before `AGAIN_SECONDS` have passed if this many times `KEPT_ANSWERS` new
answers have arrived.
"""
NEAR_SHARE = 0.9
"""Each fit is made twice, so that outliers have no effect. The second fit uses this share of the answers: the answers
nearest to the first fit.
"""
TOO_FAST = 2.0
"""An answer that is this many times faster than nearly all others is ignored, because its prompt was probably cached
without the router's knowledge. The fit scales answers by their duration, so such an answer would outweigh the others.
"""
LARGEST_ERROR = 0.25
"""Largest relative standard error of a speed that still counts as measured."""
LEAST_SECONDS = 0.01
"""Minimum seconds of an answer; a shorter answer is ignored."""
MOST_SECONDS = 3600.0
"""Maximum seconds of an answer; a longer answer is ignored, because its engine stood still."""
MOST_TOKENS = 10_000_000
"""Maximum tokens of an answer; an answer for which the engine reports more is ignored."""
LEAST_ERROR = 0.05
"""The least error assumed for an answer, as a share of its duration. If all answers are alike, any split of their time
into prompt and steps fits them. Without an assumed error, such answers would seem to determine the speed exactly.
"""
ERRORS_P90 = 1.28
"""Number of standard errors between the median of a normal distribution and its 90th percentile."""


class WholeAnswers:
    """The durations of the last answers that were not streamed. `tokens_per_second` is None while the durations do not
    determine a speed.
    """

    def __init__(self) -> None:
        self.tokens_per_second: float | None = None
        self._error = 0.0
        """Standard error of the time per token, as a share of that time."""
        self._rows = np.zeros((KEPT_ANSWERS, 4))
        """For each answer: prompt tokens, steps, steps × context tokens and steps × requests, all divided by the
        answer's seconds.
        """
        self._at = np.zeros(KEPT_ANSWERS)
        self._instances: list[str] = [""] * KEPT_ANSWERS
        self._next = self._count = self._new = 0
        self._measured_at = self._observed_at = -inf

    def observe(
        self, instance: str, prompt_tokens: float, output_tokens: int, context_tokens: float, requests: float, seconds: float, now: float
    ) -> bool:
        """Add an answer of `output_tokens` that took `seconds`. In this time its instance computed `prompt_tokens`
        prompt tokens, and on average decoded `requests` requests with `context_tokens` context tokens. Impossible
        values are ignored. Return whether the figures were computed again.
        """
        steps = output_tokens - 1
        if not LEAST_SECONDS <= seconds <= MOST_SECONDS or not 0 <= steps <= MOST_TOKENS:
            return False
        row = prompt_tokens / seconds, steps / seconds, steps * context_tokens / seconds, steps * requests / seconds
        if min(row) < 0 or not sum(row) < inf:  # a sum is no number where one of its parts is none
            return False
        at, self._observed_at = self._next, now
        self._rows[at], self._at[at], self._instances[at] = row, now, instance
        self._next, self._count, self._new = (at + 1) % KEPT_ANSWERS, min(self._count + 1, KEPT_ANSWERS), self._new + 1
        if self._count < ENOUGH_ANSWERS or self._new < AGAIN_SHARE * self._count:
            return False
        if self._count == KEPT_ANSWERS and self._new < AGAIN_TIMES * KEPT_ANSWERS and 0 <= now - self._measured_at < AGAIN_SECONDS:
            return False
        self._measured_at = now
        self._measure()
        return True

    def is_crowded(self, now: float) -> bool:
        """Return whether an answer may be skipped, because otherwise the kept answers would be spread over less than
        `KEPT_SECONDS`.
        """
        return self._count == KEPT_ANSWERS and 0 <= now - self._observed_at < KEPT_SECONDS / KEPT_ANSWERS

    def forget(self, instance: str) -> None:
        """Forget the answers of an instance that no longer exists or whose engine was replaced."""
        self._keep(np.array([name != instance for name in self._instances[: self._count]], dtype=bool))

    def forget_older(self, before: float) -> None:
        """Drop the answers observed before this time."""
        self._keep(self._at[: self._count] >= before)

    def recounted(self, times: float) -> "WholeAnswers":
        """Return a copy with prompt tokens multiplied by `times`, for use after the estimated size of a token
        changed.
        """
        if times != 1.0:
            self._rows[: self._count, 0] *= times
            self._measure()
        return self

    def figure(self, now: float) -> Figure:
        """Return the prefill speed in tokens per second, with its spread (computed from the standard error) and with
        the age of the newest answer.
        """
        speed = self.tokens_per_second
        if speed is None:
            return UNKNOWN
        apart = ERRORS_P90 * self._error
        return Figure(
            value=speed,
            source=Source.MEASURED,
            spread=Spread(p10=speed / (1 + apart), p50=speed, p90=speed / (1 - apart)),
            samples=self._count,
            age_seconds=max(0.0, now - float(self._at[: self._count].max())),
        )

    def _keep(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        left = np.flatnonzero(kept)
        if len(left) == self._count:
            return
        for ring in (self._rows, self._at):
            ring[: len(left)] = ring[left]
        self._instances[: len(left)] = [self._instances[at] for at in left]
        self._count, self._next = len(left), len(left) % KEPT_ANSWERS
        self._measure()

    def _measure(self) -> None:
        self._new, self.tokens_per_second = 0, None
        if self._count < ENOUGH_ANSWERS:
            return
        rows = self._rows[: self._count]
        rows = rows[(rows <= TOO_FAST * np.quantile(rows, NEAR_SHARE, axis=0)).all(axis=1)]
        coefficients, _ = _solved(rows)
        off = np.abs(rows @ coefficients - 1)
        coefficients, errors = _solved(rows[off <= np.quantile(off, NEAR_SHARE)])
        seconds = float(coefficients[0])
        self._error = float(errors[0]) / seconds if seconds > 0 else inf
        if isfinite(self._error) and self._error <= LARGEST_ERROR:
            self.tokens_per_second = 1 / seconds


def _solved(rows: FloatVector) -> tuple[FloatVector, FloatVector]:
    """Return the coefficients of a least-squares fit, and their standard errors. The fit brings each row's sum of
    products with the coefficients as close to 1 as possible. The standard errors are large if columns are similar. A
    column of zeros has no effect.
    """
    scale = np.sqrt((rows**2).sum(axis=0))
    scaled = rows / np.where(scale > 0, scale, 1.0)
    products = scaled.T @ scaled + 1e-6 * np.eye(len(scale))
    inverse = np.linalg.inv(products)
    wanted = inverse @ scaled.sum(axis=0)
    off = scaled @ wanted - 1
    variance = max(LEAST_ERROR**2, float(off @ off) / max(1, len(rows) - len(scale)))
    divisor = np.where(scale > 0, scale, inf)
    return wanted / divisor, np.sqrt(variance * inverse.diagonal()) / np.where(scale > 0, scale, 1.0)
