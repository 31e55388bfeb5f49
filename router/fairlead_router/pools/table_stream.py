"""Receives the table stream, in which the control API sends routing tables, bindings and gateway keys when it commits
them.

One long-lived connection carries the stream. If it is lost, the router opens another one.

The stream begins with a snapshot, which consists of all messages before `synced`. A snapshot is complete, so pools that
it does not contain were deleted. No pool is removed before `synced`, so a stream that breaks halfway does no harm.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from fairlead.reports.bindings import Binding
from fairlead.tables import PoolKey, RoutingTable
from fairlead_client.internal import SystemApi
from fairlead_client.lines import (
    BindingsLine,
    GatewayKeysLine,
    HeartbeatLine,
    KeptSessionsLine,
    OthersLine,
    PoolDeletedLine,
    StreamLine,
    SyncedLine,
    TableLine,
)
from fairlead_client.problems import StreamLost
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.pools.pools import Pools
from fairlead_router.pools.table_cache import TableCache

SHORTEST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StreamSnapshot:
    """The pools and bindings of a snapshot that have arrived so far."""

    pools: set[PoolKey] = field(default_factory=set)
    bindings: list[Binding] = field(default_factory=list)

    @property
    def sessions(self) -> set[tuple[PoolKey, str]]:
        """The sessions that have a binding in the snapshot, each with its pool."""
        return {(binding.pool, binding.session) for binding in self.bindings}


class TableFollower:
    """Receives the table stream, and keeps the pools, the keys and the cache on disk up to date.

    `on_synced` is called after each complete snapshot. `now` is the router's clock in Unix seconds.
    """

    def __init__(
        self,
        router: str,
        api: SystemApi,
        pools: Pools,
        keys: GatewayKeys,
        cache: TableCache,
        metrics: RouterMetrics,
        on_synced: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._router = router
        self._api = api
        self._pools = pools
        self._keys = keys
        self._cache = cache
        self._metrics = metrics
        self._on_synced = on_synced
        self._now = now
        self._snapshot: StreamSnapshot | None = None
        self._later: StreamSnapshot | None = None
        """The bindings of a second snapshot on the same connection; None if there is no such snapshot. The API sends it
        after it has missed changes or lost its database.
        """
        self._random = random.Random()  # only for jitter between reconnects

    async def follow_forever(self) -> None:
        """Connect and receive the stream. After a lost connection, connect again after a pause, which grows to 5 s
        while the API does not respond.
        """
        pause = SHORTEST_PAUSE_SECONDS
        while True:
            self._snapshot, self._later = StreamSnapshot(), None
            heard = False
            try:
                async with aclosing(self._api.stream(self._router)) as lines:
                    async for line in lines:
                        if not heard:
                            heard, pause = True, SHORTEST_PAUSE_SECONDS
                            self._metrics.control_plane_connected = 1
                        self._take(line)
            except StreamLost as lost:
                extra = {"error": str(lost), "again_in": round(pause, 1)}
                logger.warning("table stream lost, serving from the last tables", extra=extra)
            finally:
                self._metrics.control_plane_connected = 0
            self._metrics.stream_reconnects += 1
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _take(self, line: StreamLine) -> None:
        match line:
            case TableLine():
                self._take_table(line.table)
                if line.known is not None:
                    self._pools.recall_engines((line.known,))
            case PoolDeletedLine():
                if self._pools.delete(line.pool):
                    self._keep_tables()
                    self._cache.drop_pool(line.pool)
            case BindingsLine():
                self._take_bindings(line.bindings)
            case GatewayKeysLine():
                if line.begins and self._snapshot is None:
                    self._later = StreamSnapshot()
                self._keys.replace(line.keys, self._now())
                self._cache.keep_gateway_keys(line.keys)
            case OthersLine():
                self._pools.know_others(line.share)
            case KeptSessionsLine():
                self._pools.keep_sessions(line.sessions)
            case SyncedLine():
                if self._snapshot is not None:
                    self._complete(self._snapshot)
                elif self._later is not None:
                    self._tell_missing(self._later)
                    self._later = None
            case HeartbeatLine():
                pass  # the line only shows that the connection is alive

    def _take_table(self, table: RoutingTable) -> None:
        if self._snapshot is not None:
            self._snapshot.pools.add(table.pool)
        if self._pools.apply(table) and self._snapshot is None:
            self._keep_tables()

    def _take_bindings(self, bindings: tuple[Binding, ...]) -> None:
        self._pools.apply_bindings(bindings)
        if self._later is not None:
            self._later.bindings.extend(bindings)
        if self._snapshot is None:
            self._cache.keep_bindings(bindings)
        else:
            self._snapshot.bindings.extend(bindings)

    def _complete(self, snapshot: StreamSnapshot) -> None:
        """Use a complete snapshot: delete the pools that it does not contain, and replace the tables and bindings on
        disk.
        """
        self._snapshot = None
        for pool in self._pools.all():
            if pool.key not in snapshot.pools:
                self._pools.delete(pool.key)
        self._keep_tables()
        self._cache.replace_bindings(snapshot.bindings)
        self._tell_missing(snapshot)
        self._on_synced()
        logger.info("received all tables from the control API", extra={"pools": len(self._pools), "bindings": len(snapshot.bindings)})

    def _tell_missing(self, snapshot: StreamSnapshot) -> None:
        """Report those sessions again that the API had confirmed but that its snapshot does not contain, because the
        API's database may have lost them.
        """
        missing = self._pools.report_missing(snapshot.sessions)
        if missing:
            logger.warning("the control API lacks sessions that it had confirmed; they are reported again", extra={"sessions": missing})

    def _keep_tables(self) -> None:
        self._cache.keep_tables(pool.table for pool in self._pools.all())
