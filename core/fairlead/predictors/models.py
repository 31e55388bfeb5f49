"""A model: a network with the scales and bounds of the samples it was trained on. Immutable, swapped as a whole."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.predictors.networks import Network
from fairlead.predictors.samples import Floats, Samples


class Scales(NamedTuple):
    """The mean, deviation and range of each feature in the training samples; each of them is an array [d]. A normalised
    value is z = (x - mean) / deviation.
    """

    means: Floats
    deviations: Floats
    lowest: Floats
    highest: Floats

    @staticmethod
    def of(features: Floats) -> "Scales":
        """Return the scaling of rows [n, d], n > 0. A feature that never varied is divided by 1."""
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
        """Return rows as z-scores."""
        return (features - self.means) / self.deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The accuracy of a model on samples that were not used for its training: the number of these samples, the mean
    absolute error of the predicted TTFT in seconds, and the same error of a constant prediction (the samples' mean).
    The errors are None if there were no such samples.
    """

    samples: int
    error_seconds: float | None = None
    spread_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A trained predictor. `round` counts from 1. `samples_seen` is the number of samples that its learner had received
    before this training, `trained_on` the number of samples to which the model was fitted.
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
        """Whether all numbers of the model are finite."""
        return self.network.finite and all(bool(np.isfinite(part).all()) for part in self.scales)

    def ttft_seconds(self, features: Floats) -> Floats:
        """Return the predicted TTFT in seconds for each row [n, d]: [n]. It may be negative."""
        answers: Floats = -self.network.outputs(self.scales.normalised(features))
        return answers

    def within(self, features: Floats) -> npt.NDArray[np.bool_]:
        """Return, for each feature of each row [n, d], whether its value is in the range of the training samples,
        bounds included: [n, d].

        A feature that never varied in training always counts as within.
        """
        low, high = self.scales.lowest, self.scales.highest
        inside: npt.NDArray[np.bool_] = ((features >= low) & (features <= high)) | (low == high)
        return inside

    def nearest(self, features: Floats) -> Floats:
        """Return rows [n, d] with each number clipped to the range of the training samples."""
        moved: Floats = np.clip(features, self.scales.lowest, self.scales.highest)
        return moved

    def drift(self, features: Floats) -> float:
        """Return the distance between the means of the rows' features and the means in training: in standard
        deviations, averaged over the features.
        """
        return float(np.abs(self.scales.normalised(features).mean(axis=0)).mean())


def evaluate(scales: Scales, network: Network, held_out: Samples) -> Evaluation:
    """Return the errors of a network on samples it was not fitted to."""
    if not len(held_out):
        return Evaluation(samples=0)
    answers = -network.outputs(scales.normalised(held_out.features))
    mean = held_out.ttft_seconds.mean()
    return Evaluation(
        samples=len(held_out),
        error_seconds=float(np.abs(answers - held_out.ttft_seconds).mean()),
        spread_seconds=float(np.abs(held_out.ttft_seconds - mean).mean()),
    )
