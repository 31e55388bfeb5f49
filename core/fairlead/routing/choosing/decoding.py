"""The choice of a decode instance for a request whose prompt is computed. Only instances with room for the request's
context are compared. The instance with the shortest decode step, with this request included, is chosen.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.tables import InstanceEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeChoice:
    """A decode instance and its step time in seconds once the request is added; infinite when no instance has room for
    the request's context.
    """

    instance: str
    tpot_seconds: float


def select_decoding(
    request: RoutingRequest, view: PoolView, prefilled_on: InstanceEntry | None = None, excluded: Collection[str] = ()
) -> DecodeChoice | None:
    """Return Mooncake's SelectDecoding: the decode instance with the shortest predicted step, among the instances that
    have room for the prompt and may serve the request. With `prefilled_on`, the instance must also be able to receive
    KV blocks from this instance.

    Ties are decided by the fewest context tokens, then the fewest requests, then id. The same rules decide while decode
    times are unknown. If no instance has room, the result is the instance with the fewest context tokens, with an
    infinite step time. None when no instance decodes.
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
