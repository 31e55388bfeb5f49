"""The central port, to which engines connect to publish their KV events, as with Heimdall and llm-d.

The topic of a message (`kv@<pod>@<model>`) names its engine. Behind a Service with several routers, or in a pod with
several processes, only one process receives an engine's messages. The other processes ask the engine's replay endpoint
for new messages once a second.

Every process that reaches the port may connect. So these connections have a limited share of the open files, and the
bytes of incomplete messages count towards the memory for bodies. While all connections together exceed
MOST_BYTES_A_SECOND, each connection is read only up to its share.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from fairlead.addresses import host_of
from fairlead.kv_events.sequences import SourceState
from fairlead.plausibility import LONGEST_TOPIC, MOST_INTEGER
from fairlead_process.accepting import BoundedServer
from fairlead_process.doors import IDLE_SECONDS, STRANGER_SECONDS, Door
from fairlead_router.kv_events.subscriptions import MOST_BYTES_A_SECOND, MOST_MESSAGES_WAITING, MOST_TRIES, Subscription
from fairlead_router.kv_events.zmtp import OPENING, NotZmtp, PublisherReader

MOST_UNKNOWN_TOPICS = 1_000
GREETING_SECONDS = 10.0
"""Seconds within which a connection must identify itself as a publisher; otherwise it is closed."""
MOST_WAITING_EACH = 16 * 1024 * 1024
"""Number of queued bytes of one engine's messages from which further messages are dropped."""


def every_address(port: int) -> socket.socket:
    """Return a socket that listens at this port on all IPv6 and IPv4 addresses. Raises OSError."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):  # the kernel may have IPv6 switched off
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


class Share(Protocol):
    """The memory that one connection uses for received bytes."""

    held: int

    def take(self, size: int) -> bool:
        """Reserve `size` further bytes; return False if there is no room for them."""

    def release(self, size: int | None = None) -> None:
        """Release `size` bytes; None = all reserved bytes."""


@dataclass(frozen=True, slots=True)
class CentralPlace:
    """The configuration of the central port. `door`: limits the connections of the port. `share`: returns the memory
    share of a new connection.
    """

    port: int
    door: Door
    share: Callable[[], Share]


class CentralPort:
    """The port to which engines connect. The bytes of incomplete messages count towards the shares from `place.share`.
    Make it inside a running event loop.

    Raises OSError if another process has the port.
    """

    def __init__(self, place: CentralPlace) -> None:
        self._by_topic: dict[bytes, CentralSubscription] = {}
        self.unknown: Counter[bytes] = Counter()
        """By topic: number of messages for a topic that belongs to no followed instance. If there are too many topics,
        the topic that appeared first is dropped.
        """
        self.place = place
        self._loop = asyncio.get_running_loop()
        self._bytes = 0
        """Number of bytes read in the current second, over all connections."""
        self._read: dict[Publisher, None] = {}
        """Connections that have sent bytes in the current second."""
        self._connected: dict[Publisher, None] = {}
        self._server = BoundedServer(every_address(place.port), place.door, lambda: Publisher(self), place.door.leave, lambda: b"")

    def join(self, subscription: CentralSubscription) -> None:
        """Pass all messages with the subscription's topic to the subscription. If an earlier subscription already has
        this topic, the earlier one keeps getting the messages.
        """
        self._by_topic.setdefault(subscription.told.topic.encode(), subscription)
        self.unknown.pop(subscription.told.topic.encode(), None)

    def leave(self, subscription: CentralSubscription) -> None:
        """Stop passing messages to the subscription."""
        topic = subscription.told.topic.encode()
        if self._by_topic.get(topic) is subscription:
            del self._by_topic[topic]

    def topic_of(self, instance: str, address: str) -> str | None:
        """Return a topic `kv@<pod>@…` of received messages that no subscription has, and whose pod is the instance's
        name or its address (with or without port); None if there is no such topic.
        """
        names = (instance.encode(), address.encode(), host_of(address).encode())
        return next((topic.decode("utf-8", "replace") for topic in self.unknown if pod_of(topic) in names), None)

    def close(self) -> None:
        """Close the port, and end its connections."""
        self._server.close()
        for connection in tuple(self._connected):
            connection.close()

    def came(self, publisher: Publisher) -> None:
        """Record that a publisher has connected."""
        self._connected[publisher] = None

    def left(self, publisher: Publisher) -> None:
        """Record that a publisher's connection has ended."""
        self._connected.pop(publisher, None)
        self._read.pop(publisher, None)
        self.place.door.leave(publisher)

    def take(self, frames: list[bytes]) -> bool:
        """Pass a message to the subscription with the message's topic. Return False if there is none."""
        subscription = self._by_topic.get(frames[0])
        if subscription is not None:
            subscription.hear(frames)
            return True
        topic = frames[0][:LONGEST_TOPIC]  # anybody who reaches the port may send one of many megabytes
        if topic not in self.unknown and len(self.unknown) >= MOST_UNKNOWN_TOPICS:
            del self.unknown[next(iter(self.unknown))]  # of a pod that is gone, most likely
        self.unknown[topic] += 1
        return False

    def may_read_on(self, publisher: Publisher, size: int) -> bool:
        """Count the received bytes of a connection. Return False if the connection must wait for the next second,
        because all connections together exceed MOST_BYTES_A_SECOND and this connection has used its share.
        """
        if not self._read:
            self._loop.call_later(1.0, self._next_second)
        self._read[publisher] = None
        self._bytes += size
        return self._bytes <= MOST_BYTES_A_SECOND or publisher.bytes <= MOST_BYTES_A_SECOND // max(1, self.place.door.inside)

    def _next_second(self) -> None:
        read, self._read, self._bytes = self._read, {}, 0
        for publisher in read:
            publisher.read_on()


