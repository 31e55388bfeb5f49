"""Scores for idleness: instances with less work score higher."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.routing.choosing.considered import Considered
from fairlead.routing.contracts.vectors import FloatVector, IntVector, misses, normalised
from fairlead.schemas.shapes import number, whole


def short_queue(queued: IntVector) -> FloatVector:
    """Return (longest queue - own queue) / (longest - shortest queue) for each instance; all 1 if the queues are
    equally long.
    """
    longest, shortest = int(queued.max()), int(queued.min())
    scores: FloatVector = np.ones(len(queued)) if longest == shortest else (longest - queued) / (longest - shortest)
    return scores


def idleness(work: IntVector) -> FloatVector:
    """Return 1 - (work / largest work of an instance) for each instance; all 1 if there is no work."""
    scores: FloatVector = 1.0 - normalised(work)
    return scores


def free_kv(kv_usage: FloatVector) -> FloatVector:
    """Return the free share of each instance's KV cache."""
    scores: FloatVector = np.clip(1.0 - kv_usage, 0.0, 1.0)
    return scores


def below(work: IntVector, threshold: int) -> FloatVector:
    """Return 1 - work / `threshold` for each instance, but at least 0."""
    scores: FloatVector = 1.0 - np.minimum(work, threshold) / threshold
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueScorer:
    """`queue-scorer`: the shortest queue scores 1, the longest 0."""

    term: ClassVar[str] = "queue_score"

    def scores(self, seen: Considered) -> FloatVector:
        return short_queue(seen.queued)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheUtilizationScorer:
    """`kv-cache-utilization-scorer`: the free share of the KV cache."""

    term: ClassVar[str] = "kv_score"

    def scores(self, seen: Considered) -> FloatVector:
        return free_kv(seen.kv_usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRequestsScorer:
    """`running-requests-size-scorer`: the fewest running requests score 1, the most 0."""

    term: ClassVar[str] = "running_score"

    def scores(self, seen: Considered) -> FloatVector:
        return short_queue(seen.requests - seen.queued)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRequestScorer:
    """`active-request-scorer`: scores 1 up to a threshold of waiting or running requests, and less above it."""

    term: ClassVar[str] = "active_score"

    idle_threshold: int = whole(
        "Maximum number of requests with which an instance counts as idle and scores 1.", 0, minimum=0, maximum=1_000_000
    )
    max_busy_score: float = number("The highest score of a busy instance.", 1.0, minimum=0.0, maximum=1.0)

    def scores(self, seen: Considered) -> FloatVector:
        busy = idleness(seen.requests) * self.max_busy_score
        return np.where(seen.requests <= self.idle_threshold, 1.0, busy)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAwareScorer:
    """`load-aware-scorer`: scores half of (1 - waiting requests / threshold)."""

    term: ClassVar[str] = "load_score"

    threshold: int = whole("Number of waiting requests with which an instance scores 0.", 128, minimum=1, maximum=1_000_000)

    def scores(self, seen: Considered) -> FloatVector:
        return 0.5 * below(seen.queued, self.threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoadScorer:
    """`token-load-scorer`: scores 1 - (uncached tokens in flight, this request's included, / threshold)."""

    term: ClassVar[str] = "token_score"

    queue_threshold_tokens: int = whole("Number of tokens with which an instance scores 0.", 4_194_304, minimum=1, maximum=10**12)

    def scores(self, seen: Considered) -> FloatVector:
        return below(seen.pending + misses(seen.request.prompt_tokens, seen.hits), self.queue_threshold_tokens)
