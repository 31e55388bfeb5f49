"""Features: the inputs of a trained predictor, one row per candidate.

No value in a row identifies its instance, so instances with the same features get the same prediction. Lodestar has a
feature for the accelerator's model. Fairlead uses the measured pace instead: it separates fast from slow instances
without any declaration.
"""

import numpy as np

from fairlead.predictors.models import Model
from fairlead.predictors.samples import Floats
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector

FEATURES = (
    "running",
    "waiting",
    "prefill_tokens",
    "decode_tokens",
    "kv_usage",
    "pace",
    "hit_percent",
    "paced_ttft_seconds",
    "prompt_tokens",
)
"""The features of a row: requests sent and unfinished · requests queued · uncached prompt tokens to compute · context
tokens being decoded · used share of the KV cache · pace (measured over predicted prefill time) · cached share of this
prompt · the router's own TTFT prediction times the pace · the prompt's length.
"""

OF_THE_FORMULA = FEATURES.index("paced_ttft_seconds")
OF_THE_REQUEST = FEATURES.index("prompt_tokens")


def expected_ttfts(model: Model, features: Floats) -> FloatVector:
    """Return the expected TTFT in seconds for each row of `features` ([n, 9] → [n]).

    For a row outside the training range, the result is the model's prediction for the nearest row inside the range,
    plus the difference that the router's own formula finds between the two rows. Instances outside the training range
    are not excluded: otherwise they would never be chosen, and would never appear in the training data.
    """
    known = model.nearest(features)
    beyond = features[:, OF_THE_FORMULA] - known[:, OF_THE_FORMULA]
    return (model.ttft_seconds(known) + beyond).astype(np.float64)


def instance_features(request: RoutingRequest, view: PoolView, hits: IntVector) -> Floats:
    """Return a row of `FEATURES` per candidate: [n, 9]."""
    vectors = view.vectors()
    rows = np.empty((len(hits), len(FEATURES)), dtype=np.float32)
    rows[:, 0] = vectors.requests - vectors.waiting
    rows[:, 1] = vectors.waiting
    rows[:, 2] = vectors.pending
    rows[:, 3] = vectors.decode_tokens
    rows[:, 4] = vectors.kv_usage
    rows[:, 5] = vectors.pace
    rows[:, 6] = hits * (100.0 / max(1, request.prompt_tokens))
    rows[:, 7] = view.ttft_vector(request, hits) * vectors.pace
    rows[:, 8] = request.prompt_tokens
    return rows
