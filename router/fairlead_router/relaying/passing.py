"""Passes a streamed answer from its engine to its client.

The answer is buffered until it has content. Until then the engine may report a failure, and the router can try another
instance. An `Exchange` is one such attempt: a call at one instance, and the headers of its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import instance_of, rank_of
from fairlead_router.engines.upstream_connections import UpstreamConnection, UpstreamFailure
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import Failure, StreamReader, content_type
from fairlead_router.protocols.kept_headers import decision_headers
from fairlead_router.relaying.calls import Call, Client
from fairlead_router.relaying.second_opinions import Doubt
from fairlead_router.relaying.sending import failure_of_answer, passed_headers

ANSWER = "answer"
"""The kind of failure for an answer that reports an error in spite of its success status, or has no content."""

HELD_BYTES = 256 * 1024
"""Maximum number of buffered bytes at the beginning of a stream. Beyond it, the response to the client begins even if
there is no content yet.
"""
HELD_SECONDS = 15.0
"""Seconds after which the response to the client begins with the next event, even if there is no content yet. Then the
stream's comments keep the connection alive.
"""


class Exchange:
    """One attempt at a routed request: the call at the instance `instance`, and its answer.

    The answer is written to `client`, and its end is recorded for `ticket` in the account of `pool`. For a divided
    request, it is the decode instance's answer.
    """

    __slots__ = ("call", "client", "connection", "dispatch", "doubt", "handed_over_at", "instance", "pool", "ticket")

    def __init__(
        self,
        call: Call,
        client: Client,
        pool: Pool,
        ticket: Ticket,
        dispatch: Dispatch,
        instance: str,
        connection: UpstreamConnection,
        handed_over_at: float,
        doubt: Doubt | None,
    ) -> None:
        self.call = call
        self.client = client
        self.pool = pool
        self.ticket = ticket
        self.dispatch = dispatch
        self.instance = instance
        self.connection = connection
        self.handed_over_at = handed_over_at
        """The time at which a divided request was sent to the decode instance; 0 = the request is not divided."""
        self.doubt = doubt
        """The refusals of this request by other engines so far; None if there are none."""

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream. An engine may also send a single document to a client that requested a
        stream.
        """
        if self.connection.status >= 400:
            return False
        return not content_type(self.connection.headers).startswith(b"application/json")

    def answer_headers(self) -> bytes:
        """Return the header lines for the client: the engine's headers that may be passed on, and headers about the
        routing decision.
        """
        dispatch, ticket = self.dispatch, self.ticket
        lines = passed_headers(self.connection)
        lines.append(
            b"x-fairlead-pool: %s\r\nx-fairlead-instance: %s\r\nx-fairlead-decision: %s\r\nx-fairlead-reason: %s\r\nx-fairlead-queued-ms: %d\r\n"
            % (
                self.pool.header,
                instance_of(dispatch.instance).encode(),
                dispatch.decision_id.encode(),
                dispatch.reason.encode(),
                ticket.queued_seconds * 1000.0,
            )
        )
        if dispatch.request.explain:
            lines += (b"%s: %s\r\n" % pair for pair in decision_headers(dispatch)[1:])
        if (rank := rank_of(dispatch.instance)) is not None:
            lines.append(b"x-fairlead-rank: %d\r\n" % rank)
        if dispatch.decode is not None:
            lines.append(b"x-fairlead-decode: %s\r\n" % instance_of(dispatch.decode).encode())
        if self.pool.classes.are_declared:
            lines.append(b"x-fairlead-priority-class: %s\r\n" % dispatch.request.priority_class.encode())
        return b"".join(lines)


class Beginnings(Protocol):
    """Callbacks for the progress of a stream."""

    def begins(self) -> None:
        """Write the status and the headers, because the response to the client begins now."""

    def has_content(self) -> None:
        """Record that the client has received the first piece of generated content."""


