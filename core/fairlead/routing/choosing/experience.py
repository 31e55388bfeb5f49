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


class Experience:
    """Samples and counts of one policy, for rows of `width` features."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: deque[Floats] = deque(maxlen=SAMPLES_KEPT)
        self._ttfts: deque[float] = deque(maxlen=SAMPLES_KEPT)
        self._recent: deque[Floats] = deque(maxlen=RECENT)
        self._errors: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._dropped = 0
        self._learned_choices = 0
        self._heuristic_choices: Counter[HeuristicReason] = Counter()
        self.samples = 0

    def chose(self, reason: HeuristicReason | None) -> None:
        """A choice was made: by the model (None), or by the heuristic."""
        if reason is None:
            self._learned_choices += 1
        else:
            self._heuristic_choices[reason] += 1

    def saw(self, row: Floats, predicted_seconds: float | None, ttft_seconds: float) -> None:
        """What came of a choice, and what the model in use had said of it, if any."""
        self.samples += 1
        self._dropped += len(self._rows) == SAMPLES_KEPT
        self._rows.append(row)
        self._ttfts.append(ttft_seconds)
        self._recent.append(row)
        if predicted_seconds is not None:
            self._errors.append((abs(predicted_seconds - ttft_seconds), ttft_seconds))

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
        return LearningReport(
            samples=self.samples,
            dropped_samples=self._dropped,
            waiting_samples=len(self._rows),
            learned_choices=self._learned_choices,
            heuristic_choices=dict(self._heuristic_choices),
            model=model,
            samples_behind=samples_behind,
            error_seconds=sum(error for error, _ in self._errors) / judged if judged else None,
            mean_ttft_seconds=sum(ttft for _, ttft in self._errors) / judged if judged else None,
            drift=None if model is None or not self._recent else model.drift(np.stack(tuple(self._recent))),
        )
