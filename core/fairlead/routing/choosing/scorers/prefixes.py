"""Scores for the part of the prompt that each instance holds."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.routing.choosing.considered import Considered
from fairlead.routing.contracts.vectors import FloatVector, IntVector
from fairlead.schemas.shapes import number, text, whole


def token_share(hits: IntVector, prompt_tokens: int) -> FloatVector:
    """Return the cached share of the prompt's tokens on each instance, 0 to 1."""
    scores: FloatVector = hits / max(1, prompt_tokens)
    return scores


def absolute(matched_blocks: IntVector, total_blocks: int) -> FloatVector:
    """Return the matched share of the prompt's full blocks on each instance, 0 to 1."""
    scores: FloatVector = np.clip(matched_blocks / max(1, total_blocks), 0.0, 1.0)
    return scores


def minmax(matched_blocks: IntVector) -> FloatVector:
    """Scale the matches above 0 linearly, so that the smallest match scores 0 and the largest 1. If they are equal, all
    of them score 1. Instances without a match score 0.

    While the caches are nearly empty, a single matching block can already score 1. To avoid this, use `absolute`.
    """
    matching = matched_blocks > 0
    if not matching.any():
        return np.zeros(len(matched_blocks))
    low, high = int(matched_blocks[matching].min()), int(matched_blocks.max())
    spread = np.ones(len(matched_blocks)) if low == high else (matched_blocks - low) / (high - low)
    scores: FloatVector = np.where(matching, spread, 0.0)
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMatches:
    """Parameters of `prefix-cache-scorer`."""

    prefix_match_info_producer_name: str = text("The producer of the matches, by its name among the plugins.", "")
    match_length_weight: float = number(
        "Weight of the matched length; the matched share has the rest of the weight.", 0.0, minimum=0.0, maximum=1.0
    )
    match_length_scale_tokens: int = whole("Number of matched tokens with which the length scores 1.", 8192, minimum=1, maximum=10**9)


class PrefixCacheScorer:
    """`prefix-cache-scorer`: scores the matched share of the prompt's blocks, optionally combined with the square of
    the matched length. Only the first `most_tokens` of a prompt are compared; 0 = all.
    """

    term: ClassVar[str] = "prefix_score"

    def __init__(self, parameters: PrefixMatches, most_tokens: int = 0) -> None:
        self._parameters = parameters
        self._most_tokens = most_tokens

    def scores(self, seen: Considered) -> FloatVector:
        given = self._parameters
        total, matched = seen.prompt_blocks(self._most_tokens), seen.matched_blocks()
        share = absolute(matched, total)
        if not given.match_length_weight:
            return share
        tokens = np.minimum(matched, total) * seen.block_tokens
        length = np.minimum(1.0, tokens / given.match_length_scale_tokens) ** 2
        scores: FloatVector = given.match_length_weight * length + (1.0 - given.match_length_weight) * share
        return scores


class RelativePrefixScorer:
    """A scorer of each match relative to the smallest and largest match in the pool, as llm-d scored until May 2026."""

    term: ClassVar[str] = "prefix_score"

    def scores(self, seen: Considered) -> FloatVector:
        return minmax(seen.matched_blocks())
