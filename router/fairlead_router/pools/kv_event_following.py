"""Finds the instances that send KV events, by asking their engines, and follows those that name a source.

An engine that has no such path, or names no source, costs one request now and then. Nothing here can make a request
fail: without events a router uses the history of its own requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import zmq

from fairlead.instances import REACHABLE
from fairlead.reports.engines import EngineTrouble
from fairlead.tables import InstanceEntry
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.kv_events.central import CentralSocket
from fairlead_router.kv_events.instances import EventReading, InstanceEvents
from fairlead_router.kv_events.reading import SlicedReader, Socket
from fairlead_router.kv_events.sources import EventSource, SourcesUnreadable, read_ranks, read_sources, sources_path
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools

FOLLOW_SECONDS = 1.0
ASK_AGAIN_SECONDS = 10.0
"""Seconds between two requests to an engine about the place where it publishes KV events; an unreachable engine is
asked at every look.
"""

SILENT_SECONDS = 60.0
"""The same for engines that have never published KV events: to start publishing, an engine usually needs a new pod."""

TIMEOUT_SECONDS = 2.0
AT_ONCE = 16
SWEPT_BLOCKS = 5_000
MOST_SOCKETS = 65_000
"""Limit of sockets; ZMQ's default of 1,023 is too few, since an instance takes up to four per rank."""

UNHEARD_SECONDS = 60.0
"""Seconds for which an engine that connects to a router may compute without an event before it is reported."""

WRONG_SIZE = "its KV blocks have another size than those of its pool; the router uses its own history of requests for it"

EVERY_INTERFACE = "0.0.0.0"  # noqa: S104  # engines are on other machines
BY_TOPIC = "(its topic)"

_BIND = "let it bind tcp://*:PORT"
_REPLAY = "several routers share it only if it has a replay_endpoint, which each asks"

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _Followed:
    pool: Pool
    instance: str
    address: str
    ask_at: float = 0.0
    has_published: bool = False
    events: InstanceEvents | None = None
    since: float = 0.0
    """When the instance's sources became known."""
    complaint: str = ""
    """The fault in the engine's answer or in its blocks; logged once."""


