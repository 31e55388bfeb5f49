"""The routers' stream: sends a snapshot of gateway keys, routing tables and bindings, and then every change, to any
number of routers.

Each line is encoded once. A reader that does not keep up is disconnected, and its backlog is dropped: it reconnects and
gets a snapshot, which is smaller than the backlog. Around a snapshot, lines may be repeated or late; readers recognize
the newest lines by their versions.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Protocol

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.reports.bindings import Binding
from fairlead.reports.shares import PoolShare, share_of_others
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound, StoreUnavailable
from fairlead_api.infra.notices import (
    BindingsChanged,
    GatewayKeysChanged,
    KeptSessionsChanged,
    Notice,
    PoolDeleted,
    TableChanged,
)
from fairlead_client.lines import (
    BindingsLine,
    GatewayKeysLine,
    HeartbeatLine,
    KeptSession,
    KeptSessionsLine,
    OthersLine,
    PoolDeletedLine,
    SyncedLine,
    TableLine,
    encode_line,
)

_log = logging.getLogger(__name__)
_HEARTBEAT = encode_line(HeartbeatLine())
_SYNCED = encode_line(SyncedLine())
BATCH = 500
OTHERS_SECONDS = 1.0
"""Seconds between two deliveries of other routers' load reports. Each router sends such a report once a second."""


class StreamStore(Protocol):
    """The source of routing tables, bindings and gateway keys for the routers' stream."""

    async def tables(self) -> list[TableLine]:
        """Return the newest routing table of every existing pool, with the known figures of the pool's engines."""

    async def table(self, pool: PoolKey) -> TableLine:
        """Return the newest routing table of one pool, with the known figures of its engines. Raises NotFound."""

    async def gateway_keys(self) -> list[GatewayKeyFacts]:
        """Return all gateway keys that are not revoked."""

    async def kept_sessions(self) -> list[KeptSession]:
        """Return the sessions for which every decision is kept now."""

    async def deleted_pools(self) -> list[PoolKey]:
        """Return the pools that were deleted and not created again."""

    async def shares(self) -> dict[PoolKey, dict[str, tuple[PoolShare, float]]]:
        """Return the load reports of live routers, each with its age in seconds: by pool, then by router."""

    async def bindings(self, after: tuple[int, str] | None, limit: int) -> tuple[list[Binding], tuple[int, str] | None]:
        """Return up to `limit` bound sessions of existing pools after the position `after`, and the position for the
        next call (None at the end).
        """


class Subscriber:
    """The queue of lines for one router. `cut` is set when the router has fallen behind."""

    def __init__(self, router: str, backlog: int) -> None:
        self.router = router
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue(backlog)
        self.cut = False

    def offer(self, content: bytes | None) -> None:
        """Queue a line; None means that a new snapshot must be sent."""
        if self.cut:
            return
        try:
            self.lines.put_nowait(content)
        except asyncio.QueueFull:
            self.cut = True


