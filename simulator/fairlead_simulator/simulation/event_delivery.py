"""Delivers the KV events of all engines of a run to all routers."""

from collections.abc import Iterable
from random import Random

from fairlead.kv_events.engine_caches import EngineCaches
from fairlead_simulator.simulation.events import EventQueue
from fairlead_simulator.simulation.kv_events import Batch, EventFollower, EventPublisher, KvEventQuality


class EventDelivery:
    """The connections that carry KV events from all engines to all routers. A published batch reaches each router after
    `delay_seconds`, or is lost. A router can request a replay of lost batches. The request takes `delay_seconds`, too,
    and so does the reply; neither is ever lost.
    """

    def __init__(self, quality: KvEventQuality, events: EventQueue, seed: int) -> None:
        self._quality = quality
        self._events = events
        self._seed = seed
        self._now = 0.0
        self._publishers: dict[str, EventPublisher] = {}
        self._silent: set[str] = set()
        """Engines that have died."""
        self._routers: list[EngineCaches] = []
        self._followers: dict[tuple[int, str], EventFollower] = {}
        self._asked: dict[tuple[int, str], int] = {}
        """Number of replays that each router has requested from each engine. Only the reply to the last request counts;
        earlier replies are ignored.
        """

    @property
    def gaps(self) -> int:
        """Number of times that a router noticed that a batch was missing."""
        return sum(follower.gaps for follower in self._followers.values())

    def engine_started(self, name: str) -> EventPublisher:
        """Return the publisher of an engine that started with an empty cache. If an earlier engine had the same name,
        the new publisher replaces the publisher of the earlier engine.
        """
        self._silent.discard(name)
        publisher = self._publishers[name] = EventPublisher()
        return publisher

    def engine_died(self, name: str) -> None:
        """Disconnect a dead engine. It no longer publishes events and no longer replies to requests."""
        self._silent.add(name)

    def router_started(self, caches: EngineCaches, now: float) -> None:
        """Connect an additional router to all engines."""
        self._routers.append(caches)
        for name in self._publishers:
            self._follow(len(self._routers) - 1, name, now)

    def connect(self, names: Iterable[str], now: float) -> None:
        """Connect the engines with these names to all routers."""
        for name in names:
            for router in range(len(self._routers)):
                self._follow(router, name, now)

    def publish(self, name: str, now: float) -> None:
        """Send the changes of an engine's cache since the previous call to all routers."""
        batch = self._publishers[name].batch(now)
        if batch is None:
            return
        for router in range(len(self._routers)):
            follower = self._followers.get((router, name))
            if follower is not None and not follower.loses():
                self._events.at(now + self._quality.delay_seconds, self._arrive, (follower, batch))

    def _follow(self, router: int, name: str, now: float) -> None:
        key = router, name
        if key not in self._followers:
            lost = Random(f"kv-events/{self._seed}/{router}/{name}")
            self._followers[key] = EventFollower(self._routers[router], name, self._quality, lost, lambda begin: self._ask(key, begin))
        self._now = now
        self._followers[key].connected()

    def _arrive(self, payload: tuple[EventFollower, Batch], now: float) -> None:
        follower, batch = payload
        self._now = now
        follower.hear(batch)

    def _ask(self, key: tuple[int, str], begin: int) -> None:
        question = self._asked[key] = self._asked.get(key, 0) + 1
        self._events.at(self._now + self._quality.delay_seconds, self._answer, (key, question, begin))

    def _answer(self, payload: tuple[tuple[int, str], int, int], now: float) -> None:
        key, question, begin = payload
        name = key[1]
        if name in self._silent:
            return
        batches = tuple(batch for batch in self._publishers[name].kept if batch.number >= begin)
        self._events.at(now + self._quality.delay_seconds, self._answered, (key, question, batches))

    def _answered(self, payload: tuple[tuple[int, str], int, tuple[Batch, ...]], now: float) -> None:
        key, question, batches = payload
        if self._asked[key] == question:
            self._now = now
            self._followers[key].hear_again(batches)