class KvEventFollower:
    """Follows the KV events of all reachable instances of all pools. Make it inside a running event loop."""

    def __init__(
        self, pools: Pools, upstream: UpstreamPool, metrics: RouterMetrics, now: Callable[[], float], central_port: int | None = None
    ) -> None:
        """At `central_port` of every address, engines may connect to publish."""
        self._central_port = central_port
        self.central: CentralSocket | None = None
        metrics.unknown_kv_events = lambda: 0 if self.central is None else self.central.unknown.total()
        self._pools = pools
        self._upstream = upstream
        metrics.event_readings = self.readings
        self._now = now
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._followed: dict[tuple[str, str], _Followed] = {}
        self._context: zmq.Context[Socket] | None = None
        """The ZMQ context, made for the first engine that publishes: other routers need no such thread."""
        self._reader = SlicedReader()
        if central_port is not None:
            self.central = self._bound(central_port)

    def _bound(self, port: int) -> CentralSocket | None:
        """The socket that engines connect to; None if another process of this pod has the port."""
        try:
            return CentralSocket(self._zmq(), EVERY_INTERFACE, port, self._reader)
        except zmq.ZMQError as error:
            logger.warning("KV events are not heard at this port; replays are asked for", extra={"port": port, "error": str(error)})
            return None

    def _zmq(self) -> zmq.Context[Socket]:
        if self._context is None:
            self._context = zmq.Context()
            self._context.set(zmq.MAX_SOCKETS, MOST_SOCKETS)
            self._context.set(zmq.IPV6, 1)  # beside IPv4
        return self._context

    async def follow(self) -> None:
        """Look once at the present instances; runs every FOLLOW_SECONDS."""
        pools = self._pools.all()
        present = {(str(pool.key), entry.id): (pool, entry) for pool in pools for entry in pool.table.instances if entry.state in REACHABLE}
        for key in self._followed.keys() - present.keys():
            self._leave(self._followed.pop(key))
        for key, (pool, entry) in present.items():
            self._keep(key, pool, entry)
        now = self._now()
        await asyncio.gather(*(self._ask(followed) for followed in self._followed.values() if followed.ask_at <= now))
        for followed in self._followed.values():
            self._check(followed)
        for pool in pools:
            pool.scheduler.caches.index.sweep(SWEPT_BLOCKS)

    def readings(self) -> dict[tuple[str, str], list[EventReading]]:
        """The state of each followed instance's events, by pool and instance."""
        return {key: followed.events.readings() for key, followed in self._followed.items() if followed.events is not None}

    def events_heard(self, pool: str, instance: str) -> Mapping[int, int]:
        """The count of this instance's events since it was first followed, by the rank's name at its engine."""
        followed = self._followed.get((pool, instance))
        return {} if followed is None or followed.events is None else {one.source.rank: one.events for one in followed.events.subscriptions}

    def close(self) -> None:
        """Stop following all instances."""
        for followed in self._followed.values():
            self._leave(followed)
        self._followed.clear()
        if self.central is not None:
            self.central.close()
        if self._context is not None:
            self._context.destroy(linger=0)

    def _keep(self, key: tuple[str, str], pool: Pool, entry: InstanceEntry) -> None:
        followed = self._followed.get(key)
        if followed is not None and (followed.pool is not pool or followed.address != entry.address):
            self._leave(followed)
            followed = None
        if followed is None:
            self._followed[key] = _Followed(pool=pool, instance=entry.id, address=entry.address)

    async def _ask(self, followed: _Followed) -> None:
        engine_type = followed.pool.engine_of(followed.instance).type
        async with self._slots:
            try:
                answer = await self._upstream.fetch(followed.address, sources_path(engine_type), seconds=TIMEOUT_SECONDS)
                followed.pool.engines.name_ranks(followed.instance, followed.address, read_ranks(answer, engine_type))
                sources = read_sources(answer, engine_type, followed.address)
            except UpstreamFailure as failure:
                if failure.kind != "status":
                    return  # asked again at the next look
                sources = ()
            except SourcesUnreadable as error:
                sources = ()
                self._complain(followed, str(error))
        sources = sources or self._by_topic(followed)
        followed.has_published = followed.has_published or bool(sources)
        followed.ask_at = self._now() + (ASK_AGAIN_SECONDS if followed.has_published else SILENT_SECONDS)
        if sources != (() if followed.events is None else followed.events.told):
            self._leave(followed)
            if sources:
                self._subscribe(followed, sources)

    def _by_topic(self, followed: _Followed) -> tuple[EventSource, ...]:
        """The source of an engine that does not report where it publishes, by the topic of messages received here."""
        if followed.events is not None and followed.events.told[0].endpoint == BY_TOPIC:
            return followed.events.told
        topic = None if self.central is None else self.central.topic_of(followed.instance, followed.address)
        return () if topic is None else (EventSource(rank=0, endpoint=BY_TOPIC, replay_endpoint=None, topic=topic, connects=True),)

    def _subscribe(self, followed: _Followed, sources: tuple[EventSource, ...]) -> None:
        followed.since = self._now()
        caches, known = followed.pool.scheduler.caches, followed.pool.engines
        named = partial(known.target, followed.instance, followed.address)
        try:
            followed.events = InstanceEvents(
                self._zmq(),
                followed.instance,
                sources,
                caches,
                named,
                self._now,
                self._reader,
                self.central,
                is_central=self._central_port is not None,
            )
        except zmq.ZMQError as error:
            self._complain(followed, f"its KV events cannot be subscribed to: {error}")
            return
        logger.info("following KV events", extra={"pool": str(followed.pool.key), "instance": followed.instance, "ranks": len(sources)})

    def _check(self, followed: _Followed) -> None:
        events = followed.events
        if events is None:
            return
        events.check()
        if not events.is_connected:
            followed.ask_at = 0.0  # it may have come back with other ports
        unheard = self._why_unheard(followed, events)
        if unheard is not None or not events.unheard:
            followed.pool.engines.found(followed.instance, EngineTrouble.EVENTS_NOT_HEARD, unheard)
        wrong = WRONG_SIZE if events.has_wrong_size else None
        followed.pool.engines.found(followed.instance, EngineTrouble.BLOCK_SIZE_DIFFERS, wrong)
        if wrong:
            self._complain(followed, wrong)

    def _why_unheard(self, followed: _Followed, events: InstanceEvents) -> str | None:
        """Why no events arrive from an engine that connects to a router and holds blocks; None while all is well."""
        unheard = events.unheard
        computes = followed.pool.engines.kv_usage.get(followed.instance, 0.0) > 0
        if not unheard or not computes or self._now() - followed.since < UNHEARD_SECONDS:
            return None
        endpoint = unheard[0].told.endpoint
        if self._central_port is None:
            return (
                f"it connects to {endpoint} to publish its KV events; {_BIND}, or set FAIRLEAD_KV_EVENTS_PORT and point it at the routers"
            )
        told = "" if self.central is None else _unknown_words(self.central)
        return f"it connects to {endpoint} to publish its KV events, and none came to this router; {_REPLAY}{told}"

    def _complain(self, followed: _Followed, complaint: str) -> None:
        if complaint != followed.complaint:
            followed.complaint = complaint
            extra = {"pool": str(followed.pool.key), "instance": followed.instance, "error": complaint}
            logger.warning("KV events not used", extra=extra)

    def _leave(self, followed: _Followed) -> None:
        if followed.events is not None:
            followed.events.close()
            followed.events = None
            followed.pool.engines.found(followed.instance, EngineTrouble.BLOCK_SIZE_DIFFERS, None)
            followed.pool.engines.found(followed.instance, EngineTrouble.EVENTS_NOT_HEARD, None)


def _unknown_words(central: CentralSocket) -> str:
    """The unknown topic with the most messages, if there is one."""
    found = central.unknown.most_common(1)
    return f"; topic {found[0][0].decode('utf-8', 'replace')[:100]!r} came {found[0][1]} times and names no instance" if found else ""
