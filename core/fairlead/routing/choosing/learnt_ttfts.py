"""Trained TTFTs: the model with which a policy predicts, whether the model may be used, and how accurate its
predictions were.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairlead.predictors.learners import LearnerSettings
from fairlead.predictors.models import Model
from fairlead.predictors.refusals import ModelFault, ModelRefused
from fairlead.predictors.reports import HeuristicReason, LearningReport
from fairlead.predictors.samples import Floats, Samples
from fairlead.routing.choosing.experience import Experience, Trust
from fairlead.routing.choosing.instance_features import FEATURES, OF_THE_REQUEST, expected_ttfts
from fairlead.routing.contracts.vectors import FloatVector


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A model's predictions for one request. `features` [n, d] has a row per candidate; `ttfts` [n] are in seconds, or
    None without a model. `distrust` is the reason why the predictions are not used; None if they are used.
    """

    features: Floats
    ttfts: FloatVector | None
    distrust: HeuristicReason | None

    @property
    def obeyed(self) -> FloatVector | None:
        """The predicted TTFTs; None if they must not be used."""
        return self.ttfts if self.distrust is None else None

    def of(self, index: int) -> float | None:
        """The expected TTFT on one candidate; None without a prediction or if the prediction is not a number."""
        return None if self.ttfts is None or not np.isfinite(self.ttfts[index]) else float(self.ttfts[index])


class LearntTtfts:
    """The current model of a learning policy, and the observed results by which the model's error is measured.

    After `stale_samples` samples without a new model, the trainer is assumed to have stopped.
    """

    def __init__(self, settings: LearnerSettings, stale_samples: int, trust: Trust) -> None:
        self.settings = settings
        self.model: Model | None = None
        self._stale_samples = stale_samples
        self._experience = Experience(len(settings.feature_names), trust)
        self._adopted_at = 0

    @property
    def judged(self) -> tuple[float, float] | None:
        """Mean error of the model and mean error of the formula, in seconds, at the last comparison; None before the
        first.
        """
        return self._experience.comparison.judged

    def expect(self, features: Floats, *, whole_pool: bool = False) -> Expectation:
        """Return the prediction for `features`, one row per candidate of one request. The prediction is marked as not
        to be used if there is no trusted model, or if features lie outside the training data. With `whole_pool`, all
        features of all candidates are checked; otherwise only the features of the request.
        """
        ttfts = None if self.model is None else expected_ttfts(self.model, features)
        return Expectation(features=features, ttfts=ttfts, distrust=self._distrust(features, ttfts, whole_pool))

    def chose(self, distrust: HeuristicReason | None) -> None:
        """Record a choice by the model (`reason` None), or by the heuristic for this reason."""
        self._experience.chose(distrust)

    def lesson(self, expected: Expectation, index: int, formula_seconds: float, now: float) -> Callable[[float], None]:
        """Return a function that records the observed TTFT of the candidate at `index`. Call the function with the time
        of the first token if this candidate was chosen and computed the prompt. `formula_seconds` is the TTFT that the
        policy predicts for this candidate without a model.
        """
        row, predicted, model = expected.features[index].copy(), expected.of(index), self.model

        def learn(first_token_at: float) -> None:
            # What a model that was swapped meanwhile predicted is not an error of the one that is judged now.
            own = predicted if self.model is model else None
            self._experience.saw(row, own, formula_seconds, first_token_at - now)

        return learn

    def take_samples(self) -> Samples:
        """Return the observed results that were recorded after the last call, oldest first."""
        return self._experience.take()

    def adopt(self, model: Model) -> None:
        """Predict with `model` from now on. If the model's features do not fit the policy, raises ModelRefused and
        keeps the old model.
        """
        if model.feature_names != FEATURES:
            raise ModelRefused(ModelFault.FEATURES, f"it knows {', '.join(model.feature_names)}")
        if not model.finite:
            raise ModelRefused(ModelFault.NOT_FINITE, f"of round {model.round}")
        self.model = model
        self._adopted_at = self._experience.samples
        self._experience.comparison.another_model()

    def report(self) -> LearningReport:
        """Return the state of the training, and the error of the model's predictions."""
        return self._experience.report(self.model, self._samples_behind)

    @property
    def _samples_behind(self) -> int:
        return self._experience.samples - self._adopted_at

    def _distrust(self, features: Floats, ttfts: FloatVector | None, whole_pool: bool) -> HeuristicReason | None:
        if self.model is None or ttfts is None:
            return HeuristicReason.COLD_START
        if self._samples_behind > self._stale_samples:
            return HeuristicReason.STALE_MODEL
        if not np.isfinite(ttfts).all():
            return HeuristicReason.NOT_FINITE
        if self._experience.comparison.unproven:
            return HeuristicReason.UNPROVEN
        if self._experience.comparison.model_loses:
            return HeuristicReason.LOSING
        within = self.model.within(features)
        known = within.all() if whole_pool else within[0, OF_THE_REQUEST]
        return None if known else HeuristicReason.OUT_OF_DISTRIBUTION


class LearnsTtfts:
    """Base class of policies that predict TTFTs with a model. It implements `LearnsOnline`."""

    def __init__(self, learnt: LearntTtfts) -> None:
        self._learnt = learnt

    @property
    def learner_settings(self) -> LearnerSettings:
        return self._learnt.settings

    def take_samples(self) -> Samples:
        return self._learnt.take_samples()

    def adopt(self, model: Model) -> None:
        self._learnt.adopt(model)

    def learning(self) -> LearningReport:
        return self._learnt.report()
