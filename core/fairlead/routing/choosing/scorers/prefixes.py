"""How much of the prompt each candidate holds."""

import numpy as np

from fairlead.routing.contracts.vectors import FloatVector, IntVector


def token_share(hits: IntVector, prompt_tokens: int) -> FloatVector:
    """Cached share of the prompt's tokens, 0 to 1."""
    scores: FloatVector = hits / max(1, prompt_tokens)
    return scores


def absolute(matched_blocks: IntVector, total_blocks: int) -> FloatVector:
    """Matched share of the prompt's full blocks, 0 to 1."""
    scores: FloatVector = np.clip(matched_blocks / max(1, total_blocks), 0.0, 1.0)
    return scores


def minmax(matched_blocks: IntVector) -> FloatVector:
    """Spread between the smallest and the largest match of those that match at all; all equal = 1, no match = 0.

    A single matching block scores 1 in a pool that holds nothing else: compare `absolute`.
    """
    matching = matched_blocks > 0
    if not matching.any():
        return np.zeros(len(matched_blocks))
    low, high = int(matched_blocks[matching].min()), int(matched_blocks.max())
    spread = np.ones(len(matched_blocks)) if low == high else (matched_blocks - low) / (high - low)
    scores: FloatVector = np.where(matching, spread, 0.0)
    return scores
