"""Times fitted online: how long a prefill and a decode step take, from what was observed, with the error
of every prediction kept.

Models are linear in their coefficients and fitted by recursive least squares with slow forgetting, starting at what the
pool's table says. The same observations in the same order give the same coefficients. Their danger: a fit outside what
was observed; predictions are kept above zero and within a factor of the table's.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.routing.contracts.vectors import FloatVector, IntVector, misses
from fairlead.tables import EngineFacts

FORMS = ("configured", "linear", "bilinear")
"""`configured` miss / speed; `linear` c0 + c1·x; `bilinear` c0 + c1·x + c2·s + c3·x·s, with x uncached
and s all prompt tokens.
"""

ERRORS_KEPT = 500
MEMORY_OBSERVATIONS = 200
"""In means of what was observed, an observation weighs 1/e after so many further ones."""

FURTHEST = 20.0
"""A fitted prediction is at most this many times the table's, and at least its inverse."""


class LeastSquares:
    """Recursive least squares.

    `start` are the coefficients believed before any observation, `doubt` how easily each is given up.
    """

    def __init__(self, start: Sequence[float], doubt: Sequence[float], forgetting: float = 0.999) -> None:
        self.coefficients: FloatVector = np.array(start, dtype=np.float64)
        self._covariance = np.diag(np.array(doubt, dtype=np.float64))
        self._most = 10.0 * float(np.trace(self._covariance))
        self._forgetting = forgetting

    def predict(self, features: FloatVector) -> float:
        """The model's value for these features."""
        return float(features @ self.coefficients)

    def observe(self, features: FloatVector, value: float) -> None:
        """Take one observation into the fit."""
        leaning = self._covariance @ features
        gain = leaning / (self._forgetting + float(features @ leaning))
        self.coefficients = self.coefficients + gain * (value - self.predict(features))
        covariance = (self._covariance - np.outer(gain, leaning)) / self._forgetting
        if float(np.trace(covariance)) > self._most:
            covariance *= self._forgetting  # nothing new to learn from: forgetting would only let the doubt grow
        self._covariance = (covariance + covariance.T) / 2


class _Errors:
    """How far the last predictions were off, learnt and declared, and the mean time of a token; None where unknown."""

    def __init__(self) -> None:
        self._errors: deque[tuple[float | None, float | None]] = deque(maxlen=ERRORS_KEPT)
        self._seconds = 0.0
        self._tokens = 0.0

    @property
    def seconds_per_token(self) -> float | None:
        return self._seconds / self._tokens if self._tokens else None

    def observe(self, tokens: int, seconds: float, learnt: float | None, declared: float | None) -> None:
        """So many tokens took so long; what was predicted before."""
        self._errors.append(
            (None if learnt is None else abs(learnt - seconds) / seconds, None if declared is None else abs(declared - seconds) / seconds)
        )
        kept = 1 - 1 / MEMORY_OBSERVATIONS
        self._seconds = self._seconds * kept + seconds
        self._tokens = self._tokens * kept + tokens

    def mean(self, which: int) -> float | None:
        """The mean of the learnt (0) or the declared (1)."""
        known = [error for errors in self._errors if (error := errors[which]) is not None]
        return sum(known) / len(known) if known else None


