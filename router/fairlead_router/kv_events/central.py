"""Engines that connect to the router to publish their KV events, as Heimdall's and llm-d's do: one bound socket.

Messages are told apart by their topic (`kv@<pod>@<model>`). Behind a Service with several routers, or in a pod of
several processes, only one hears an engine; the others ask its replay endpoint once a second for what is new.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from time import perf_counter
from typing import Any

import zmq

from fairlead.addresses import host_of
from fairlead.kv_events.sequences import SourceState
from fairlead.plausibility import LONGEST_TOPIC, MESSAGE_BYTES, MOST_INTEGER
from fairlead_router.kv_events.reading import SlicedReader, Socket
from fairlead_router.kv_events.subscriptions import MOST_BYTES_A_SECOND, MOST_MESSAGES_WAITING, MOST_TRIES, Subscription

MOST_UNKNOWN_TOPICS = 1_000
_NOBLOCK = int(zmq.NOBLOCK)


class CentralSocket:
    """The bound socket. Raises zmq.ZMQError where `port` cannot be bound at `host`."""

    def __init__(self, context: zmq.Context[Socket], host: str, port: int, reader: SlicedReader) -> None:
        self._reader = reader
        self._by_topic: dict[bytes, CentralSubscription] = {}
        self.unknown: Counter[bytes] = Counter()
        """Messages by topic that no followed instance has now; of the thousand topics that were new last."""
        self._socket = context.socket(zmq.SUB)
        self._socket.linger = 0
        self._socket.rcvhwm = MOST_MESSAGES_WAITING
        self._socket.maxmsgsize = MESSAGE_BYTES
        self._socket.subscribe(b"")
        try:
            self._socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError:
            self._socket.close(linger=0)
            raise
        reader.watch(self._socket, self)

    def join(self, subscription: CentralSubscription) -> None:
        """Hand it all messages of its topic. The first one of several with the same topic has them."""
        self._by_topic.setdefault(subscription.told.topic.encode(), subscription)
        self.unknown.pop(subscription.told.topic.encode(), None)

    def leave(self, subscription: CentralSubscription) -> None:
        """It is not followed any more."""
        topic = subscription.told.topic.encode()
        if self._by_topic.get(topic) is subscription:
            del self._by_topic[topic]

    def topic_of(self, instance: str, address: str) -> str | None:
        """An unknown topic `kv@<pod>@…` that names this instance: by its name, or its address with or without port."""
        names = (instance.encode(), address.encode(), host_of(address).encode())
        return next((topic.decode("utf-8", "replace") for topic in self.unknown if pod_of(topic) in names), None)

    def read(self, until: float) -> bool:
        """See `Readable`."""
        while perf_counter() < until:
            try:
                frames = self._socket.recv_multipart(_NOBLOCK)
            except zmq.Again:
                return False
            self._take(frames)
        return True

    def give_up(self) -> None:
        """See `Readable`: arriving messages are no longer read, and its subscriptions live on replays."""
        self._reader.unwatch(self._socket)

    def close(self) -> None:
        """Take no more connections."""
        with suppress(KeyError, ValueError):
            self._reader.unwatch(self._socket)
        self._socket.close(linger=0)

    def _take(self, frames: list[bytes]) -> None:
        subscription = self._by_topic.get(frames[0])
        if subscription is not None:
            subscription.hear(frames)
            return
        topic = frames[0][:LONGEST_TOPIC]  # anybody who reaches the port may send one of many megabytes
        if topic not in self.unknown and len(self.unknown) >= MOST_UNKNOWN_TOPICS:
            del self.unknown[next(iter(self.unknown))]  # of a pod that is gone, most likely
        self.unknown[topic] += 1


def pod_of(topic: bytes) -> bytes:
    """The pod in `kv@<pod>@<model>`; the topic itself where it has another form."""
    parts = topic.split(b"@", 2)
    return parts[1] if len(parts) == 3 and parts[0] == b"kv" else topic


class CentralSubscription(Subscription):
    """A source whose engine connects to the router. `central` None: this process could not bind the port, so replays
    are all that it gets.
    """

    rests_when_away = False

    def __init__(self, central: CentralSocket | None, *named: Any) -> None:
        self._central = central
        self._arrived: deque[list[bytes]] = deque()
        self._arrived_bytes = 0
        self._heard_since_look = False
        self._polls = False
        super().__init__(*named)

    def _open(self) -> None:
        if self._central is not None:
            self._central.join(self)
        if self.told.replay_endpoint is not None:
            self._do(self._tracker.reconnected())

    def _hear_no_more(self) -> None:
        if self._central is not None:
            self._central.leave(self)

    @property
    def is_settled(self) -> bool:
        """As for others. Asking once a second for what is new does not put the known blocks in doubt."""
        return super().is_settled or (self._polls and not self._closed and self.state is SourceState.REPLAYING)

    def hear(self, frames: list[bytes]) -> None:
        """A message of its topic. Messages that arrive faster than they are read are dropped, and asked for again."""
        self.connected = self._heard_since_look = True
        if len(self._arrived) < MOST_MESSAGES_WAITING and self._arrived_bytes < MOST_BYTES_A_SECOND:
            self._arrived.append(frames)
            self._arrived_bytes += sum(map(len, frames))
        self._reader.wake(self)

    def check_replay(self) -> None:
        """Ask for what is new, if nothing came since the last look; and again for an overdue replay."""
        super().check_replay()
        if self._replay is not None and self._tries >= MOST_TRIES:
            self.connected = False
        if self._heard_since_look or self._replay is not None or self.told.replay_endpoint is None:
            self._heard_since_look = False
            return
        self._polls = self.is_settled
        self._do(self._tracker.reconnected())

    def _take_live(self) -> bool:
        if not self._arrived:
            return False
        frames = self._arrived.popleft()
        self._arrived_bytes -= sum(map(len, frames))
        if len(frames) == 3 and len(frames[1]) == 8 and int.from_bytes(frames[1], "big") <= MOST_INTEGER:
            self._take_published(frames[1], frames[2])
        else:
            self.unreadable += 1
        return True

    def _take_replayed(self) -> bool:
        took = super()._take_replayed()
        self.connected = self.connected or took
        return took

    def _take_connection(self) -> bool:
        return False
