"""The operator's polling of the control API, for facts that no Kubernetes event reports.

First, requests that routers hold for pools at zero: one call a second finds these pools, and each is reconciled at
once. Second, pools that were deleted while no operator or no control API was running: the API does not know of the
deletion, so these pools would remain in the API and in routers. The operator sends the state of each pool every few
seconds, and checks in the cluster whether the pools without a recent state still exist.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from fairlead.pool_states import HeldPools, UnheardPools
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Outcome, Taken
from fairlead_operator.cluster import Cluster, ClusterError, Resource

logger = logging.getLogger(__name__)


class TellsHeldPools(Protocol):
    """The call of the control API that `SleepingPools` needs."""

    async def held_pools(self) -> Outcome[HeldPools]:
        """Return the pools for which routers hold requests."""


class SleepingPools:
    """The pools of this operator that have no instance until a request arrives.

    If the worker of a pool is not woken here, for example while the control API is unreachable, the pool's own next
    round starts its instances.
    """

    def __init__(self) -> None:
        self._asleep: set[PoolKey] = set()

    def note(self, pool: PoolKey, *, asleep: bool) -> None:
        """Record whether a pool's last round left the pool without instances until a request arrives."""
        if asleep:
            self._asleep.add(pool)
        else:
            self._asleep.discard(pool)

    async def ask(self, control_plane: TellsHeldPools, wake: Callable[[PoolKey], None]) -> None:
        """Wake the workers of sleeping pools for which routers hold requests. If no pool sleeps, no call is made."""
        if not self._asleep:
            return
        outcome = await control_plane.held_pools()
        if isinstance(outcome, Taken):
            for pool in outcome.answer.pools:
                if pool in self._asleep:
                    wake(pool)

    async def watch(self, control_plane: TellsHeldPools, wake: Callable[[PoolKey], None], seconds: float) -> None:
        """Call `ask` forever, with pauses of `seconds`."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.ask(control_plane, wake)
            except Exception:  # one bad answer must not keep pools asleep for ever
                logger.exception("asking for held requests failed")


class TellsUnheardPools(Protocol):
    """The calls of the control API that `UntoldDeletions` needs."""

    async def unheard_pools(self, seconds: float) -> Outcome[UnheardPools]:
        """Return the pools for which no state has arrived for this many seconds."""

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        """Report that the pool is gone; may be repeated."""


class UntoldDeletions:
    """Reports deletions of pools of which the control API was not informed, in the namespaces of this operator (empty =
    all). A pool counts as silent if the API has received no state of it for `seconds`. A pool is reported as deleted if
    three things hold: it is silent in two checks in a row, so that its operator had time to send its state after an
    outage of the API; a complete list of its namespace does not contain it; and a separate read does not find it.
    """

    def __init__(self, namespaces: Collection[str], seconds: float) -> None:
        self._namespaces = namespaces
        self._seconds = seconds
        self._unheard: frozenset[PoolKey] = frozenset()

    async def look(self, control_plane: TellsUnheardPools, cluster: Cluster) -> None:
        """Check once for deletions that the control API does not know of."""
        before, self._unheard = self._unheard, frozenset()
        outcome = await control_plane.unheard_pools(self._seconds)
        if not isinstance(outcome, Taken):
            return
        self._unheard = frozenset(pool for pool in outcome.answer.pools if not self._namespaces or pool.namespace in self._namespaces)
        still = before & self._unheard
        for namespace in sorted({pool.namespace for pool in still}):
            try:
                there = {found["metadata"]["name"] for found in await cluster.find(Resource.POOLS, namespace, "")}
                for pool in sorted((one for one in still if one.namespace == namespace and one.name not in there), key=str):
                    await self._tell(pool, control_plane, cluster)
            except ClusterError as error:
                logger.warning("no search for deletions", extra={"namespace": namespace, "error": str(error)})

    async def _tell(self, pool: PoolKey, control_plane: TellsUnheardPools, cluster: Cluster) -> None:
        """Report a pool's deletion to the control API, if the pool no longer exists. Raises ClusterError."""
        if await cluster.get(Resource.POOLS, pool.namespace, pool.name) is None:
            told = isinstance(await control_plane.delete_pool(pool), Taken)
            logger.info("a deletion that was not reported before", extra={"pool": str(pool), "control_plane_told": told})

    async def watch(self, control_plane: TellsUnheardPools, cluster: Cluster, pause: float) -> None:
        """Call `look` forever, with pauses of `pause` seconds."""
        while True:
            await asyncio.sleep(pause)
            try:
                await self.look(control_plane, cluster)
            except Exception:  # one bad answer must not end the looks
                logger.exception("the search for deletions failed because of a bug")
