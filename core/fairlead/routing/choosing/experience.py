"""Experience: what a learning policy saw of its own choices, kept until a learner takes it, and how wrong it was."""

from collections import Counter, deque

import numpy as np

from fairlead.predictors.models import Model
from fairlead.predictors.reports import HeuristicReason, LearningReport
from fairlead.predictors.samples import Floats, Samples

SAMPLES_KEPT = 20_000
"""Samples that may wait for a learner; beyond it the oldest go."""

RECENT = 500
"""Samples by which errors and drift are judged."""


JUDGED_AFTER = 100
"""Predictions of a model before it is compared with the formula."""

LOST = 2.0
"""A model whose error is above so many times the formula's is not obeyed. One that errs by a little more still places
better than a heuristic that predicts nothing.
"""

RECOVERED = 1.8
"""It is trusted again once its error is below so many times the formula's."""


class Comparison:
    """The errors of a model and of the router's own formula over the same recent requests, and whether the model loses.

    A model that lost is not trusted again before it errs by clearly less, so that the two do not take turns.
    """

    def __init__(self) -> None:
        self._errors: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._model = self._formula = 0.0
        self.model_loses = False

    def saw(self, model_error: float, formula_error: float) -> None:
        """A request's TTFT came; both errors in seconds."""
        if len(self._errors) == RECENT:
            oldest = self._errors[0]
            self._model -= oldest[0]
            self._formula -= oldest[1]
        self._errors.append((model_error, formula_error))
        self._model += model_error
        self._formula += formula_error
        if len(self._errors) >= JUDGED_AFTER:
            self.model_loses = self._model > (RECOVERED if self.model_loses else LOST) * self._formula


class Experience:
    """Samples and counts of one policy, for rows of `width` features."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: deque[Floats] = deque(maxlen=SAMPLES_KEPT)
        self._ttfts: deque[float] = deque(maxlen=SAMPLES_KEPT)
        self._recent: deque[Floats] = deque(maxlen=RECENT)
        self._errors: deque[tuple[float, float, float]] = deque(maxlen=RECENT)
        self._comparison = Comparison()
        self._dropped = 0
        self._learned_choices = 0
        self._heuristic_choices: Counter[HeuristicReason] = Counter()
        self.samples = 0

    @property
    def model_loses(self) -> bool:
        """Whether the model in use errs by far more than the router's own formula."""
        return self._comparison.model_loses

    def adopted(self) -> None:
        """Another model is in use: it is judged by its own predictions."""
        self._comparison = Comparison()

    def chose(self, reason: HeuristicReason | None) -> None:
        """A choice was made: by the model (None), or by the heuristic."""
        if reason is None:
            self._learned_choices += 1
        else:
            self._heuristic_choices[reason] += 1

    def saw(self, row: Floats, predicted_seconds: float | None, formula_seconds: float, ttft_seconds: float) -> None:
        """What came of a choice, and what the model in use, if any, and the router's own formula had said of it."""
        self.samples += 1
        self._dropped += len(self._rows) == SAMPLES_KEPT
        self._rows.append(row)
        self._ttfts.append(ttft_seconds)
        self._recent.append(row)
        if predicted_seconds is not None:
            errors = abs(predicted_seconds - ttft_seconds), abs(formula_seconds - ttft_seconds)
            self._errors.append((*errors, ttft_seconds))
            self._comparison.saw(*errors)

    def take(self) -> Samples:
        """The samples nobody took yet, oldest first."""
        if not self._rows:
            return Samples.none(self._width)
        taken = Samples.of(tuple(self._rows), tuple(self._ttfts))
        self._rows.clear()
        self._ttfts.clear()
        return taken

    def report(self, model: Model | None, samples_behind: int) -> LearningReport:
        """All of it, with the model in use."""
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
