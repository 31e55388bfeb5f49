"""Prefill and decode instances: selects the instance where a prefilled request decodes, the source of its KV blocks,
and the decode instances that can compute a whole request if it cannot be divided.
"""

from collections.abc import Collection, Mapping
from typing import Final

from fairlead.instances import REACHABLE, Role
from fairlead.reports.decisions import Weighing
from fairlead.routing.choosing.candidates import FALLBACKS, less_loaded, score
from fairlead.routing.choosing.decoding import select_decoding
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import INDIVISIBLE, NO_PREFILL
from fairlead.routing.knowledge.views import LiveView
from fairlead.routing.queues.accounting import TrackedRequest

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_PREFILL: Final = Role.PREFILL


def decodes_on(
    tracked: TrackedRequest, wanted: str | None, loads: Mapping[str, InstanceLoad], view: LiveView, excluded: Collection[str] = ()
) -> str | None:
    """Return the instance on which the request will decode: `wanted` if possible, else the best decode instance.

    None if the request needs no other instance: the instance that prefills also takes decodes, or the request only
    warms a cache and nobody reads its answer.
    """
    entry = loads[tracked.instance].entry
    if entry.role is not _PREFILL or tracked.request.warms:
        return None
    load = None if wanted is None or wanted in excluded else loads.get(wanted)
    if load is not None and load.takes_decodes(view.now) and load.entry.pairs_with(entry):
        return wanted
    found = select_decoding(tracked.request, view, entry, excluded)
    return wanted if found is None else found.instance


def computing_all(request: RoutingRequest, view: LiveView) -> list[InstanceLoad]:
    """Return the decode instances, least loaded first, if one of them must compute the whole request. This is so if
    there are no candidates for the prefill, or if the request cannot be divided. Otherwise the result is empty.
    """
    if view.candidates() and request.divisible:
        return []
    return sorted((load for load in view.decode_candidates() if load.entry.role is Role.DECODE), key=less_loaded)


def decode_only(request: RoutingRequest, loads: list[InstanceLoad], view: LiveView) -> Decision:
    """Return a decision for the first instance of `loads` (see `computing_all`). The decision binds no session.
    Otherwise the policy, which chooses among prefill instances, would have to move the session back.
    """

    def weigh() -> Weighing:
        speed = view.prefill_speed
        compared = [score(request, load, view.hit_tokens(request, load.entry.id), speed) for load in loads[: FALLBACKS + 1]]
        rule = NO_PREFILL if request.divisible else INDIVISIBLE
        return Weighing(rule=rule, candidates=tuple(compared), considered=len(loads))

    return Decision(instance=loads[0].entry.id, reason=DecisionReason.DECODE_ONLY, weigh=weigh)


def hit_or_fetched_tokens(tracked: TrackedRequest, instance: str, loads: Mapping[str, InstanceLoad], view: LiveView) -> int:
    """Return the number of prompt tokens that need not be computed on `instance`: the tokens that it holds or, if
    `transfer_from` holds more and still serves, the tokens that `transfer_from` holds.

    Sets on `tracked` the number of tokens to fetch and the numbers of tokens to load from cache tiers, and clears
    `transfer_from` if nothing can be fetched from it.
    """
    local = view.hit_tokens(tracked.request, instance)
    if view.caches.index.is_tiered:
        tracked.slow_tokens = view.slow_tokens(tracked.request, instance)
        tracked.loading_seconds = view.load_times.seconds(tracked.slow_tokens)
    tracked.transfer_tokens = 0
    source = tracked.transfer_from
    if source is None:
        return local
    load = loads.get(source)
    remote = 0 if load is None or load.entry.state not in REACHABLE else view.hit_tokens(tracked.request, source)
    if remote <= local:
        tracked.transfer_from = None
        return local
    tracked.transfer_tokens = remote - local
    return remote
