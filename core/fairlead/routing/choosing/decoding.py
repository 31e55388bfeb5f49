"""Chooses the decode instance for a prefilled request: the shortest step after adding the request, among instances with
room for its context.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.tables import InstanceEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeChoice:
    """A decode instance and its step time (s) with the request added; infinite when no instance has room for its
    context.
    """

    instance: str
    tpot_seconds: float


def select_decoding(
    request: RoutingRequest, view: PoolView, prefilled_on: InstanceEntry | None = None, excluded: Collection[str] = ()
) -> DecodeChoice | None:
    """Mooncake's SelectDecoding: argmin of the predicted step over the decode instances with room for the prompt, among
    those that may serve the request and can take KV blocks from `prefilled_on` (None: from all).

    Ties, and pools with unknown decode times, are decided by the fewest context tokens, then requests, then id. If no
    instance has room, the one with the fewest tokens is returned with an infinite step time. None when no instance
    decodes.
    """
    capacity = view.table.engine.kv_cache_tokens
    best: str | None = None
    best_rank: tuple[bool, float, int, int] | None = None
    for load in view.decode_candidates():
        instance = load.entry.id
        if instance in excluded or not request.may_go_to(instance) or not (prefilled_on is None or load.entry.pairs_with(prefilled_on)):
            continue
        tokens = load.decode_tokens + load.incoming_tokens
        requests = load.decoding + load.incoming
        full = tokens + request.prompt_tokens > capacity
        rank = (full, 0.0 if full else view.decode_seconds(tokens + request.prompt_tokens, requests + 1), tokens, requests)
        if best_rank is None or rank < best_rank:
            best, best_rank = instance, rank
    if best is None or best_rank is None:
        return None
    return DecodeChoice(instance=best, tpot_seconds=inf if best_rank[0] else best_rank[1])