class Publisher(asyncio.Protocol):
    """The connection of one publishing engine. A peer that does not speak a publisher's protocol is disconnected at
    once.
    """

    def __init__(self, port: CentralPort) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._reader = PublisherReader()
        self._share = port.place.share()
        self._transport: asyncio.Transport | None = None
        self._since = self._loop.time()
        self._is_known = False
        self.bytes = 0
        """Number of bytes received in the current second."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop's callback: the connection is made."""
        self._transport = cast(asyncio.Transport, transport)
        self._port.came(self)
        self._transport.write(OPENING)
        self._loop.call_later(GREETING_SECONDS, self._must_be_ready)

    def data_received(self, data: bytes) -> None:
        """The event loop's callback: bytes arrived."""
        self.bytes += len(data)
        try:
            for frames in self._reader.feed(data):
                self._is_known |= self._port.take(frames)
        except NotZmtp:
            self.close()
            return
        self._send_answer()
        if not self._holds(self._reader.held):
            self.close()
        elif self._transport is not None and not self._port.may_read_on(self, len(data)):
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's callback: the connection is gone."""
        self._share.release()
        self._port.left(self)

    def may_go(self) -> bool:
        """Return whether the connection may be closed to make room for another one (see `Visitor`): its peer has not
        identified itself in time, or has sent no message of a followed instance.
        """
        patience = IDLE_SECONDS if self._reader.is_ready else STRANGER_SECONDS
        return not self._is_known and self._loop.time() - self._since > patience

    def turn_away(self) -> None:
        """Close the connection to make room for another one (see `Visitor`)."""
        self.close()

    def close(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def read_on(self) -> None:
        """Read from the connection again, because a new second has begun."""
        self.bytes = 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _holds(self, size: int) -> bool:
        more = size - self._share.held
        if more > 0:
            return self._share.take(more)
        self._share.release(-more)
        return True

    def _send_answer(self) -> None:
        if self._reader.answer and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._reader.answer)
            self._reader.answer = b""

    def _must_be_ready(self) -> None:
        if not self._reader.is_ready:
            self.close()


def pod_of(topic: bytes) -> bytes:
    """Return the pod in a topic `kv@<pod>@<model>`, or the whole topic if it has another form."""
    parts = topic.split(b"@", 2)
    return parts[1] if len(parts) == 3 and parts[0] == b"kv" else topic


class CentralSubscription(Subscription):
    """The subscription to a source whose engine connects to the router. If `central` is None, because this process
    could not bind the port, the events come only from replays.
    """

    rests_when_away = False

    def __init__(self, central: CentralPort | None, *named: Any) -> None:
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
        """Whether the index has every event of the source that this router can receive. A replay that fills a gap makes
        this false; the request for new messages that is sent once a second does not.
        """
        return super().is_settled or (self._polls and not self._closed and self.state is SourceState.REPLAYING)

    def hear(self, frames: list[bytes]) -> None:
        """Queue a message with the source's topic. If too many messages are queued, drop it; the router later requests
        it as a replay.
        """
        self.connected = self._heard_since_look = True
        if len(self._arrived) < MOST_MESSAGES_WAITING and self._arrived_bytes < MOST_WAITING_EACH:
            self._arrived.append(frames)
            self._arrived_bytes += sum(map(len, frames))
        self._reader.wake(self)

    def check_replay(self) -> None:
        """Repeat an overdue request for a replay. Request new messages if none has arrived since the last check. Runs
        about once a second.
        """
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
