"""Fitting a network to samples: Adam on mini-batches, with dropout, a bound on the gradient and a falling learning
rate.

The hyperparameters are taken from Lodestar's code, with two differences: the learning rate is three times as high, and
there is a minimum number of steps.
"""

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from fairlead.predictors.networks import Network, gradients
from fairlead.predictors.samples import Floats

FIRST_MEMORY, SECOND_MEMORY, NEVER_ZERO = 0.9, 0.999, 1e-8
"""The constants of the Adam algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """The settings for fitting a network.

    The fit makes `epochs` passes over the samples, and further passes until it has made `least_steps` steps.
    """

    rate: float = 1e-3
    decay_per_epoch: float = 0.95
    weight_decay: float = 1e-5
    largest_gradient: float = 1.0
    """Euclidean norm over all parameters, above which a gradient is shortened."""
    dropout: float = 0.1
    dropout_layers: int = 2
    batch: int = 256
    epochs: int = 20
    least_steps: int = 600

    def steps_of(self, samples: int) -> int:
        """Return the number of steps in one epoch."""
        return ceil(samples / self.batch)

    def epochs_of(self, samples: int) -> int:
        """Return the number of passes over this many samples, enough for `least_steps`."""
        return max(self.epochs, ceil(self.least_steps / self.steps_of(samples)))


class Adam:
    """The Adam optimiser; weight decay is added to the gradient, as in the published training."""

    def __init__(self, parameters: list[Floats], weight_decay: float) -> None:
        self._parameters = parameters
        self._weight_decay = np.float32(weight_decay)
        self._first = [np.zeros_like(one) for one in parameters]
        self._second = [np.zeros_like(one) for one in parameters]
        self._steps = 0

    def step(self, found: list[Floats], rate: float, largest_gradient: float) -> None:
        """Update the parameters in place, by the gradients `found` at the learning rate `rate`."""
        norm = sqrt(sum(float(np.vdot(one, one)) for one in found))
        shortened = np.float32(min(1.0, largest_gradient / (norm + 1e-6)))
        self._steps += 1
        scale = np.float32(rate * sqrt(1 - SECOND_MEMORY**self._steps) / (1 - FIRST_MEMORY**self._steps))
        for parameter, gradient, first, second in zip(self._parameters, found, self._first, self._second, strict=True):
            gradient = gradient * shortened + self._weight_decay * parameter
            first += np.float32(1 - FIRST_MEMORY) * (gradient - first)
            second += np.float32(1 - SECOND_MEMORY) * (gradient * gradient - second)
            parameter -= scale * first / (np.sqrt(second) + np.float32(NEVER_ZERO))


def fit(network: Network, inputs: Floats, targets: Floats, settings: FitSettings, dice: np.random.Generator) -> Network:
    """Return a copy of `network` trained to predict `targets` [n] from `inputs` [n, d]; `network` itself is not
    changed.

    The same arguments give the same result on one kind of processor; other kinds may round matrix products differently.
    """
    layers = len(network.weights)
    parts: list[Floats] = []
    for weights, biases in zip(network.weights, network.biases, strict=True):
        parts += [weights.copy(), biases.copy()]
    moving = Network(weights=tuple(parts[0::2]), biases=tuple(parts[1::2]))
    adam = Adam(parts, settings.weight_decay)
    count, rate = len(targets), settings.rate
    epochs = settings.epochs_of(count)
    decay = settings.decay_per_epoch ** (settings.epochs / epochs)
    kept = np.float32(1 / (1 - settings.dropout))
    masked = min(settings.dropout_layers, layers - 1) if settings.dropout else 0
    for _ in range(epochs):
        order = dice.permutation(count)
        for begin in range(0, count, settings.batch):
            rows = order[begin : begin + settings.batch]
            masks = tuple(
                (dice.random((len(rows), moving.weights[layer].shape[1]), dtype=np.float32) >= settings.dropout) * kept
                for layer in range(masked)
            )
            adam.step(gradients(moving, inputs[rows], targets[rows], masks), rate, settings.largest_gradient)
        rate *= decay
    return moving
