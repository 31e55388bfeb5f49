"""What a learner remembers: the newest samples, and of older ones those worth replaying."""

import numpy as np

from fairlead.predictors.coresets import Selection, coreset, gradient_features
from fairlead.predictors.models import Model
from fairlead.predictors.samples import Samples

CANDIDATES = 10_000
"""Samples at most among which a replay is chosen, unless more are to be replayed; more are thinned out first."""


class TwoPools:
    """The `recent_limit` newest samples, and a replay of at most `replay_limit` of those that had to leave."""

    def __init__(self, width: int, recent_limit: int, replay_limit: int, selection: Selection) -> None:
        self._recent_limit = recent_limit
        self._replay_limit = 0 if selection is Selection.FIFO else replay_limit
        self._candidates = max(CANDIDATES, self._replay_limit)
        self._selection = selection
        self.recent = Samples.none(width)
        self.replay = Samples.none(width)
        self.leaving = Samples.none(width)
        """What left the newest since a replay was last chosen: candidates for the next."""

    def add(self, samples: Samples) -> None:
        """Take newer samples, oldest first."""
        every = self.recent.followed_by(samples)
        over = max(0, len(every) - self._recent_limit)
        self.recent = every.at(slice(over, None))
        if self._replay_limit and over:
            leaving = self.leaving.followed_by(every.at(slice(0, over)))
            self.leaving = leaving.at(slice(max(0, len(leaving) - self._candidates), None))

    def choose_replay(self, model: Model | None, dice: np.random.Generator) -> None:
        """Select again among the replay and the samples that have left since: by `model`'s gradients, at random without
        one.
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
        """What a round trains on."""
        return self.replay.followed_by(self.recent)
