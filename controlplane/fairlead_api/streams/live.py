"""Live topics. While somebody listens to a topic, there is one poller for each topic, pool and set of visible
namespaces. Its result is rendered once for all listeners.

Nothing is kept for a listener that falls behind: its waiting events are dropped, and it gets an event `resync`. A
fourth stream with the same credential gets one event `poll` and ends.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import Unavailable
from fairlead_api.infra.spans import Sight

_log = logging.getLogger(__name__)

MAX_STREAMS = 3
BACKLOG = 64
LEAST_SECONDS = 0.4
"""Minimum seconds between two reads of the same state, even if the state changes more often."""
KEEPALIVE_SECONDS = 10.0
RESUME = timedelta(seconds=60)
"""Maximum age of missed events that a stream sends when it is resumed. If Last-Event-ID names an older event, the
events between that event and this age are not sent.
"""

OVERLAP = timedelta(seconds=5)
"""Time before the newest row of the last poll from which the next poll reads. The overlap is needed because a
transaction that began earlier may commit later.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A topic whose events contain the whole present state, sent when the state has changed. `read` takes the pool, the
    visible namespaces (`Sight`) and the present time.
    """

    seconds: float
    read: Callable[[str | None, Sight, datetime], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """A topic whose events contain new items.

    `read` takes the pool, the visible namespaces (`Sight`), a time and a limit. It returns the items that were recorded
    since that time, oldest first, as pairs (recorded at, item with an `id`).
    """

    seconds: float
    read: Callable[[str | None, Sight, datetime, int], Awaitable[Sequence[tuple[datetime, Any]]]]
    most: int = 20


Topic = Snapshot | Tail


def event(topic: str, at: datetime, content: bytes) -> bytes:
    """Return a server-sent event; its id is the time in milliseconds."""
    return b"event: %s\nid: %d\ndata: %s\n\n" % (topic.encode(), int(at.timestamp() * 1000), content)


class Listener:
    """The queue of events of one stream."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes] = asyncio.Queue(BACKLOG)

    def offer(self, content: bytes) -> None:
        """Queue an event. If the queue is full, all waiting events are replaced by one event `resync`."""
        try:
            self.events.put_nowait(content)
        except asyncio.QueueFull:
            while not self.events.empty():
                self.events.get_nowait()
            self.events.put_nowait(b"event: resync\ndata: {}\n\n")


@dataclass(slots=True)
class _Feed:
    listeners: set[Listener] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None
    last: bytes | None = None


_Name = tuple[str, str | None, Sight]
"""The identity of a poller: the topic, the pool, and the namespaces that the listeners may see."""


class Live:
    """Streams of live topics for many viewers."""

    def __init__(self, topics: dict[str, Topic], clock: Callable[[], datetime]) -> None:
        self._topics = topics
        self._clock = clock
        self._feeds: dict[_Name, _Feed] = {}
        self._open: Counter[bytes] = Counter()

    @property
    def streams(self) -> int:
        """The number of streams that are open now."""
        return sum(self._open.values())

    def look_again(self, pool: PoolKey) -> None:
        """Read all topics about the pool without waiting for their next poll, because the pool's state has changed."""
        for (topic, of, _), feed in self._feeds.items():
            if isinstance(self._topics[topic], Snapshot) and of in {None, str(pool)}:
                feed.changed.set()

    def check(self, topics: list[str], pool: str | None) -> None:
        """Raises InvalidInput unless a stream can follow these topics and this pool."""
        if pool is not None and (pool.count("/") != 1 or not all(pool.split("/"))):
            raise InvalidInput("pool", pool, "write namespace/name")
        for topic in topics:
            if topic not in self._topics:
                raise InvalidInput("topics", topic, f"write some of {', '.join(self._topics)}, separated by commas")

    async def stream(
        self, topics: list[str], pool: str | None, key: bytes, last_event_id: str | None, sight: Sight = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield events about visible pools, without end. `key` identifies the credential, which may have at most
        MAX_STREAMS streams.
        """
        if self._open[key] >= MAX_STREAMS:
            yield b"event: poll\ndata: {}\n\n"
            return
        self._open[key] += 1
        listener = Listener()
        feeds: list[_Name] = [(topic, pool, sight) for topic in dict.fromkeys(topics)]
        try:
            for name in feeds:
                await self._join(name, listener, last_event_id)
            while True:
                try:
                    yield await asyncio.wait_for(listener.events.get(), KEEPALIVE_SECONDS)
                except TimeoutError:
                    yield b": keep-alive\n\n"
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
            for name in feeds:
                self._leave(name, listener)

    async def _join(self, name: _Name, listener: Listener, last_event_id: str | None) -> None:
        kind, pool, sight = name
        topic = self._topics[kind]
        since = _since(last_event_id, self._clock())
        if isinstance(topic, Tail) and since is not None:
            missed = await topic.read(pool, sight, since, topic.most)
            if missed:
                listener.offer(event(kind, missed[-1][0], msgspec.json.encode([item for _, item in missed])))
        feed = self._feeds.setdefault(name, _Feed())
        feed.listeners.add(listener)
        if feed.last is not None:
            listener.offer(feed.last)
        if feed.task is None:
            feed.task = asyncio.ensure_future(self._follow(name, feed))

    def _leave(self, name: _Name, listener: Listener) -> None:
        feed = self._feeds.get(name)
        if feed is None:
            return
        feed.listeners.discard(listener)
        if not feed.listeners:
            del self._feeds[name]
            if feed.task is not None:
                feed.task.cancel()

    async def _follow(self, name: _Name, feed: _Feed) -> None:
        kind, pool, sight = name
        topic = self._topics[kind]
        since = self._clock() - OVERLAP
        sent: deque[str] = deque(maxlen=1000)
        before: bytes | None = None
        while True:
            feed.changed.clear()
            now = self._clock()
            try:
                if isinstance(topic, Snapshot):
                    content = msgspec.json.encode(await topic.read(pool, sight, now))
                    if content != before:
                        before = content
                        feed.last = event(kind, now, content)
                        self._hand_out(feed, feed.last)
                else:
                    found = await topic.read(pool, sight, since, topic.most)
                    fresh = [item for _, item in found if item.id not in sent]
                    sent.extend(item.id for item in fresh)
                    if found:
                        since = max(since, found[-1][0] - OVERLAP)
                    if fresh:
                        self._hand_out(feed, event(kind, now, msgspec.json.encode(fresh)))
            except Unavailable as error:
                _log.debug("live topic waits", extra={"topic": kind, "error": str(error)})
            except Exception:  # noqa: BLE001  # logged; one bad row must not end what all its listeners hear
                _log.exception("live topic failed", extra={"topic": kind})
            await asyncio.sleep(min(LEAST_SECONDS, topic.seconds))
            with suppress(TimeoutError):
                await asyncio.wait_for(feed.changed.wait(), topic.seconds - LEAST_SECONDS)

    def _hand_out(self, feed: _Feed, content: bytes) -> None:
        for listener in feed.listeners:
            listener.offer(content)


def _since(last_event_id: str | None, now: datetime) -> datetime | None:
    """Return the time from which a stream continues after the event with the id `last_event_id`, at most RESUME ago;
    None without a usable id.

    The time is OVERLAP before the event, for two reasons. The event lacks rows of transactions that were still open,
    and its id may be from a process with another clock. Therefore an item may be sent twice.
    """
    if last_event_id is None or not last_event_id.isdigit() or len(last_event_id) > 15:
        return None
    return max(datetime.fromtimestamp(int(last_event_id) / 1000, UTC) - OVERLAP, now - RESUME)
