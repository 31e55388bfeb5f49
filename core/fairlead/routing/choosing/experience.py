"""Experience: the observed results of a learning policy's choices, and the error of the policy's predictions. The
results are kept until a learner takes them.
"""

from collections import Counter, deque
from dataclasses import dataclass

import numpy as np

from fairlead.predictors.models import Model
from fairlead.predictors.reports import HeuristicReason, LearningReport
from fairlead.predictors.samples import Floats, Samples

SAMPLES_KEPT = 20_000
"""Maximum number of samples kept for a learner. Beyond this number, the oldest samples are dropped."""

RECENT = 500
"""Number of recent samples from which errors and drift are computed."""

JUDGED_AFTER = 100
"""Number of predictions that a model must make before its error is compared with the formula's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The limits on a model's error within which the model's predictions are used. The error is compared with the error
    of the router's own formula for the same requests.

    A model is no longer used once its mean error exceeds `lost` times the formula's mean error. It is used again once
    its mean error is below `regained` times the formula's. The gap between the two limits prevents frequent changes
    between model and formula. If `unproven` is True, a new model is used before its error has been compared. If False,
    two models are used only after a comparison: the first model, and a model that replaces a model over the limit.
    """

    lost: float
    regained: float
    unproven: bool


HARDLY_WORSE = Trust(lost=2.0, regained=1.8, unproven=True)
"""Limits for policies that use a heuristic instead of an untrusted model. They allow a model an error somewhat larger
than the formula's, because even such a model places requests better than a heuristic without predictions.
"""
BETTER = Trust(lost=1.0, regained=0.95, unproven=False)
"""Limits for policies that fall back on the router's own formula."""


class Comparison:
    """The errors of a model and of the router's own formula over the same recent requests, and whether the model's
    error is too large.
    """

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._errors: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._model = self._formula = 0.0
        self.model_loses = False
        self.judged: tuple[float, float] | None = None
        """Mean error of the model and mean error of the formula, in seconds, at the last comparison; None before the
        first.
        """

    @property
    def unproven(self) -> bool:
        """Whether the model may not be used because its error has never been compared."""
        return not self._trust.unproven and self.judged is None

    def saw(self, model_error: float, formula_error: float) -> None:
        """Record the errors of the model and of the formula for one observed TTFT, in seconds."""
        if len(self._errors) == RECENT:
            oldest = self._errors[0]
            self._model -= oldest[0]
            self._formula -= oldest[1]
        self._errors.append((model_error, formula_error))
        self._model += model_error
        self._formula += formula_error
        if len(self._errors) >= JUDGED_AFTER:
            self.model_loses = self._model > (self._trust.regained if self.model_loses else self._trust.lost) * self._formula
            self.judged = self._model / len(self._errors), self._formula / len(self._errors)

    def another_model(self) -> None:
        """Start the comparison of a new model, from the new model's predictions only. With `Trust.unproven`, the new
        model is used at once. Otherwise the verdict on the previous model also applies to the new model, until the new
        model has made enough predictions.
        """
        self._errors.clear()
        self._model = self._formula = 0.0
        if self._trust.unproven:
            self.model_loses = False


class Experience:
    """The samples of one policy (rows of `width` features), and counts of its choices."""

    def __init__(self, width: int, trust: Trust) -> None:
        self._width = width
        self._rows: deque[Floats] = deque(maxlen=SAMPLES_KEPT)
        self._ttfts: deque[float] = deque(maxlen=SAMPLES_KEPT)
        self._recent: deque[Floats] = deque(maxlen=RECENT)
        self._errors: deque[tuple[float, float, float]] = deque(maxlen=RECENT)
        self.comparison = Comparison(trust)
        self._dropped = 0
        self._learned_choices = 0
        self._heuristic_choices: Counter[HeuristicReason] = Counter()
        self.samples = 0

    def chose(self, reason: HeuristicReason | None) -> None:
        """Record a choice by the model (`reason` None), or by the heuristic for this reason."""
        if reason is None:
            self._learned_choices += 1
        else:
            self._heuristic_choices[reason] += 1

    def saw(self, row: Floats, predicted_seconds: float | None, formula_seconds: float, ttft_seconds: float) -> None:
        """Record the observed TTFT of a choice and the features of the choice (`row`). `predicted_seconds` is the
        prediction of the model in use, None without a model; `formula_seconds` is the prediction of the router's own
        formula.
        """
        self.samples += 1
        self._dropped += len(self._rows) == SAMPLES_KEPT
        self._rows.append(row)
        self._ttfts.append(ttft_seconds)
        self._recent.append(row)
        if predicted_seconds is not None:
            errors = abs(predicted_seconds - ttft_seconds), abs(formula_seconds - ttft_seconds)
            self._errors.append((*errors, ttft_seconds))
            self.comparison.saw(*errors)

    def take(self) -> Samples:
        """Return the samples recorded after the last call, oldest first."""
        if not self._rows:
            return Samples.none(self._width)
        taken = Samples.of(tuple(self._rows), tuple(self._ttfts))
        self._rows.clear()
        self._ttfts.clear()
        return taken

    def report(self, model: Model | None, samples_behind: int) -> LearningReport:
        """Return a report with the numbers of samples and choices, the prediction errors, and the model in use."""
        judged = len(self._errors)
        error, formula_error, mean_ttft = (sum(column) / judged for column in zip(*self._errors, strict=True)) if judged else (None,) * 3
        return LearningReport(
            samples=self.samples,
            dropped_samples=self._dropped,
            waiting_samples=len(self._rows),
            learned_choices=self._learned_choices,
            heuristic_choices=dict(self._heuristic_choices),
            model=model,
            samples_behind=samples_behind,
            error_seconds=error,
            formula_error_seconds=formula_error,
            mean_ttft_seconds=mean_ttft,
            drift=None if model is None or not self._recent else model.drift(np.stack(tuple(self._recent))),
        )