class TableStream:
    """Sends routing tables, bindings and changes to all connected routers.

    `heartbeat_seconds` is the maximum time without a line; `backlog` is the maximum number of lines that may wait for
    one router.
    """

    def __init__(self, store: StreamStore, *, heartbeat_seconds: float = 2.0, backlog: int = 1024) -> None:
        self._store = store
        self._heartbeat = heartbeat_seconds
        self._backlog = backlog
        self._subscribers: set[Subscriber] = set()

    @property
    def subscribers(self) -> int:
        """The number of routers connected to this process."""
        return len(self._subscribers)

    async def on_notice(self, notice: Notice) -> None:
        """Send subscribers the change that a notice announces, by reading the changed data if the notice lacks them."""
        if not self._subscribers:
            return
        if isinstance(notice, TableChanged):
            try:
                content = encode_line(await self._store.table(notice.pool))
            except NotFound:
                return  # deleted meanwhile; its own notice follows
            except StoreUnavailable:
                self.on_gap()
                return
        elif isinstance(notice, GatewayKeysChanged | KeptSessionsChanged):
            try:
                content = await (self._keys() if isinstance(notice, GatewayKeysChanged) else self._kept_sessions())
            except StoreUnavailable:
                self.on_gap()
                return
        elif isinstance(notice, PoolDeleted):
            content = encode_line(PoolDeletedLine(pool=notice.pool))
        elif isinstance(notice, BindingsChanged):
            content = encode_line(BindingsLine(bindings=notice.bindings))
        else:
            return  # nothing that a router obeys
        for subscriber in self._subscribers:
            subscriber.offer(content)

    async def tell_others_forever(self) -> None:
        """Send each router the load reports of the other routers, every OTHERS_SECONDS, until cancelled. Routers that
        decide separately about the requests of one pool need these reports.
        """
        while True:
            await asyncio.sleep(OTHERS_SECONDS)
            with suppress(StoreUnavailable):  # the last shares grow old at the routers
                await self.tell_others()

    async def tell_others(self) -> None:
        """Send each subscriber, for each pool that it shares with other routers, the load reports of those routers."""
        if not self._subscribers:
            return
        for pool, shares in (await self._store.shares()).items():
            for subscriber in self._subscribers:
                if subscriber.router in shares and len(shares) > 1:
                    subscriber.offer(encode_line(OthersLine(share=share_of_others(subscriber.router, pool, shares))))

    def on_gap(self) -> None:
        """Send every subscriber a new snapshot, because some notices, and therefore changes, may have been missed."""
        for subscriber in self._subscribers:
            subscriber.offer(None)

    async def open(self, router: str) -> AsyncGenerator[bytes, None]:
        """Yield lines for one router, without end.

        Reading the first snapshot begins before this function returns, so that an unreachable database causes an error
        and not an empty stream. Raises StoreUnavailable.
        """
        subscriber = Subscriber(router, self._backlog)
        self._subscribers.add(subscriber)
        try:
            first = await self._tables()
        except BaseException:
            self._subscribers.discard(subscriber)
            raise
        return self._lines(subscriber, first)

    async def _lines(self, subscriber: Subscriber, first: list[bytes]) -> AsyncGenerator[bytes, None]:
        try:
            async for content in self._snapshot(first):
                yield content
            while not subscriber.cut:
                try:
                    content_or_gap = await asyncio.wait_for(subscriber.lines.get(), self._heartbeat)
                except TimeoutError:
                    yield _HEARTBEAT
                    continue
                if content_or_gap is not None:
                    yield content_or_gap
                    continue
                try:
                    async for content in self._snapshot(await self._tables()):
                        yield content
                except StoreUnavailable:
                    yield _HEARTBEAT
                    await asyncio.sleep(min(self._heartbeat, 1.0))
                    subscriber.offer(None)
            _log.warning("router stream cut off, reader too slow", extra={"router": subscriber.router, "backlog": self._backlog})
        finally:
            self._subscribers.discard(subscriber)

    async def _tables(self) -> list[bytes]:
        deleted = [encode_line(PoolDeletedLine(pool=pool)) for pool in await self._store.deleted_pools()]
        tables = [encode_line(line) for line in await self._store.tables()]
        return [await self._keys(begins=True), await self._kept_sessions(), *deleted, *tables]

    async def _keys(self, *, begins: bool = False) -> bytes:
        return encode_line(GatewayKeysLine(keys=tuple(await self._store.gateway_keys()), begins=begins))

    async def _kept_sessions(self) -> bytes:
        return encode_line(KeptSessionsLine(sessions=tuple(await self._store.kept_sessions())))

    async def _snapshot(self, first: list[bytes]) -> AsyncIterator[bytes]:
        for content in first:
            yield content
        position: tuple[int, str] | None = None
        while True:
            batch, position = await self._store.bindings(position, BATCH)
            if batch:
                yield encode_line(BindingsLine(bindings=tuple(batch)))
            if position is None:
                break
        yield _SYNCED
