"""The network: features → three layers of rectified units → one number, in float32.

Derivatives are written by hand, since that is less code than a library for automatic differentiation.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fairlead.predictors.samples import Floats

HIDDEN_LAYERS = 3
BIAS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Weights [in, out] and biases [out] of each layer, the first layer first. Immutable after creation."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    @staticmethod
    def initial(inputs: int, width: int, dice: np.random.Generator) -> "Network":
        """Return a network with Xavier-uniform weights and biases of 0.01."""
        sizes = [inputs, *[width] * HIDDEN_LAYERS, 1]
        weights: list[Floats] = []
        for rows, columns in pairwise(sizes):
            bound = np.sqrt(6.0 / (rows + columns))
            weights.append(dice.uniform(-bound, bound, (rows, columns)).astype(np.float32))
        return Network(weights=tuple(weights), biases=tuple(np.full(columns, BIAS, dtype=np.float32) for columns in sizes[1:]))

    @property
    def inputs(self) -> int:
        """Number of input features."""
        return int(self.weights[0].shape[0])

    @property
    def finite(self) -> bool:
        """Whether all numbers of the network are finite."""
        return all(bool(np.isfinite(part).all()) for part in (*self.weights, *self.biases))

    def last_hidden(self, inputs: Floats) -> Floats:
        """Return the output of the last hidden layer for each row: [n, width]."""
        hidden = inputs
        for weights, biases in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = hidden @ weights
            hidden += biases
            np.maximum(hidden, 0.0, out=hidden)
        return hidden

    def outputs(self, inputs: Floats) -> Floats:
        """Return the network's output for each row [n, inputs]: [n]."""
        answers: Floats = (self.last_hidden(inputs) @ self.weights[-1])[:, 0] + self.biases[-1]
        return answers


def gradients(network: Network, inputs: Floats, targets: Floats, masks: tuple[Floats, ...]) -> list[Floats]:
    """Return the derivatives of the mean squared error: weights and biases of each layer in turn.

    `masks` are factors on the activations of the first hidden layers (dropout), one per layer with dropout.
    """
    activations = [inputs]
    for layer in range(len(network.weights) - 1):
        hidden = activations[-1] @ network.weights[layer]
        hidden += network.biases[layer]
        np.maximum(hidden, 0.0, out=hidden)
        if layer < len(masks):
            hidden *= masks[layer]
        activations.append(hidden)
    answers = (activations[-1] @ network.weights[-1])[:, 0] + network.biases[-1]
    backward: Floats = ((answers - targets) * np.float32(2.0 / len(targets)))[:, None]
    found: list[Floats] = []
    for layer in range(len(network.weights) - 1, -1, -1):
        found += [backward.sum(axis=0), activations[layer].T @ backward]
        if layer:
            backward = (backward @ network.weights[layer].T) * (activations[layer] > 0)
            if layer - 1 < len(masks):
                backward *= masks[layer - 1]
    return found[::-1]