class PrefillTimes:
    """Prefill seconds of one instance alone with a prompt.

    Predicts by the table's speed until `form` says otherwise and enough was observed.
    """

    def __init__(self, engine: EngineFacts, form: str = "configured", min_samples: int = 200) -> None:
        self.form = form
        self.samples = 0
        self._speed = engine.prefill_tokens_per_second
        self._min_samples = min_samples
        per_thousand = 1000 / self._speed
        prior = [0.0, per_thousand] if form == "linear" else [0.0, per_thousand, 0.0, 0.0]
        doubt = [1.0, 1.0] if form == "linear" else [1.0, 1.0, 0.1, 0.01]
        self._fit = LeastSquares(prior, [one * (10 * per_thousand) ** 2 for one in doubt])
        self._errors = _Errors()

    @property
    def fitted(self) -> bool:
        """Whether predictions come from the fit."""
        return self.form != "configured" and self.samples >= self._min_samples

    def seconds(self, prompt_tokens: int, hit_tokens: int) -> float:
        """Predicted seconds to compute what is not cached of a prompt."""
        configured = max(1, prompt_tokens - hit_tokens) / self._speed
        return self._bounded(prompt_tokens, hit_tokens, configured) if self.fitted else configured

    def seconds_vector(self, prompt_tokens: int, hits: IntVector) -> FloatVector:
        """As `seconds`, for each of the hits."""
        tokens = misses(prompt_tokens, hits)
        configured: FloatVector = tokens / self._speed
        if not self.fitted:
            return configured
        c = self._fit.coefficients
        x, s = tokens / 1000, prompt_tokens / 1000
        fitted = c[0] + c[1] * x if self.form == "linear" else c[0] + c[1] * x + c[2] * s + c[3] * x * s
        bounded: FloatVector = np.clip(fitted, configured / FURTHEST, configured * FURTHEST + 1.0)
        return bounded

    def observe(self, prompt_tokens: int, hit_tokens: int, seconds: float) -> None:
        """A prefill took so long. Observations of 0 s or less say nothing and are ignored. A fit learns only where it
        is asked for.
        """
        if seconds <= 0:
            return
        tokens = max(1, prompt_tokens - hit_tokens)
        declared = tokens / self._speed
        if self.form == "configured":
            mean = self._errors.seconds_per_token
            learnt = None if mean is None else tokens * mean
        else:
            learnt = self._bounded(prompt_tokens, hit_tokens, declared)
            self._fit.observe(self._features(prompt_tokens, hit_tokens), seconds)
        self._errors.observe(tokens, seconds, learnt, declared)
        self.samples += 1

    def report(self) -> EstimateReport:
        """What a prefilled token takes, and the errors of whole prefills."""
        return EstimateReport(
            form=self.form,
            samples=self.samples,
            in_use=self.fitted,
            seconds_per_token=self._errors.seconds_per_token,
            error=self._errors.mean(0),
            declared_error=self._errors.mean(1),
        )

    def _bounded(self, prompt_tokens: int, hit_tokens: int, configured: float) -> float:
        fitted = self._fit.predict(self._features(prompt_tokens, hit_tokens))
        return min(max(fitted, configured / FURTHEST), configured * FURTHEST + 1.0)

    def _features(self, prompt_tokens: int, hit_tokens: int) -> FloatVector:
        x = max(1, prompt_tokens - hit_tokens) / 1000
        s = prompt_tokens / 1000
        return np.array([1.0, x]) if self.form == "linear" else np.array([1.0, x, s, x * s])


class DecodeTimes:
    """Seconds of a decode step over so many context tokens and requests: by the table where it knows, else as
    fitted to finished requests.
    """

    def __init__(self, engine: EngineFacts, min_samples: int = 200) -> None:
        self._modelled = engine.modelled
        self._min_samples = min_samples
        self._fit = LeastSquares([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
        self._errors = _Errors()
        self.samples = 0
        self._fitted_samples = 0

    @property
    def known(self) -> bool:
        """Whether a prediction can be made."""
        return self._modelled.decode_known or self._fitted_samples >= self._min_samples

    def seconds(self, context_tokens: float, requests: float) -> float:
        """Predicted seconds of one step; 0 while nothing is known."""
        if self._modelled.decode_known:
            return self._modelled.decode_seconds(context_tokens, requests)
        if self._fitted_samples < self._min_samples:
            return 0.0
        return max(0.0, self._fit.predict(np.array([1.0, context_tokens / 1e5, requests / 100])))

    def observe_answer(self, output_tokens: int, seconds: float) -> None:
        """An answer's tokens after the first took so long."""
        if seconds > 0 and output_tokens > 1:
            mean = self._errors.seconds_per_token
            self._errors.observe(output_tokens - 1, seconds, None if mean is None else (output_tokens - 1) * mean, None)
            self.samples += 1

    def observe(self, context_tokens: float, requests: float, seconds: float) -> None:
        """A request decoded at `seconds` per token, on average among so many tokens and requests: for the fit."""
        if seconds > 0 and not self._modelled.decode_known:
            self._fit.observe(np.array([1.0, context_tokens / 1e5, requests / 100]), seconds)
            self._fitted_samples += 1

    def report(self) -> EstimateReport:
        """What a decoded token takes as requests see it, and the error of whole answers by that mean."""
        return EstimateReport(
            form="fitted",
            samples=self.samples,
            in_use=self.known and not self._modelled.decode_known,
            seconds_per_token=self._errors.seconds_per_token,
            error=self._errors.mean(0),
            declared_error=None,
        )
