"""Transfers: what it costs an instance to fetch KV blocks from another instead of computing them, and
from which one to fetch.
"""

import numpy as np

from fairlead.routing.contracts.vectors import FloatVector, IntVector, PoolVectors
from fairlead.tables import EngineFacts


def sending_seconds(tokens: int, active: int, engine: EngineFacts) -> float:
    """Seconds to send the KV blocks of this many tokens, without the latency, when `active` transfers already share the
    source's link. Only for engines that can fetch (`modelled.kv_transfer_bytes_per_second` > 0).
    """
    return tokens * engine.modelled.kv_bytes_per_token * (1 + active) / engine.modelled.kv_transfer_bytes_per_second


def transfer_seconds(tokens: IntVector, active: int, engine: EngineFacts) -> FloatVector:
    """Seconds to fetch the KV blocks of these numbers of tokens, latency included."""
    seconds: FloatVector = (
        np.multiply(tokens, sending_seconds(1, active, engine), dtype=np.float64) + engine.modelled.kv_transfer_latency_seconds
    )
    return seconds


def least_busy_holder(hits: IntVector, most: int, vectors: PoolVectors) -> int:
    """Index of the holder of the best match (`most` tokens) that serves the fewest transfers; the first of those."""
    holders: list[int] = np.flatnonzero(hits == most).tolist()
    return min(holders, key=lambda index: vectors.loads[index].transfers_out)
