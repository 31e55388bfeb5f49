"""Transfers: the time to fetch KV blocks from another instance instead of computing them, and the choice of the
instance to fetch from.
"""

import numpy as np

from fairlead.routing.contracts.policies import FetchSpeed
from fairlead.routing.contracts.vectors import FloatVector, IntVector, PoolVectors


def sending_seconds(tokens: int, active: int, speed: FetchSpeed) -> float:
    """Return the seconds to send the KV blocks of this many tokens while `active` other transfers share the source's
    link. The result does not include the latency.
    """
    return tokens * speed.size * (1 + active) / speed.rate


def transfer_seconds(tokens: IntVector, active: int, speed: FetchSpeed) -> FloatVector:
    """Return, for each of these numbers of tokens, the seconds to fetch the tokens' KV blocks, latency included."""
    seconds: FloatVector = np.multiply(tokens, sending_seconds(1, active, speed), dtype=np.float64) + speed.latency_seconds
    return seconds


def least_busy_holder(hits: IntVector, most: int, vectors: PoolVectors) -> int:
    """Return the index of the instance that serves the fewest transfers, among the instances that hold `most` tokens,
    the longest match. Ties go to the lowest index.
    """
    holders: list[int] = np.flatnonzero(hits == most).tolist()
    return min(holders, key=lambda index: vectors.loads[index].transfers_out)
