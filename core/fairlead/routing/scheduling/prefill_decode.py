"""Prefill and decode instances: where a request decodes that is prefilled elsewhere, and from where
its KV blocks are fetched.
"""

from collections.abc import Collection, Mapping

from fairlead.instances import REACHABLE, Role
from fairlead.routing.choosing.decoding import select_decoding
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.knowledge.views import LiveView
from fairlead.routing.queues.accounting import TrackedRequest


def decodes_on(
    tracked: TrackedRequest, wanted: str | None, loads: Mapping[str, InstanceLoad], view: LiveView, excluded: Collection[str] = ()
) -> str | None:
    """The decode instance of a request that prefills where it is: the wanted one if it can, else the
    best; None = where it is.
    """
    if loads[tracked.instance].entry.role is not Role.PREFILL:
        return None
    load = None if wanted is None or wanted in excluded else loads.get(wanted)
    if load is not None and load.takes_decodes(view.now):
        return wanted
    found = select_decoding(tracked.request, view, excluded)
    return wanted if found is None else found.instance


def hit_or_fetched_tokens(tracked: TrackedRequest, instance: str, loads: Mapping[str, InstanceLoad], view: LiveView) -> int:
    """Prompt tokens not to be computed on `instance`: held there, or fetched from `transfer_from` if that
    holds more and still serves.

    Writes down how many are fetched, and forgets a source that has nothing to give.
    """
    local = view.hit_tokens(tracked.request, instance)
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
