"""The seam for a learnt TTFT predictor (Lodestar): what it may see of an instance, what it is asked, and what it is told afterwards.

A scheduler given a `Predictor` tells it, at every first token, the features of the chosen instance as they were when it was chosen. A policy that has
one asks it for all candidates at once. Instance identity is never a feature, so scores do not depend on the order or the names of instances. Nothing
here learns: training belongs outside the core, and `predict` must be fast and must not block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFeatures:
    """One instance as a request would find it. Tokens and requests are this router's; `hit_share` is of this request's prompt (0-1)."""

    running: int
    waiting: int
    prefill_tokens: int
    decode_tokens: int
    kv_usage: float
    """0-1: the engine's own reading, or what this router knows to run there."""
    hit_share: float


class Predictor(Protocol):
    """Predicts TTFT in seconds from features."""

    @property
    def ready(self) -> bool:
        """Whether it has learnt enough to be asked."""

    def predict(self, prompt_tokens: int, instances: Sequence[InstanceFeatures]) -> Sequence[float]:
        """TTFT (s) of a prompt on each of the instances, in their order."""

    def observe(self, prompt_tokens: int, chosen: InstanceFeatures, ttft_seconds: float) -> None:
        """The TTFT a request had where it was placed."""


def features_of(load: InstanceLoad, hit_tokens: int, request: RoutingRequest, kv_capacity_tokens: int) -> InstanceFeatures:
    """Features of one instance for a request, before it is counted there."""
    known = min(1.0, (load.decode_tokens + load.dispatched_prefill_tokens) / kv_capacity_tokens)
    return InstanceFeatures(
        running=load.prefilling + load.decoding,
        waiting=load.waiting,
        prefill_tokens=load.pending_prefill_tokens,
        decode_tokens=load.decode_tokens,
        kv_usage=known if load.kv_usage is None else load.kv_usage,
        hit_share=hit_tokens / max(1, request.prompt_tokens),
    )


def candidate_features(request: RoutingRequest, view: PoolView) -> tuple[InstanceFeatures, ...]:
    """Features of all `view.candidates()`, in their order."""
    capacity = view.table.engine.kv_cache_tokens
    hits = view.hit_vector(request).tolist()
    return tuple(features_of(load, hit, request, capacity) for load, hit in zip(view.candidates(), hits, strict=True))
