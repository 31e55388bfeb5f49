"""Chooses the samples to remember: a small set that represents many samples by the gradients that they would give (a
coreset).

A sample's gradient feature is the last hidden layer's output for the sample times the sample's residual. It shows how
much, and in which direction, the sample would change the model. The method is greedy k-centre: the first pick is the
sample with the largest gradient feature, and each further pick is the sample that differs most from all samples picked
before.
"""

from enum import StrEnum

import numpy as np

from fairlead.predictors.models import Model
from fairlead.predictors.samples import Floats, Indexes, Samples

NEVER_ZERO = np.float32(1e-8)


class Selection(StrEnum):
    """The measure of how much samples differ.

    `published`: by direction alone, as in Lodestar's code, where only the first pick considers residuals. `corrected`:
    by residual x (1 - similarity), as in Lodestar's paper, so that samples which the model still mispredicts are kept.
    `fifo` keeps no replay at all.
    """

    PUBLISHED = "published"
    CORRECTED = "corrected"
    FIFO = "fifo"


def gradient_features(model: Model, samples: Samples) -> tuple[Floats, Floats]:
    """Return the samples' gradient features: directions [n, width] of unit length (or zero) and sizes [n]."""
    inputs = model.scales.normalised(samples.features)
    hidden = model.network.last_hidden(inputs)
    answers = -((hidden @ model.network.weights[-1])[:, 0] + model.network.biases[-1])
    residuals: Floats = np.abs(answers - samples.ttft_seconds)
    lengths: Floats = np.linalg.norm(hidden, axis=1).astype(np.float32)
    directions: Floats = (hidden / np.maximum(lengths, NEVER_ZERO)[:, None]).astype(np.float32)
    directions[residuals <= NEVER_ZERO] = 0.0
    return directions, residuals * lengths


def coreset(directions: Floats, sizes: Floats, count: int, selection: Selection) -> Indexes:
    """Return the rows of `count` samples, ascending; all rows if there are at most `count` samples."""
    total = len(sizes)
    if total <= count:
        return np.arange(total)
    weights = np.maximum(sizes, NEVER_ZERO) if selection is Selection.CORRECTED else np.ones(total, dtype=np.float32)
    chosen = np.zeros(total, dtype=np.bool_)
    pick = int(sizes.argmax())
    closest = np.full(total, -1.0, dtype=np.float32)
    for _ in range(count):
        chosen[pick] = True
        np.maximum(closest, directions @ directions[pick], out=closest)
        unlike = weights * (np.float32(1.0) - closest)
        unlike[chosen] = -np.inf
        pick = int(unlike.argmax())
    return np.flatnonzero(chosen)
