"""Serves pools with prefill and decode instances behind a proxy, as llm-d does: the proxy sends a request to a decode
instance, and a header names the prefill instance. A side-car of the decode instance first sends the prompt to the
prefill instance. The prefill response names KV blocks, which the side-car then passes to the decode engine.

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
"""The header with the `ip:port` of the prefill instance, which llm-d's side-car obeys. If the client sends a header of
this name, it is removed.
"""


def members_and_prefills(pool: Pool, subset: tuple[str, ...]) -> tuple[str, ...]:
    """Return the instances that may serve a request if its proxy may send only to this subset of endpoints.

    These are the instances of the subset. If none of them is a prefill instance, all prefill instances are added,
    because a proxy never sends requests to prefill instances itself.
    """
    found = members(pool, subset)
    prefills = tuple(one.id for one in pool.table.instances if one.role is Role.PREFILL)
    return found if not set(prefills).isdisjoint(found) else (*found, *prefills)


def decode_endpoints(pool: Pool, dispatch: Dispatch, now: float, name: str) -> list[str]:
    """Return the address of the chosen decode instance, and then the addresses of the decode instances that could
    replace it, the least loaded first.
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
    """Return the data-parallel rank to name in the request's header; None if each engine must choose its own rank. A
    side-car sends the same header to the prefill and the decode instance, so the rank is named only if both have the
    same rank.
    """
    rank = rank_of(dispatch.instance)
    return rank if dispatch.decode is None or rank_of(dispatch.decode) == rank else None
