"""Asks engines for their sources of KV events, and follows these sources.

An engine that has no path for this question, or reports no source, costs one request a minute. This module cannot make
a client's request fail: without events a router uses the history of its own requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import zmq

from fairlead.instances import REACHABLE
from fairlead.plausibility import PAGE_BYTES, Hosts
from fairlead.reports.engines import EngineTrouble
from fairlead.tables import InstanceEntry
from fairlead_process.tasks import beside_the_loop
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import BeyondBounds, UpstreamFailure
from fairlead_router.kv_events.central import CentralPlace, CentralPort
from fairlead_router.kv_events.instances import EventReading, InstanceEvents
from fairlead_router.kv_events.reading import SlicedReader, Socket
from fairlead_router.kv_events.sources import (
    EventSource,
    SourcesUnreadable,
    ToldSources,
    priority_fault,
    read_ranks,
    read_sources,
    sources_path,
)
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools

FOLLOW_SECONDS = 1.0
ASK_AGAIN_SECONDS = 10.0
"""Seconds between two requests to an engine for its event sources. An engine that could not be reached is asked every
FOLLOW_SECONDS.
"""

SILENT_SECONDS = 60.0
"""Seconds between two requests for event sources to an engine that has never published KV events. It usually needs a
new pod to start publishing.
"""

TIMEOUT_SECONDS = 2.0
AT_ONCE = 16
SWEPT_BLOCKS = 5_000
MOST_FOLLOWED = 1024
"""Maximum number of event sources that a router follows."""
OPENED_AT_ONCE = 4
OPENED_A_TURN = 64
"""Maximum number of sources that are opened in FOLLOW_SECONDS."""
SOURCES, EVENTS = "its sources of KV events", "its KV events"
"""Names of two kinds of reports from an engine, for messages that name an implausible report."""
MOST_SOCKETS = 65_000
"""Maximum number of ZMQ sockets. ZMQ's default of 1,023 is too low, because an instance takes up to four for each rank.
"""

UNHEARD_SECONDS = 60.0
"""Seconds for which an engine that connects to routers may compute without any event at this router. After that, the
missing events count as a trouble.
"""

WRONG_SIZE = "its KV blocks have another size than those of its pool; the router uses its own history of requests for it"

BY_TOPIC = "(its topic)"

_BIND = "let it bind tcp://*:PORT"
_REPLAY = "if there are several routers, give it a replay_endpoint, from which each router can request the events"

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _Followed:
    pool: Pool
    instance: str
    address: str
    ask_at: float = 0.0
    has_published: bool = False
    wanted: tuple[EventSource, ...] = ()
    """The event sources that the engine last reported."""
    was_away: bool = False
    faults: int = 0
    """Number of unusable messages of the engine (`InstanceEvents.faults`) at the last check."""
    events: InstanceEvents | None = None
    since: float = 0.0
    """The time at which the instance's sources became known."""
    complaint: str = ""
    """The last logged message about the engine's sources or blocks, so that each message is logged once; empty if there
    is none.
    """


