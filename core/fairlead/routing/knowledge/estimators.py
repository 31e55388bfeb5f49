"""Times fitted online: how long a prefill and a decode step take, from what was observed, with the error
of every prediction kept.

Models are linear in their coefficients and fitted by least squares to the last observations, leaning on what the pool's
table says where those say little. The same observations in the same order give the same coefficients. What is older
than an hour or than the last few hundred is forgotten, so a fit is never wrong for longer. Their danger: a fit outside
what was observed; observations and predictions are kept above zero and within a factor of the table's.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from operator import mul

import numpy as np

from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.routing.contracts.vectors import FloatVector, IntVector, misses
from fairlead.tables import EngineFacts

FORMS = ("configured", "linear", "bilinear")
"""`configured` miss / speed; `linear` c0 + c1·x; `bilinear` c0 + c1·x + c2·s + c3·x·s, with x uncached
and s all prompt tokens.
"""

MEMORY_OBSERVATIONS = 200
"""In means of what was observed, an observation weighs 1/e after so many further ones."""
KEPT = 1 - 1 / MEMORY_OBSERVATIONS

KEPT_SHARE = 0.9
"""Of the observations, those nearest to a first fit that the second goes by."""

FURTHEST = 20.0
"""A fitted prediction is at most this many times the table's, and at least its inverse."""


FITTED_OBSERVATIONS = 400
"""Observations that a fit rests on; further ones replace the oldest."""
FITTED_AFTER = 0.25
FITTED_FIRST = 8
"""A fit is made again when so large a part of its observations is new; after so many while there are fewer than a
hundred.
"""
MEMORY_SECONDS = 3600.0
"""How long an observation counts."""

LONGEST_STEP_SECONDS = 10.0
"""A decode step that seems longer was an engine that stood still."""
COMPARED_TOKENS = 1000
"""Shorter prefills are mostly the wait for the engine's step, which says nothing of its speed."""
MOST_TOKENS = 10_000_000.0
"""More context tokens than any engine holds."""
MOST_REQUESTS = 100_000.0
"""More than decode at once anywhere."""


class LeastSquares:
    """Ridge regression of a few coefficients over the last observations, fitted again now and then.

    `start` are the coefficients believed before any observation, `doubt` the variance of each, that is how easily it is
    given up, against an observation's variance of 1. A tenth of the observations, those furthest from a first fit, is
    left out of the second: a few odd ones move nothing.
    """

    def __init__(self, start: Sequence[float], doubt: Sequence[float]) -> None:
        self.start = tuple(start)
        self.coefficients = self.start
        self._trust = 1.0 / np.array(doubt, dtype=np.float64)
        self._believed = self._trust * np.array(start, dtype=np.float64)
        self._features = np.zeros((FITTED_OBSERVATIONS, len(self.start)))
        self._values = np.zeros(FITTED_OBSERVATIONS)
        self._seen_at = np.zeros(FITTED_OBSERVATIONS)
        """Rings: the observation that comes next replaces the one at `_next`."""
        self._next = 0
        self._count = 0
        self._since_fit = 0

    def __len__(self) -> int:
        return self._count

    def predict(self, features: Sequence[float]) -> float:
        """The model's value for these features."""
        return _dot(self.coefficients, features)

    def observe(self, features: tuple[float, ...], value: float, now: float) -> None:
        """Take one observation into the fit."""
        at = self._next
        self._features[at], self._values[at], self._seen_at[at] = features, value, now
        self._next = (at + 1) % FITTED_OBSERVATIONS
        self._count = min(self._count + 1, FITTED_OBSERVATIONS)
        self._since_fit += 1
        if self._since_fit >= (FITTED_FIRST if self._count < 100 else FITTED_AFTER * self._count):
            self._fit()

    def forget(self, before: float) -> None:
        """Let go of what was observed before then; without any observation left the model is what it was at first."""
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


class _Mean:
    """A weighted mean of what was observed last; None before anything was."""

    __slots__ = ("sum", "weight")

    def __init__(self) -> None:
        self.sum = 0.0
        self.weight = 0.0

    @property
    def value(self) -> float | None:
        return self.sum / self.weight if self.weight else None

    def observe(self, value: float, weight: float = 1.0) -> None:
        self.sum = self.sum * KEPT + value * weight
        self.weight = self.weight * KEPT + weight


