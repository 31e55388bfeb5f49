"""A learner: collects samples and trains a model whenever enough new samples have arrived.

Plain state and arithmetic; the caller decides when and in which process a round runs.
"""

from dataclasses import dataclass, field

import numpy as np

from fairlead.predictors.coresets import Selection, coreset, gradient_features
from fairlead.predictors.fitting import FitSettings, fit
from fairlead.predictors.models import Model, Scales, evaluate
from fairlead.predictors.networks import Network
from fairlead.predictors.samples import Samples

HELD_OUT = 5
"""One sample in this many is kept for the evaluation and is never used for training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """The settings of a learner. The first training round comes after `first_samples` samples, each further round after
    `round_samples` new samples. Samples above `longest_ttft_seconds` are left out, as they reflect an overload rather
    than an instance.
    """

    feature_names: tuple[str, ...]
    first_samples: int = 1000
    round_samples: int = 1000
    recent_samples: int = 5000
    replay_samples: int = 5000
    selection: Selection = Selection.CORRECTED
    longest_ttft_seconds: float = 15.0
    width: int = 128
    from_scratch: bool = False
    fit: FitSettings = field(default_factory=FitSettings)


class Learner:
    """Learns one pool's TTFTs. Deterministic given its seed and its samples."""

    def __init__(self, settings: LearnerSettings, seed: int) -> None:
        self.settings = settings
        self._seed = seed
        # A network goes on from the one before, so what a round was fitted to tells no later one's error:
        # it is decided once for a sample, and those held out are remembered apart.
        width, recent, replay = len(settings.feature_names), settings.recent_samples, settings.replay_samples
        out_of_recent, out_of_replay = recent // HELD_OUT, replay // HELD_OUT
        self._fitted = TwoPools(width, recent - out_of_recent, replay - out_of_replay, settings.selection)
        self._held_out = TwoPools(width, out_of_recent, out_of_replay, settings.selection)
        self._kept = self._new = 0
        self.model: Model | None = None
        """The model of the last round."""
        self.samples_seen = 0

    def add(self, samples: Samples) -> None:
        """Add samples, oldest first."""
        self.samples_seen += len(samples)
        kept = samples.below(self.settings.longest_ttft_seconds)
        is_held_out = np.arange(self._kept + 1, self._kept + len(kept) + 1) % HELD_OUT == 0
        self._fitted.add(kept.at(np.flatnonzero(~is_held_out)))
        self._held_out.add(kept.at(np.flatnonzero(is_held_out)))
        self._kept += len(kept)
        self._new += len(kept)

    @property
    def due(self) -> bool:
        """Return whether enough new samples have arrived for a training round."""
        return self._new >= (self.settings.first_samples if self.model is None else self.settings.round_samples)

    @property
    def remembered(self) -> Samples:
        """The samples that the next training round would use: first the replay (chosen older samples), then the newest
        samples.
        """
        return self._fitted.everything()

    def steps(self, samples: int) -> int:
        """Return the number of training steps of a round with this many samples."""
        return self.settings.fit.epochs_of(samples) * self.settings.fit.steps_of(samples)

    def train(self) -> Model:
        """Run a training round and return the new model. Raises ValueError without any sample."""
        settings, before = self.settings, self.model
        number = 1 if before is None else before.round + 1
        dice = np.random.default_rng((self._seed, number))
        self._fitted.choose_replay(before, dice)
        self._held_out.choose_replay(None, dice)  # by chance: those predicted worst would not tell the usual error
        fitted, held_out = self._fitted.everything(), self._held_out.everything()
        if not len(fitted):
            raise ValueError("there is nothing to train on")
        scales = Scales.of(fitted.followed_by(held_out).features)
        begun = None if settings.from_scratch or before is None else before.network
        begun = begun or Network.initial(len(settings.feature_names), settings.width, dice)
        network = fit(begun, scales.normalised(fitted.features), -fitted.ttft_seconds, settings.fit, dice)
        self._new = 0
        self.model = Model(
            feature_names=settings.feature_names,
            scales=scales,
            network=network,
            round=number,
            samples_seen=self.samples_seen,
            trained_on=len(fitted),
            evaluation=evaluate(scales, network, held_out),
        )
        return self.model


CANDIDATES = 10_000
"""Maximum number of samples from which a replay is chosen, unless the replay itself is larger; surplus samples are
thinned out first.
"""


class TwoPools:
    """Two sets of samples: the `recent_limit` newest samples, and at most `replay_limit` older samples that are used
    again (replay).
    """

    def __init__(self, width: int, recent_limit: int, replay_limit: int, selection: Selection) -> None:
        self._recent_limit = recent_limit
        self._replay_limit = 0 if selection is Selection.FIFO else replay_limit
        self._candidates = max(CANDIDATES, self._replay_limit)
        self._selection = selection
        self.recent = Samples.none(width)
        self.replay = Samples.none(width)
        self.leaving = Samples.none(width)
        """Samples that have become too old for the set of newest samples since a replay was last chosen: candidates for
        the next replay.
        """

    def add(self, samples: Samples) -> None:
        """Add samples that are newer than all present samples, oldest first."""
        every = self.recent.followed_by(samples)
        over = max(0, len(every) - self._recent_limit)
        self.recent = every.at(slice(over, None))
        if self._replay_limit and over:
            leaving = self.leaving.followed_by(every.at(slice(0, over)))
            self.leaving = leaving.at(slice(max(0, len(leaving) - self._candidates), None))

    def choose_replay(self, model: Model | None, dice: np.random.Generator) -> None:
        """Choose a new replay from the old replay and from the samples that have since become too old for the set of
        newest samples. Samples are chosen by `model`'s gradients, or at random without a model.
        """
        candidates = self.replay.followed_by(self.leaving)
        self.leaving = self.leaving.at(slice(0, 0))
        if len(candidates) > self._candidates:
            candidates = candidates.at(np.sort(dice.choice(len(candidates), self._candidates, replace=False)))
        if len(candidates) > self._replay_limit:
            if model is None:
                rows = np.sort(dice.choice(len(candidates), self._replay_limit, replace=False))
            else:
                rows = coreset(*gradient_features(model, candidates), self._replay_limit, self._selection)
            candidates = candidates.at(rows)
        self.replay = candidates

    def everything(self) -> Samples:
        """Return the samples that a training round uses."""
        return self.replay.followed_by(self.recent)
