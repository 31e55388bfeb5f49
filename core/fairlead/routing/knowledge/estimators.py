"""Times fitted online: how long a prefill and a decode step take, from what was observed, with the error
of every prediction kept.

Models are linear in their coefficients and fitted by recursive least squares with slow forgetting, starting at what the
pool's table says. The same observations in the same order give the same coefficients. Their danger: a fit outside what
was observed; predictions are kept above zero and within a factor of the table's.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.routing.contracts.vectors import FloatVector, IntVector, misses
from fairlead.tables import EngineFacts

FORMS = ("configured", "linear", "bilinear")
"""`configured` miss / speed; `linear` c0 + c1·x; `bilinear` c0 + c1·x + c2·s + c3·x·s, with x uncached
and s all prompt tokens.
"""

ERRORS_KEPT = 500
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReport:
    """How well a fit predicts: mean absolute percentage error over the last observations, each predicted
    before it was learnt from.

    `configured_mape` is that of the table's figure over the same. Errors are shares (0.1 = 10 %),
    None before any observation.
    """

    form: str
    samples: int
    in_use: bool
    mape: float | None
    configured_mape: float | None
    coefficients: tuple[float, ...]


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
        self._errors: deque[tuple[float, float]] = deque(maxlen=ERRORS_KEPT)

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
        """A prefill took so long. Observations of 0 s or less say nothing and are ignored."""
        if seconds <= 0:
            return
        configured = max(1, prompt_tokens - hit_tokens) / self._speed
        predicted = self._bounded(prompt_tokens, hit_tokens, configured)
        self._errors.append((abs(predicted - seconds) / seconds, abs(configured - seconds) / seconds))
        self._fit.observe(self._features(prompt_tokens, hit_tokens), seconds)
        self.samples += 1

    def report(self) -> EstimateReport:
        """The fit and its error; `coefficients` per token: c0 (s), c1 (s/token), c2 (s/token), c3 (s/token²)."""
        count = len(self._errors)
        units = (1.0, 1e3, 1e3, 1e6)
        return EstimateReport(
            form=self.form if self.form != "configured" else "bilinear",
            samples=self.samples,
            in_use=self.fitted,
            mape=sum(fitted for fitted, _ in self._errors) / count if count else None,
            configured_mape=sum(configured for _, configured in self._errors) / count if count else None,
            coefficients=tuple(float(value) / unit for value, unit in zip(self._fit.coefficients, units, strict=False)),
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
        self.samples = 0

    @property
    def known(self) -> bool:
        """Whether a prediction can be made."""
        return self._modelled.decode_known or self.samples >= self._min_samples

    def seconds(self, context_tokens: float, requests: float) -> float:
        """Predicted seconds of one step; 0 while nothing is known."""
        if self._modelled.decode_known:
            return self._modelled.decode_seconds(context_tokens, requests)
        if self.samples < self._min_samples:
            return 0.0
        return max(0.0, self._fit.predict(np.array([1.0, context_tokens / 1e5, requests / 100])))

    def observe(self, context_tokens: float, requests: float, seconds: float) -> None:
        """A request decoded at `seconds` per token, on average among so many tokens and requests."""
        if seconds > 0 and not self._modelled.decode_known:
            self._fit.observe(np.array([1.0, context_tokens / 1e5, requests / 100]), seconds)
            self.samples += 1