class _Observed:
    """The mean time of a token, and how far predictions of it were off, learnt and declared ones.

    Errors are shares of all the time that passed, so that one answer whose tokens came in a burst does not decide.
    """

    __slots__ = ("declared_error", "error", "observed_at", "samples", "seconds_per_token")

    def __init__(self) -> None:
        self.samples = 0
        self.observed_at = 0.0
        self.seconds_per_token = _Mean()
        self.error = _Mean()
        self.declared_error = _Mean()

    def observe(self, tokens: int, seconds: float, learnt: float | None, declared: float | None, now: float) -> None:
        """So many tokens took so long; what was predicted before."""
        self.samples += 1
        self.observed_at = now
        mean = self.seconds_per_token  # written out, as calls of `observe` would be ten for each streamed request
        mean.sum, mean.weight = mean.sum * KEPT + seconds, mean.weight * KEPT + tokens
        if learnt is not None:
            mean = self.error
            mean.sum, mean.weight = mean.sum * KEPT + abs(learnt - seconds), mean.weight * KEPT + seconds
        if declared is not None:
            mean = self.declared_error
            mean.sum, mean.weight = mean.sum * KEPT + abs(declared - seconds), mean.weight * KEPT + seconds

    def report(self, form: str, in_use: bool) -> EstimateReport:
        return EstimateReport(
            form=form,
            samples=self.samples,
            in_use=in_use,
            seconds_per_token=self.seconds_per_token.value,
            error=self.error.value,
            declared_error=self.declared_error.value,
        )


class _ObservedByInstance:
    """What was observed of all instances together, by which times are predicted, and of each by itself."""

    def __init__(self) -> None:
        self.all = _Observed()
        self._each: defaultdict[str, _Observed] = defaultdict(_Observed)

    def observe(self, instance: str, tokens: int, seconds: float, learnt: float | None, declared: float | None, now: float) -> None:
        """As of `_Observed`; `learnt` is predicted by what all have taught."""
        self.all.observe(tokens, seconds, learnt, declared, now)
        self._each[instance].observe(tokens, seconds, learnt, declared, now)

    def of(self, instance: str | None) -> _Observed:
        """That of one instance, or of all for None."""
        return self.all if instance is None else self._each.get(instance, _Observed())

    def forget(self, instance: str) -> None:
        self._each.pop(instance, None)

    def forget_older(self, before: float) -> None:
        """Let go of all that was observed last before then."""
        for instance in [name for name, observed in self._each.items() if observed.observed_at < before]:
            del self._each[instance]
        if self.all.observed_at < before:
            self.all = _Observed()


class PrefillTimes:
    """Prefill seconds of one instance alone with a prompt.

    Predicts by the table's speed until `form` says otherwise and enough was observed.
    """

    def __init__(self, engine: EngineFacts, form: str = "configured", min_samples: int = 200) -> None:
        self.form = form
        self._speed = engine.prefill_tokens_per_second
        self._min_samples = min_samples
        per_thousand = 1000 / self._speed
        prior = [0.0, per_thousand] if form == "linear" else [0.0, per_thousand, 0.0, 0.0]
        doubt = [1.0, 1.0] if form == "linear" else [1.0, 1.0, 0.1, 0.01]
        self._fit = LeastSquares(prior, [one * (10 * per_thousand) ** 2 for one in doubt])
        self._observed = _ObservedByInstance()
        self._went_by, self._took = _Mean(), _Mean()
        """Seconds per token of longer prefills, as predicted and as observed."""

    @property
    def samples(self) -> int:
        """The prefills observed."""
        return self._observed.all.samples

    @property
    def fitted(self) -> bool:
        """Whether predictions come from the fit."""
        return self.form != "configured" and self.samples >= self._min_samples

    def seconds(self, prompt_tokens: int, hit_tokens: int) -> float:
        """Predicted seconds to compute what is not cached of a prompt."""
        configured = max(1, prompt_tokens - hit_tokens) / self._speed
        if self.form == "configured" or not self.fitted:  # asked several times a request: most pools have nothing to look up
            return configured
        return self._bounded(prompt_tokens, hit_tokens, configured)

    def seconds_vector(self, prompt_tokens: int, hits: IntVector) -> FloatVector:
        """As `seconds`, for each of the hits."""
        tokens = misses(prompt_tokens, hits)
        configured: FloatVector = tokens / self._speed
        if not self.fitted:
            return configured
        c = self._fit.coefficients
        x, s = tokens / 1000, prompt_tokens / 1000
        fitted = c[0] + c[1] * x if self.form == "linear" else c[0] + c[1] * x + c[2] * s + c[3] * (x * s)
        bounded: FloatVector = np.clip(fitted, configured / FURTHEST, configured * FURTHEST + 1.0)
        return bounded

    def observe(self, instance: str, prompt_tokens: int, hit_tokens: int, seconds: float, now: float = 0.0) -> None:
        """A prefill took so long. What cannot be a time or a prompt says nothing and is ignored; one that is further
        from the table's than a prediction may be counts as the furthest. A fit learns only where it is asked for.
        """
        if not (seconds > 0 and isfinite(seconds) and 0 < prompt_tokens <= MOST_TOKENS):
            return
        tokens = max(1, prompt_tokens - hit_tokens)
        declared = tokens / self._speed
        seconds = min(max(seconds, declared / FURTHEST), declared * FURTHEST + 1.0)
        if self.form == "configured":
            mean = self._observed.all.seconds_per_token.value
            learnt = None if mean is None else tokens * mean
        else:
            learnt = self._bounded(prompt_tokens, hit_tokens, declared)
            self._fit.observe(self._features(prompt_tokens, hit_tokens), seconds, now)
        if tokens >= COMPARED_TOKENS:
            self._went_by.observe((learnt if self.fitted and learnt is not None else declared) / tokens, tokens)
            self._took.observe(seconds / tokens, tokens)
        self._observed.observe(instance, tokens, seconds, learnt, declared, now)

    def report(self, instance: str | None = None) -> EstimateReport:
        """What a prefilled token takes, and the errors of whole prefills: of an instance, or of all."""
        report = self._observed.of(instance).report(self.form, self.fitted)
        return report if instance is not None else replace(report, predicted=self._went_by.value, observed=self._took.value)

    def forget(self, instance: str) -> None:
        """The instance is gone, or another engine runs there."""
        self._observed.forget(instance)

    def forget_older(self, now: float) -> None:
        """Let go of what was observed too long ago."""
        self._observed.forget_older(now - MEMORY_SECONDS)
        self._fit.forget(now - MEMORY_SECONDS)
        if not self.samples:
            self._went_by, self._took = _Mean(), _Mean()

    def _bounded(self, prompt_tokens: int, hit_tokens: int, configured: float) -> float:
        fitted = self._fit.predict(self._features(prompt_tokens, hit_tokens))
        return min(max(fitted, configured / FURTHEST), configured * FURTHEST + 1.0)

    def _features(self, prompt_tokens: int, hit_tokens: int) -> tuple[float, ...]:
        x = max(1, prompt_tokens - hit_tokens) / 1000
        s = prompt_tokens / 1000
        return (1.0, x) if self.form == "linear" else (1.0, x, s, x * s)


