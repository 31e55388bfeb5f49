"""A model: a network with the scales and bounds of the samples it was trained on. Immutable, swapped as a whole."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.predictors.networks import Network
from fairlead.predictors.samples import Floats, Samples


class Scales(NamedTuple):
    """What a feature is measured against: z = (x - mean) / deviation, and the range it was seen in. Each [d]."""

    means: Floats
    deviations: Floats
    lowest: Floats
    highest: Floats

    @staticmethod
    def of(features: Floats) -> "Scales":
        """The scaling of rows [n, d], n > 0. A feature that never varied is divided by 1."""
        wide = features.astype(np.float64)
        deviations = wide.std(axis=0)
        deviations[deviations <= 0] = 1.0
        return Scales(
            means=wide.mean(axis=0).astype(np.float32),
            deviations=deviations.astype(np.float32),
            lowest=features.min(axis=0),
            highest=features.max(axis=0),
        )

    def normalised(self, features: Floats) -> Floats:
        """Rows as z-scores."""
        return (features - self.means) / self.deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How well a model predicted samples held out from its training: their number, the mean absolute error of their
    TTFT in seconds, and that of always answering their mean. None without any.
    """

    samples: int
    error_seconds: float | None = None
    spread_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A trained predictor. `round` counts from 1; `samples_seen` are those its learner had been given by then,
    `trained_on` those it was fitted to.
    """

    feature_names: tuple[str, ...]
    scales: Scales
    network: Network
    round: int
    samples_seen: int
    trained_on: int
    evaluation: Evaluation

    @property
    def finite(self) -> bool:
        """Whether all its numbers are finite."""
        return self.network.finite and all(bool(np.isfinite(part).all()) for part in self.scales)

    def ttft_seconds(self, features: Floats) -> Floats:
        """The TTFT it expects for each row [n, d] in seconds: [n]. Nothing keeps it above zero."""
        answers: Floats = -self.network.outputs(self.scales.normalised(features))
        return answers

    def within(self, features: Floats) -> npt.NDArray[np.bool_]:
        """Which numbers of rows [n, d] lie in the range it was trained on, bounds included: [n, d].

        A feature that never varied in training says nothing, and counts as within.
        """
        low, high = self.scales.lowest, self.scales.highest
        inside: npt.NDArray[np.bool_] = ((features >= low) & (features <= high)) | (low == high)
        return inside

    def nearest(self, features: Floats) -> Floats:
        """Rows [n, d] with each number moved to the range it was trained on, where it lies outside."""
        moved: Floats = np.clip(features, self.scales.lowest, self.scales.highest)
        return moved

    def drift(self, features: Floats) -> float:
        """How far the mean of rows has moved from that of the training, in its deviations, mean over the features."""
        return float(np.abs(self.scales.normalised(features).mean(axis=0)).mean())


def evaluate(scales: Scales, network: Network, held_out: Samples) -> Evaluation:
    """The errors of a network on samples it was not fitted to."""
    if not len(held_out):
        return Evaluation(samples=0)
    answers = -network.outputs(scales.normalised(held_out.features))
    mean = held_out.ttft_seconds.mean()
    return Evaluation(
        samples=len(held_out),
        error_seconds=float(np.abs(answers - held_out.ttft_seconds).mean()),
        spread_seconds=float(np.abs(held_out.ttft_seconds - mean).mean()),
    )
