"""Lets a drain end in seconds: begun answers of an instance that drains go on elsewhere, as far as they can.

An answer stays for the pool's `handOverAfter`, since most end within it. One that cannot go on elsewhere stays
until its end, or until the drain's timeout ends its instance.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.instances import InstanceState
from fairlead.reports.decisions import HANDED_OVER
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import instance_of
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.protocols.answers_so_far import SETTLED_AT
from fairlead_router.relaying.calls import Call, Calls
from fairlead_router.relaying.carrying_on import CarryingOn

LOOK_SECONDS = 0.5


class HandOvers:
    """Looks at all begun answers. `now` is the router's clock in Unix seconds."""

    def __init__(self, pools: Pools, calls: Calls, carrying: CarryingOn, now: Callable[[], float]) -> None:
        self._pools = pools
        self._calls = calls
        self._carrying = carrying
        self._now = now
        self._since: dict[tuple[str, str], float] = {}
        """By pool and instance, since when it drains, as seen here."""

    async def look(self) -> None:
        """Read the new pieces of long answers, and hand over what has to leave; runs every LOOK_SECONDS."""
        now = self._now()
        draining = {
            (str(pool.key), entry.id): pool
            for pool in self._pools.all()
            for entry in pool.table.instances
            if entry.state is InstanceState.DRAINING
        }
        self._since = {place: self._since.get(place, now) for place in draining}
        for call in self._calls.under_way():
            if call.kept is not None and len(call.kept.pieces) > SETTLED_AT:
                call.kept.settle()
            if draining:
                self._hand_over(call, draining, now)

    def _hand_over(self, call: Call, draining: dict[tuple[str, str], Pool], now: float) -> None:
        ticket, connection = call.ticket, call.connection
        dispatch = None if ticket is None else ticket.verdict
        if connection is None or not isinstance(dispatch, Dispatch) or not call.quiet_since or call.kept is None:
            return
        instance = instance_of(dispatch.decode or dispatch.instance)
        for (name, leaving), pool in draining.items():
            if leaving != instance or pool.addresses.get(leaving) != connection.address:
                continue
            waited = now - self._since[name, leaving] >= pool.table.routing.hand_over_after_seconds
            begun = bool(call.kept.pieces) or call.kept.has_content
            if waited and begun and pool.accepting - {leaving} and self._carrying.may_hand_over(call, pool):
                connection.abort(UpstreamFailure(HANDED_OVER, f"{instance} drains"))
