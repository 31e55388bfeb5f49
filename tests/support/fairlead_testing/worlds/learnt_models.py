"""Trained models whose predictions a test can compute in its head."""

import numpy as np

from fairlead.predictors.model_bytes import to_bytes
from fairlead.predictors.models import Evaluation, Model, Scales
from fairlead.predictors.networks import Network
from fairlead.routing.choosing.instance_features import FEATURES


def sum_of(*of: str, seconds_per: float = 0.001, number: int = 1) -> Model:
    """Return a model whose TTFT is the sum of these features, each multiplied by `seconds_per`. No input is outside its
    range.
    """
    width = len(FEATURES)
    first = np.zeros((width, 4), dtype=np.float32)
    first[[FEATURES.index(name) for name in of], 0] = seconds_per
    square = np.eye(4, dtype=np.float32)
    last = np.array([[-1.0], [0], [0], [0]], dtype=np.float32)
    nothing = np.zeros(4, dtype=np.float32)
    plain = Scales(
        means=np.zeros(width, dtype=np.float32),
        deviations=np.ones(width, dtype=np.float32),
        lowest=np.full(width, -1e9, dtype=np.float32),
        highest=np.full(width, 1e9, dtype=np.float32),
    )
    return Model(
        feature_names=FEATURES,
        scales=plain,
        network=Network(weights=(first, square, square, last), biases=(nothing, nothing, nothing, np.zeros(1, dtype=np.float32))),
        round=number,
        samples_seen=1000,
        trained_on=800,
        evaluation=Evaluation(samples=200, error_seconds=0.1, spread_seconds=1.0),
    )


def damaged(model: Model) -> bytes:
    """Return the model's bytes with one bit changed."""
    content = bytearray(to_bytes(model))
    content[len(content) // 2] ^= 1
    return bytes(content)
