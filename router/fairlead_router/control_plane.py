"""The table stream: routing tables and bindings as the control API commits them, over one long-lived connection that is opened again when lost.

The API's snapshot, from connecting to `synced`, is complete: pools it does not contain are gone. Until it is complete nothing is taken away, so a
stream that breaks halfway changes nothing for the worse.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable

import httpx
import msgspec

from fairlead.reports import Binding
from fairlead.tables import PoolKey, RoutingTable
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pools import Pools
from fairlead_router.table_cache import TableCache

SILENCE_SECONDS = 7.0
"""The API sends a heartbeat every 2 s; a stream silent for this long is taken as dead."""
LONGEST_LINE = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class StreamLine(msgspec.Struct):
    """One line of the stream; which fields are set depends on `type`."""

    type: str
    table: RoutingTable | None = None
    pool: PoolKey | None = None
    bindings: tuple[Binding, ...] = ()


_line = msgspec.json.Decoder(StreamLine)


class StreamBroken(Exception):
    """The stream ended, fell silent, was refused or sent something unreadable; the message says which."""


class ControlPlane:
    """Follows the stream and keeps pools and the disk cache up to date. `on_synced` is called after each complete snapshot."""

    def __init__(
        self,
        router: str,
        client: httpx.AsyncClient,
        pools: Pools,
        cache: TableCache,
        metrics: RouterMetrics,
        on_synced: Callable[[], None],
    ) -> None:
        self._router = router
        self._client = client
        self._pools = pools
        self._cache = cache
        self._metrics = metrics
        self._on_synced = on_synced
        self._snapshot: tuple[set[PoolKey], list[Binding]] | None = None
        self._random = random.Random()  # only for jitter between reconnects

    async def follow_forever(self) -> None:
        """Connect, follow, and connect again after a pause that grows to 5 s while nothing is heard."""
        pause = 0.2
        while True:
            heard = False
            try:
                async for line in self._lines():
                    if not heard:
                        heard, pause = True, 0.2
                        self._metrics.control_plane_connected = 1
                    self._take(line)
            except StreamBroken as broken:
                logger.warning(
                    "table stream lost, serving from the last tables", extra={"problem": str(broken), "again_in": round(pause, 1)}
                )
            finally:
                self._metrics.control_plane_connected = 0
            self._metrics.stream_reconnects += 1
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
            pause = min(pause * 2, 5.0)

    async def _lines(self) -> AsyncIterator[StreamLine]:
        self._snapshot = (set(), [])
        timeout = httpx.Timeout(5.0, read=SILENCE_SECONDS)
        try:
            async with self._client.stream("GET", "/internal/v1/stream", params={"router": self._router}, timeout=timeout) as response:
                if response.status_code != 200:
                    raise StreamBroken(f"the control API answered {response.status_code}")
                buffer = bytearray()
                async for piece in response.aiter_raw():
                    buffer += piece
                    if b"\n" in piece:
                        *lines, rest = buffer.split(b"\n")
                        buffer = rest
                        for line in lines:
                            if line.strip():
                                yield _line.decode(line)
                    elif len(buffer) > LONGEST_LINE:
                        raise StreamBroken(f"a line is longer than {LONGEST_LINE} bytes")
        except msgspec.DecodeError as error:
            raise StreamBroken(f"unreadable line: {error}") from error
        except httpx.HTTPError as error:
            raise StreamBroken(f"{type(error).__name__} {error}".strip()) from error
        raise StreamBroken("the control API ended the stream")

    def _take(self, line: StreamLine) -> None:
        if line.type == "table" and line.table is not None:
            if self._snapshot is not None:
                self._snapshot[0].add(line.table.pool)
            if self._pools.apply(line.table) and self._snapshot is None:
                self._keep_tables()
        elif line.type == "pool_deleted" and line.pool is not None:
            if self._pools.delete(line.pool):
                self._keep_tables()
                self._cache.drop_pool(line.pool)
        elif line.type == "bindings":
            self._pools.apply_bindings(line.bindings)
            if self._snapshot is None:
                self._cache.keep_bindings(line.bindings)
            else:
                self._snapshot[1].extend(line.bindings)
        elif line.type == "synced":
            self._synced()
        # Heartbeats only keep the connection from being taken as dead; types this version does not know are ignored.

    def _synced(self) -> None:
        if self._snapshot is None:
            return
        told, bindings = self._snapshot
        self._snapshot = None
        for pool in self._pools.all():
            if pool.key not in told:
                self._pools.delete(pool.key)
        self._keep_tables()
        self._cache.replace_bindings(bindings)
        self._on_synced()
        logger.info("in step with the control API", extra={"pools": len(self._pools), "bindings": len(bindings)})

    def _keep_tables(self) -> None:
        self._cache.keep_tables(pool.table for pool in self._pools.all())
