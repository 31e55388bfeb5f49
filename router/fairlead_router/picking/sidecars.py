"""Pools with prefill and decode behind a proxy, as llm-d does it: the proxy sends a request to a decode instance, with
the prefill instance in a header. A side-car of the decode instance first sends the prompt to the prefill instance, and
then passes the KV blocks named in its response to the decode engine.

The router sees only the side-car's response. If the prefill instance fails, the side-car lets its own engine compute
the prompt, so the router does not see that failure.
"""

from __future__ import annotations

from fairlead.instances import Role
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.tables import InstanceEntry
from fairlead.targets import instance_of, rank_of
from fairlead_router.picking.finding import members
from fairlead_router.pools.pool import Pool

PREFILL_HEADER = b"x-prefiller-host-port"
"""Header with the `ip:port` of the prefill instance. llm-d's side-car obeys it. A client's own header of this name is
removed.
"""


def members_and_prefills(pool: Pool, subset: tuple[str, ...]) -> tuple[str, ...]:
    """Return the instances that may serve a request if its proxy may only send to this subset of endpoints. These are
    the instances of the subset and, if none of them is a prefill instance, all prefill instances: a proxy never sends
    requests to prefill instances itself.
    """
    found = members(pool, subset)
    prefills = tuple(one.id for one in pool.table.instances if one.role is Role.PREFILL)
    return found if not set(prefills).isdisjoint(found) else (*found, *prefills)


def decode_endpoints(pool: Pool, dispatch: Dispatch, now: float, name: str) -> list[str]:
    """Return the addresses of the chosen decode instance and then of the decode instances that could replace it, the
    least loaded first.
    """
    entries = {one.id: one for one in pool.table.instances}
    assert dispatch.decode is not None
    chosen = instance_of(dispatch.decode)
    others = (one for one in pool.choice.by_load((chosen,), now, name) if dispatch.request.may_go_to(one))
    fitting = (one for one in others if _could_decode(entries[one], entries[instance_of(dispatch.instance)], pool, chosen))
    return list(dict.fromkeys((pool.addresses[chosen], *(pool.addresses[one] for one in fitting))))


def _could_decode(other: InstanceEntry, prefill: InstanceEntry, pool: Pool, chosen: str) -> bool:
    return other.role is Role.DECODE and other.pairs_with(prefill) and pool.ranks(other.id) == pool.ranks(chosen)


def rank_for_all(dispatch: Dispatch) -> int | None:
    """Return the data-parallel rank to name in the request's header; None if each engine must choose its rank. A
    side-car sends the same header to the prefill and the decode instance, so a rank is named only if it is the same for
    both.
    """
    rank = rank_of(dispatch.instance)
    return rank if dispatch.decode is None or rank_of(dispatch.decode) == rank else None