class KvEventFollower:
    """Follows the KV events of all reachable instances of all pools. Make it inside a running event loop."""

    def __init__(
        self,
        pools: Pools,
        upstream: UpstreamPool,
        metrics: RouterMetrics,
        now: Callable[[], float],
        central: CentralPlace | None = None,
        *,
        hosts: Hosts | None = None,
        most_sources: int = MOST_FOLLOWED,
    ) -> None:
        """Make a follower that follows no source yet.

        `central`: the port to which engines may connect to publish; None = no such port. `hosts`: the hosts that
        engines may name besides their own. `most_sources`: the maximum number of followed sources.
        """
        self._hosts = hosts or Hosts()
        self._most_sources = most_sources
        self._has_central = central is not None
        self.central: CentralPort | None = None
        metrics.unknown_kv_events = lambda: 0 if self.central is None else self.central.unknown.total()
        self._pools = pools
        self._upstream = upstream
        metrics.event_readings = self.readings
        self._now = now
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._followed: dict[tuple[str, str], _Followed] = {}
        self._context: zmq.Context[Socket] | None = None
        """The ZMQ context; None until the first engine publishes. It starts a thread, which a router without KV events
        does not need.
        """
        self._reader = SlicedReader()
        if central is not None:
            self.central = _bound(central)

    def _zmq(self) -> zmq.Context[Socket]:
        if self._context is None:
            self._context = zmq.Context()
            self._context.set(zmq.MAX_SOCKETS, MOST_SOCKETS)
            self._context.set(zmq.IPV6, 1)  # beside IPv4
        return self._context

    async def follow(self) -> None:
        """Follow the current instances: ask engines for sources, open sources, and check followed sources. Runs every
        FOLLOW_SECONDS.
        """
        pools = self._pools.all()
        present = {(str(pool.key), entry.id): (pool, entry) for pool in pools for entry in pool.table.instances if entry.state in REACHABLE}
        for key in self._followed.keys() - present.keys():
            self._leave(self._followed.pop(key))
        for key, (pool, entry) in present.items():
            self._keep(key, pool, entry)
        now = self._now()
        await asyncio.gather(*(self._guarded(followed) for followed in self._followed.values() if followed.ask_at <= now))
        await self._open()
        for followed in tuple(self._followed.values()):
            self._check(followed)
        for pool in pools:
            pool.scheduler.caches.index.sweep(SWEPT_BLOCKS)

    def readings(self) -> dict[tuple[str, str], list[EventReading]]:
        """Return the state of each followed instance's events, by pool and instance."""
        return {key: followed.events.readings() for key, followed in self._followed.items() if followed.events is not None}

    def events_heard(self, pool: str, instance: str) -> Mapping[int, int]:
        """Return the number of KV events received from this instance since the router began to follow its sources, by
        rank index.
        """
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

    async def _guarded(self, followed: _Followed) -> None:
        """Ask one engine for its sources. If this fails because of a bug, the other engines are not affected."""
        try:
            await self._ask(followed)
        except Exception:
            logger.exception(
                "asking an engine for its sources of KV events failed",
                extra={"pool": str(followed.pool.key), "instance": followed.instance},
            )
            followed.ask_at = self._now() + SILENT_SECONDS

    async def _ask(self, followed: _Followed) -> None:
        engine_type = followed.pool.engine_of(followed.instance).type
        found = ToldSources()
        async with self._slots:
            try:
                answer = await self._upstream.fetch(followed.address, sources_path(engine_type), seconds=TIMEOUT_SECONDS, limit=PAGE_BYTES)
                ranks = await beside_the_loop(len(answer), read_ranks, answer, engine_type)
                followed.pool.engines.name_ranks(followed.instance, followed.address, ranks)
                fault = await beside_the_loop(len(answer), priority_fault, answer, engine_type)
                wrong = fault if followed.pool.passes_priority else None
                followed.pool.engines.found(followed.instance, EngineTrouble.PRIORITY_NOT_FOLLOWED, wrong)
                found = await beside_the_loop(len(answer), read_sources, answer, engine_type, followed.address, self._hosts)
            except BeyondBounds as failure:
                found = ToldSources(faults=failure.words)
            except UpstreamFailure as failure:
                if failure.kind != "status":
                    followed.was_away = True
                    return  # asked again at the next look
            except SourcesUnreadable as error:
                self._complain(followed, str(error))
        if self._followed.get((str(followed.pool.key), followed.instance)) is not followed:
            return  # it left meanwhile
        followed.pool.engines.implausible(followed.instance, SOURCES, found.faults, self._now())
        self._take(followed, found.sources or self._by_topic(followed))

    def _take(self, followed: _Followed, sources: tuple[EventSource, ...]) -> None:
        """Follow these sources of the engine instead of its earlier sources."""
        followed.has_published = followed.has_published or bool(sources)
        followed.ask_at = self._now() + (ASK_AGAIN_SECONDS if followed.has_published else SILENT_SECONDS)
        if sources != followed.wanted or (sources and followed.events is None):
            self._leave(followed)
            followed.wanted = sources
            if sources:
                self._subscribe(followed, sources)
        elif followed.was_away and followed.events is not None:
            followed.events.wake()
        followed.was_away = False

    def _by_topic(self, followed: _Followed) -> tuple[EventSource, ...]:
        """Return the source of an engine that connects to this router but does not report its sources. The topic of its
        messages identifies the engine. Empty if there is no such source.
        """
        if followed.events is not None and followed.events.told[0].endpoint == BY_TOPIC:
            return followed.events.told
        topic = None if self.central is None else self.central.topic_of(followed.instance, followed.address)
        return () if topic is None else (EventSource(rank=0, endpoint=BY_TOPIC, replay_endpoint=None, topic=topic, connects=True),)

    def _subscribe(self, followed: _Followed, sources: tuple[EventSource, ...]) -> None:
        """Follow these sources. Their sockets are opened later by `_open`, a few at a time."""
        followed.since = self._now()
        left = self._most_sources - sum(len(one.events.told) for one in self._followed.values() if one.events is not None)
        if left < len(sources):
            more = f"this router follows at most {self._most_sources} sources of KV events (FAIRLEAD_KV_EVENT_SOURCES)"
            self._complain(followed, f"{more}, so {len(sources) - max(0, left)} of its {len(sources)} are left out")
            sources = sources[: max(0, left)]
        if not sources:
            return
        caches, known = followed.pool.scheduler.caches, followed.pool.engines
        named = partial(known.target, followed.instance, followed.address)
        followed.events = InstanceEvents(self._zmq(), followed.instance, sources, caches, named, self._now, self._reader, self.central)
        logger.info("following KV events", extra={"pool": str(followed.pool.key), "instance": followed.instance, "ranks": len(sources)})

    async def _open(self) -> None:
        """Open the sockets of new sources, a few at a time, so that the event loop can serve requests in between."""
        left = OPENED_A_TURN
        for followed in tuple(self._followed.values()):
            while left > 0 and followed.events is not None:
                try:
                    opened = followed.events.open_some(min(left, OPENED_AT_ONCE))
                except zmq.ZMQError as error:
                    self._complain(followed, f"its KV events cannot be subscribed to: {error}")
                    self._leave(followed)
                    break
                if not opened:
                    break
                left -= opened
                await asyncio.sleep(0)

    def _check(self, followed: _Followed) -> None:
        events = followed.events
        if events is None:
            return
        try:
            events.check()
        except zmq.ZMQError as error:
            self._complain(followed, f"its KV events cannot be followed: {error}")
            self._leave(followed)
            return
        if events.faults > followed.faults:
            words = f"{events.faults - followed.faults} messages were not batches of KV events, or arrived too fast"
            followed.pool.engines.implausible(followed.instance, EVENTS, words, self._now())
        followed.faults = events.faults
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
        """Return the reason why no events arrive from an engine that connects to routers and must have blocks. None if
        events arrive, or if it is too early to say.
        """
        unheard = events.unheard
        computes = followed.pool.engines.kv_usage.get(followed.instance, 0.0) > 0
        if not unheard or not computes or self._now() - followed.since < UNHEARD_SECONDS:
            return None
        endpoint = unheard[0].told.endpoint
        if not self._has_central:
            return (
                f"it connects to {endpoint} to publish its KV events; {_BIND}, or set FAIRLEAD_KV_EVENTS_PORT and point it at the routers"
            )
        told = "" if self.central is None else _unknown_words(self.central)
        return f"it connects to {endpoint} to publish its KV events, and this router received none; {_REPLAY}{told}"

    def _complain(self, followed: _Followed, complaint: str) -> None:
        if complaint != followed.complaint:
            followed.complaint = complaint
            extra = {"pool": str(followed.pool.key), "instance": followed.instance, "error": complaint}
            logger.warning("KV events not used", extra=extra)

    def _leave(self, followed: _Followed) -> None:
        if followed.events is not None:
            followed.events.close()
            followed.events = None
            followed.faults = 0
            followed.pool.engines.found(followed.instance, EngineTrouble.BLOCK_SIZE_DIFFERS, None)
            followed.pool.engines.found(followed.instance, EngineTrouble.EVENTS_NOT_HEARD, None)


def _bound(place: CentralPlace) -> CentralPort | None:
    """Open and return the port to which engines connect; None if another process of this pod has it."""
    try:
        return CentralPort(place)
    except OSError as error:
        logger.warning(
            "cannot open the port for KV events; this process requests events as replays instead",
            extra={"port": place.port, "error": str(error)},
        )
        return None


def _unknown_words(central: CentralPort) -> str:
    """Return a message about the topic with the most messages among the topics that belong to no instance; empty if
    there is no such topic.
    """
    found = central.unknown.most_common(1)
    return (
        f"; {found[0][1]} messages had the topic {found[0][0].decode('utf-8', 'replace')[:100]!r}, which names no instance" if found else ""
    )