class DecodeTimes:
    """Seconds of a decode step over so many context tokens and requests: by the table where it knows, else as
    fitted to finished requests.
    """

    def __init__(self, engine: EngineFacts, min_samples: int = 200) -> None:
        self._modelled = engine.modelled
        self._is_modelled = engine.modelled.decode_known
        self._min_samples = min_samples
        self._fit = LeastSquares([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
        self._observed = _ObservedByInstance()
        self._fitted_samples = 0
        self._went_by, self._stepped = _Mean(), _Mean()
        """Steps as predicted and as observed."""

    @property
    def samples(self) -> int:
        """The answers observed."""
        return self._observed.all.samples

    @property
    def known(self) -> bool:
        """Whether a prediction can be made."""
        return self._is_modelled or self._fitted_samples >= self._min_samples

    def seconds(self, context_tokens: float, requests: float) -> float:
        """Predicted seconds of one step; 0 while nothing is known."""
        if self._is_modelled:
            return self._modelled.decode_seconds(context_tokens, requests)
        if self._fitted_samples < self._min_samples:
            return 0.0
        return min(LONGEST_STEP_SECONDS, max(0.0, self._fit.predict((1.0, context_tokens / 1e5, requests / 100))))

    def observe_answer(self, instance: str, output_tokens: int, seconds: float, now: float = 0.0) -> None:
        """An answer's tokens after the first took so long. What cannot be is ignored, and a longer time a token than
        that of the longest step counts as that.
        """
        if seconds > 0 and isfinite(seconds) and 1 < output_tokens <= MOST_TOKENS:
            tokens, mean = output_tokens - 1, self._observed.all.seconds_per_token.value
            seconds = min(seconds, tokens * LONGEST_STEP_SECONDS)
            self._observed.observe(instance, tokens, seconds, None if mean is None else tokens * mean, None, now)

    def observe(self, context_tokens: float, requests: float, seconds: float, now: float = 0.0) -> None:
        """A request decoded at `seconds` per token, on average among so many tokens and requests: for the fit. As
        `observe_answer`.
        """
        if self._is_modelled or not (seconds > 0 and isfinite(seconds)):
            return
        if 0 <= context_tokens <= MOST_TOKENS and 0 <= requests <= MOST_REQUESTS:
            if self._fitted_samples >= self._min_samples:
                self._went_by.observe(self.seconds(context_tokens, requests))
                self._stepped.observe(min(seconds, LONGEST_STEP_SECONDS))
            self._fit.observe((1.0, context_tokens / 1e5, requests / 100), min(seconds, LONGEST_STEP_SECONDS), now)
            self._fitted_samples += 1

    def forget_older(self, now: float) -> None:
        """Let go of what was observed too long ago; with all of it, nothing is known again."""
        self._observed.forget_older(now - MEMORY_SECONDS)
        self._fit.forget(now - MEMORY_SECONDS)
        if not len(self._fit):
            self._fitted_samples = 0
            self._went_by, self._stepped = _Mean(), _Mean()

    def report(self, instance: str | None = None) -> EstimateReport:
        """What a decoded token takes as requests see it, and the error of whole answers by the mean of all: of an
        instance, or of all.
        """
        report = self._observed.of(instance).report("fitted", self.known and not self._is_modelled)
        return report if instance is not None else replace(report, predicted=self._went_by.value, observed=self._stepped.value)

    def forget(self, instance: str) -> None:
        """The instance is gone, or another engine runs there."""
        self._observed.forget(instance)
