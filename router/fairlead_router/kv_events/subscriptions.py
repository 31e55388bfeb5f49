"""Follows one source of KV events: takes batches from its sockets into the pool's index, in the order of their sequence
numbers.

Nothing in this module waits. Data is read in slices (`Subscription.read`), so that a burst of events delays no request.
A lost batch is requested from the engine's replay socket. A batch that cannot be replayed makes the index less
accurate.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

import zmq
from zmq.utils.monitor import parse_monitor_message

from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.sequences import SequenceCounts, SequenceTracker, SourceState, Step
from fairlead.kv_events.sources import Source
from fairlead.plausibility import MESSAGE_BYTES, MOST_INTEGER
from fairlead_router.kv_events.reading import SlicedReader, Socket
from fairlead_router.kv_events.sources import EventSource
from fairlead_router.kv_events.wire import BatchUnreadable, WireBatch, decode, in_parts

REPLAY_SECONDS = 2.0
"""Seconds without a message of a requested replay after which the router repeats its request."""

MOST_TRIES = 3
"""Maximum number of requests for a replay without a response. After that, the router goes on without the missing
batches, if later batches wait.
"""

MOST_BATCHES_WAITING = 5_000
MOST_MESSAGES_WAITING = 10_000
MOST_MESSAGES_RECEIVED = 8
"""Number of messages of a source, each of up to the maximum size, that ZMQ buffers before it stops reading. Further
messages wait at the engine.
"""

BLOCKS_AT_ONCE = 512
"""Maximum number of blocks that are added to the index at once. A batch with more blocks is divided into parts, and the
event loop serves requests between the parts.
"""

MOST_BYTES_A_SECOND = 64 * 1024 * 1024
"""Maximum number of bytes per second that are added to the index. This is more than a router can process. Further bytes
are read and discarded.
"""

ASKS_AT_ONCE = 16
"""Maximum number of requests for replays of one source in a burst; after that, one request per second."""

REST_AFTER_SECONDS = 30.0
"""Seconds after which a source that cannot be reached rests: its sockets are closed for a while. A source that sends
too many bytes rests at once.
"""

FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 10.0, 300.0
"""Seconds of the first and of the longest rest of a source. Each rest is twice as long as the rest before it, until the
source is reached again.
"""

_RECONNECT_MS, _LONGEST_RECONNECT_MS = 100, 1_000
_LAST = (-1).to_bytes(8, "big", signed=True)
_CONNECTION_EVENTS = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
_NOBLOCK, _RCVMORE = int(zmq.NOBLOCK), int(zmq.RCVMORE)  # as numbers: an enum's members cost more
_CLEARED = object()
"""A mark in the queue of batches: here the source drops the blocks of all earlier batches."""


class Subscription:
    """Follows one source. `reader` calls `read` when data has arrived.

    `changed` is called when `is_settled` or the source's block size has changed. `now` is the router's clock in Unix
    seconds.
    """

    rests_when_away = True
    """Whether the source rests while it cannot be reached."""

    def __init__(
        self,
        context: "zmq.Context[Socket]",
        told: EventSource,
        source: Source,
        caches: EngineCaches,
        now: Callable[[], float],
        reader: SlicedReader,
        changed: Callable[[], None],
    ) -> None:
        self.told = told
        self.source = source
        self.events = 0
        self.unreadable = 0
        self.lag_seconds: float | None = None
        """Age in seconds of the newest batch on its arrival: the router's clock minus the time that the engine wrote
        into the batch. None before the first batch.
        """
        self.connected = False
        self._context = context
        self._caches = caches
        self._now = now
        self._reader = reader
        self._changed = changed
        self._tracker = self._new_tracker()
        self._heard_out = False
        """Whether a replay has ended on this connection. If an engine has sent no batch by then, it holds no blocks."""
        self._unapplied: deque[WireBatch | object] = deque()
        self._replay: Socket | None = None
        self._replay_due = 0.0
        self._tries = 0
        self._closed = False
        self._asks = ASKS_AT_ONCE
        self._bytes = 0
        """Number of bytes that arrived since the last `check_replay`."""
        self._waiting_bytes = 0
        """Number of bytes of batches that wait for a missing earlier batch."""
        self.floods = 0
        """Number of seconds in which events arrived faster than MOST_BYTES_A_SECOND."""
        self._away_since = now()
        """The time of the last check at which the source could be reached."""
        self._rest_until = 0.0
        self._rest_seconds = FIRST_REST_SECONDS
        self._known: tuple[bool, int | None] = (False, None)
        """The values at the last call of `changed`: whether the source was settled, and its block size."""
        self._open()

    def _new_tracker(self) -> SequenceTracker[WireBatch]:
        return SequenceTracker(can_replay=self.told.replay_endpoint is not None, most_waiting=MOST_BATCHES_WAITING)

    def _open(self) -> None:
        """Open the sockets that receive the source's events. Raises zmq.ZMQError, and then leaves no socket open."""
        self._live = self._opened(zmq.SUB)
        try:
            self._live.subscribe(self.told.topic)
            self._monitor: Socket = self._live.get_monitor_socket(_CONNECTION_EVENTS)
            self._live.connect(self.told.endpoint)
        except zmq.ZMQError:
            self._live.disable_monitor()
            self._live.close(linger=0)
            raise
        for socket in (self._monitor, self._live):
            self._reader.watch(socket, self)

    def _hear_no_more(self) -> None:
        """Close the sockets that `_open` opened."""
        self._live.disable_monitor()
        for socket in (self._monitor, self._live):
            self._reader.unwatch(socket)
            socket.close(linger=0)

    @property
    def state(self) -> SourceState:
        """The state of the source, which says how complete its events are."""
        return self._tracker.state

    @property
    def counts(self) -> SequenceCounts:
        return self._tracker.counts

    @property
    def is_settled(self) -> bool:
        """Whether the index has every event of the source that this router can receive."""
        if self._closed or self.rests:
            return False
        return self.state in (SourceState.CURRENT, SourceState.INCOMPLETE) or (self.state is SourceState.WAITING and self._heard_out)

    def read(self, until: float) -> bool:
        """Read received messages until `until`, a value of `time.perf_counter`. Return whether there may be more to
        read.
        """
        while perf_counter() < until and not self._closed and not self.rests:
            if self._unapplied:
                self._apply(self._unapplied.popleft())
            elif not (self._take_live() or self._take_replayed() or self._take_connection()):
                return self._caches.index.sweep(500)
        return not self._closed

    # ── rest ──

    @property
    def rests(self) -> bool:
        """Whether the source rests: its sockets are closed for a while."""
        return self._rest_until > 0.0

    def wake(self) -> None:
        """End a rest of the source: open its sockets again, because the engine may respond again."""
        if not self.rests or self._closed:
            return
        try:
            self._open()
        except zmq.ZMQError:  # no files are left
            self._rest_until = self._now() + self._rest_seconds
        else:
            self._rest_until, self._away_since = 0.0, self._now()

    def _look_after(self, now: float) -> None:
        """Begin or end a rest of the source if its time has come. Runs about once a second."""
        flooded, self._bytes = self._bytes > MOST_BYTES_A_SECOND, 0
        self._asks = min(ASKS_AT_ONCE, self._asks + 1)
        self.floods += flooded
        if self.rests:
            if now >= self._rest_until:
                self.wake()
        elif self.connected and not flooded:
            self._away_since, self._rest_seconds = now, FIRST_REST_SECONDS
        elif flooded or (self.rests_when_away and now - self._away_since >= REST_AFTER_SECONDS):
            if flooded:
                self._forget()
            self._rest(now)

    def _forget(self) -> None:
        """Drop all blocks of the source, as after a restart of its engine."""
        counts = self._tracker.counts
        self._tracker = self._new_tracker()
        self._tracker.counts = counts
        self._unapplied.clear()
        self._caches.index.clear(self.source)

    def _rest(self, now: float) -> None:
        self._rest_until = now + self._rest_seconds
        self._rest_seconds = min(2 * self._rest_seconds, LONGEST_REST_SECONDS)
        self.connected = self._heard_out = False
        self._close_replay()
        self._hear_no_more()
        self._note_state()

    def check_replay(self) -> None:
        """Repeat an overdue request for a replay. Runs about once a second."""
        self._look_after(self._now())
        if self._replay is None or self._now() < self._replay_due:
            return
        if self._tries < MOST_TRIES or not self._tracker.waiting:
            self._do(self._tracker.unanswered())
        else:
            self._end_replay()

    def give_up(self) -> None:
        """Stop following this source permanently."""
        self.close()
        self._changed()

    def close(self) -> None:
        """Close the sockets. The source's blocks stay in the index until the caller removes them."""
        if self._closed:
            return
        self._closed = True
        self._close_replay()
        if not self.rests:
            self._hear_no_more()

    # ── what arrives ──

    def _take_live(self) -> bool:
        """Read one message of three frames: topic, sequence number, batch. Return False if no message has arrived. It
        reads frame by frame, because `recv_multipart` takes three times as long.

        If a message has too few frames, frames of the next message are taken for the missing ones. The batch of the
        next message is then missing and is requested as a replay.
        """
        live = self._live
        try:
            live.recv(_NOBLOCK)
        except zmq.Again:
            return False
        try:
            number, payload = live.recv(_NOBLOCK), live.recv(_NOBLOCK)
        except zmq.Again:
            self.unreadable += 1
            return True
        if live.getsockopt(_RCVMORE) or len(number) != 8 or int.from_bytes(number, "big") > MOST_INTEGER:
            _skip_rest(live)
            self.unreadable += 1
            return True
        self._take_published(number, payload)
        return True

    def _take_published(self, number: bytes, payload: bytes) -> None:
        self._bytes += len(payload)
        if self._bytes > MOST_BYTES_A_SECOND:
            return
        batch = self._decoded(payload)
        if batch is None:
            return
        self.lag_seconds = max(0.0, self._now() - batch.ts)
        place = int.from_bytes(number, "big")
        if self._unapplied or not self._tracker.follows(place, batch.ts):
            self._waiting_bytes = len(payload) + (self._waiting_bytes if self._tracker.waiting else 0)
            if self._waiting_bytes > MOST_BYTES_A_SECOND:
                self._bytes = self._waiting_bytes
                return
            self._do(self._tracker.live(place, batch.ts, batch))
        else:
            self._apply(batch)
            if not self._known[0]:
                self._note_state()

    def _take_replayed(self) -> bool:
        frames = None if self._replay is None else _received(self._replay)
        if frames is None:
            return False
        if frames[-2:-1] == [_LAST]:
            self._end_replay()
            return True
        self._replay_due, self._tries = self._now() + REPLAY_SECONDS, 0
        self._bytes += len(frames[-1])
        number = int.from_bytes(frames[-2], "big") if len(frames) >= 2 else MOST_INTEGER + 1
        if number > MOST_INTEGER or self._bytes > MOST_BYTES_A_SECOND:
            return True
        batch = self._decoded(frames[-1])
        if batch is not None:
            self._do(self._tracker.replayed(number, batch.ts, batch))
        return True

    def _take_connection(self) -> bool:
        frames = _received(self._monitor)
        if frames is None:
            return False
        if parse_monitor_message(frames)["event"] == zmq.Event.HANDSHAKE_SUCCEEDED:
            self.connected = True
            self._do(self._tracker.reconnected())
        else:
            self.connected = self._heard_out = False
            self._note_state()
        return True

    def _decoded(self, payload: bytes) -> WireBatch | None:
        try:
            return decode(payload)
        except BatchUnreadable:
            self.unreadable += 1
            return None

    # ── what is done with it ──

    def _do(self, step: Step[WireBatch]) -> None:
        if step.reset:
            self._unapplied.append(_CLEARED)
        self._unapplied.extend(step.batches)
        if step.replay_from is not None:
            self._ask(step.replay_from)
        elif self._replay is not None and self.state is not SourceState.REPLAYING:
            self._close_replay()
        elif self._known[0] and not step.reset:
            return
        self._note_state()

    def _apply(self, batch: WireBatch | object) -> None:
        if not isinstance(batch, WireBatch):
            self._caches.index.clear(self.source)
            return
        events, *rest = in_parts(batch.events, BLOCKS_AT_ONCE)
        self._unapplied.extendleft(WireBatch(batch.ts, part) for part in reversed(rest))
        self.events += len(events)
        cleared = self._caches.index.apply(self.source, events)
        if cleared:
            self._tracker.cleared()
        if cleared or self._known[1] is None:
            self._note_state()

    def _ask(self, begin: int) -> None:
        """Request a replay from this sequence number. Each request has a new socket, so that a late response to an
        earlier request is not taken for its response. If the source has caused too many requests, the request waits for
        the next second.
        """
        assert self.told.replay_endpoint is not None
        if self._asks <= 0 and self._replay is not None:
            self._replay_due = self._now()
            return
        self._asks -= 1
        self._close_replay()
        self._replay = self._opened(zmq.DEALER)
        self._replay.connect(self.told.replay_endpoint)
        self._replay.send_multipart((b"", begin.to_bytes(8, "big")))
        self._replay_due = self._now() + REPLAY_SECONDS
        self._tries += 1
        self._reader.watch(self._replay, self)

    def _end_replay(self) -> None:
        self._tries = 0
        self._heard_out = True
        self._do(self._tracker.replay_ended())

    def _close_replay(self) -> None:
        if self._replay is not None:
            self._reader.unwatch(self._replay)
            self._replay.close(linger=0)
            self._replay = None

    def _note_state(self) -> None:
        known = self.is_settled, self._caches.index.block_size(self.source)
        if known != self._known:
            self._known = known
            self._changed()

    def _opened(self, kind: int) -> Socket:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.rcvhwm = MOST_MESSAGES_RECEIVED
        socket.maxmsgsize = MESSAGE_BYTES
        socket.reconnect_ivl, socket.reconnect_ivl_max = _RECONNECT_MS, _LONGEST_RECONNECT_MS
        return socket


def _skip_rest(socket: Socket) -> None:
    while socket.getsockopt(_RCVMORE):
        socket.recv(_NOBLOCK)


def _received(socket: Socket) -> list[bytes] | None:
    with suppress(zmq.Again):
        return socket.recv_multipart(zmq.NOBLOCK)
    return None
