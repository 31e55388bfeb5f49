"""How idle each candidate is."""

import numpy as np

from fairlead.routing.contracts.vectors import FloatVector, IntVector, normalised


def short_queue(queued: IntVector) -> FloatVector:
    """(longest - own) / (longest - shortest) queue; all 1 when equal."""
    longest, shortest = int(queued.max()), int(queued.min())
    scores: FloatVector = np.ones(len(queued)) if longest == shortest else (longest - queued) / (longest - shortest)
    return scores


def idleness(work: IntVector) -> FloatVector:
    """1 - work as a share of the most loaded; all 1 when there is none."""
    scores: FloatVector = 1.0 - normalised(work)
    return scores


def free_kv(kv_usage: FloatVector) -> FloatVector:
    """1 - used share of the KV cache."""
    scores: FloatVector = np.clip(1.0 - kv_usage, 0.0, 1.0)
    return scores