class StreamPassage:
    """Passes one attempt's stream on to the client. Call `take` with each piece of the engine, and `take_last` with the
    last piece. `clock` returns seconds from any start.
    """

    __slots__ = ("_client", "_clock", "_connection", "_hears", "_held", "_keep", "_reader", "_since", "_size", "begun")

    def __init__(
        self,
        reader: StreamReader,
        connection: UpstreamConnection,
        client: Client,
        hears: Beginnings,
        clock: Callable[[], float],
        keep: Callable[[bytes], None] | None = None,
    ) -> None:
        """Make the passage. `keep`: is called with each piece that the client gets; None = no pieces are kept."""
        self._keep = keep
        self._reader = reader
        self._connection = connection
        self._client = client
        self._hears = hears
        self._clock = clock
        self._since: float | None = None
        """The time at which the first piece arrived; None before it. It is not needed once there is content."""
        self._held: list[bytes] | None = []
        """The pieces that have arrived before any content; None once there is content."""
        self._size = 0
        self.begun = False
        """Whether the response to the client has begun, so that no other instance can be tried."""

    def take(self, piece: bytes) -> bool:
        """Pass a piece on, or buffer it. Return False if the router must pause reading from the engine, because the
        client reads slowly.
        """
        shown = self._reader.feed(piece)
        if self._held is None:
            if not shown:
                return True
            if self._keep is not None:
                self._keep(shown)
            return self._client.write(shown)
        return self._hold(self._held, shown)

    def take_last(self, piece: bytes) -> bytes:
        """Take the last piece of the stream. Return the bytes that were not written to the client yet."""
        shown = self._reader.feed(piece) if piece else b""
        shown += self._reader.end()
        held, self._held = self._held, None
        if held is None:
            return shown
        if self._reader.began:
            self._hears.has_content()
        return b"".join((*held, shown))

    def begin(self) -> None:
        """Begin the response to the client, unless it has begun."""
        if not self.begun:
            self.begun = True
            self._hears.begins()

    def _hold(self, held: list[bytes], shown: bytes) -> bool:
        reader = self._reader
        if reader.failure is not None and not reader.began and not self.begun:
            self._connection.abort(answer_failed(self._connection, reader.failure))
            return True
        held.append(shown)
        self._size += len(shown)
        if not (reader.began or self.begun or self._size > HELD_BYTES or self._held_for() >= HELD_SECONDS):
            return True
        self.begin()
        whole = b"".join(held)
        held.clear()
        if self._keep is not None:
            self._keep(whole)
        ready = self._client.write(whole) if whole else True
        if reader.began:
            self._held = None
            self._hears.has_content()
        return ready

    def _held_for(self) -> float:
        now = self._clock()
        if self._since is None:
            self._since = now
        return now - self._since


class RestPassage:
    """Passes on the rest of an answer, whose first part the client has. `goes_on` is called when the first content of
    the rest has arrived.
    """

    __slots__ = ("_client", "_connection", "_goes_on", "_keep", "_reader", "_waits")

    begun = True

    def __init__(
        self,
        reader: StreamReader,
        connection: UpstreamConnection,
        client: Client,
        keep: Callable[[bytes], None],
        goes_on: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._connection = connection
        self._client = client
        self._keep = keep
        self._goes_on = goes_on
        self._waits = True

    def take(self, piece: bytes) -> bool:
        """Pass a piece on (see `StreamPassage.take`)."""
        shown = self._reader.feed(piece)
        self._look()
        if not shown:
            return True
        self._keep(shown)
        return self._client.write(shown)

    def take_last(self, piece: bytes) -> bytes:
        """Take the last piece of the stream (see `StreamPassage.take_last`)."""
        shown = (self._reader.feed(piece) if piece else b"") + self._reader.end()
        self._look()
        return shown

    def begin(self) -> None:
        """Do nothing, because the response to the client has already begun."""

    def _look(self) -> None:
        reader = self._reader
        if self._waits and (reader.began or reader.finished):
            self._waits = False
            self._goes_on()
        if reader.failure is not None:
            self._connection.abort(answer_failed(self._connection, reader.failure))


_CODINGS = frozenset({b"br", b"compress", b"deflate", b"gzip", b"x-compress", b"x-gzip", b"zstd"})


def shortfall_of(connection: UpstreamConnection, failure: Failure) -> str:
    """Return a message about the failure of an answer with a success status. If the engine compressed the answer, the
    message names this as the reason.
    """
    coding = next((value.strip().lower() for name, value in connection.headers if name == b"content-encoding"), b"")
    if coding in _CODINGS:
        return f"it is compressed (content-encoding: {coding.decode()}), although the router asks engines for uncompressed answers"
    return failure.message


def answer_failed(connection: UpstreamConnection, failure: Failure) -> UpstreamFailure:
    """Return an `UpstreamFailure` for a failure that an answer with a success status reports."""
    words = f"answered {connection.status}, but no answer: {shortfall_of(connection, failure)}"
    return failure_of_answer(connection, ANSWER, words, failure.status)
