"""One request on a client's connection.

It reads the body whole or in pieces, lets callbacks write the response, and reports when the client closes the
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from http import HTTPStatus
from typing import Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from fairlead_router.protocols.kept_headers import KEPT_HEADER
from fairlead_router.protocols.refusals import Headers
from fairlead_router.protocols.requests import KnownHeaders
from fairlead_router.serving.body_memory import BodyMemory, MemoryFull, Owner

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
BODILESS = frozenset({*range(100, 200), 204, 304})
"""Statuses of responses that have no body."""
STATUS_LINES = {status: b"HTTP/1.1 %d %s\r\n" % (status, _PHRASES.get(status, b"")) for status in range(100, 1000)}

UNASKED_BODY_BYTES = 1024 * 1024
"""Maximum number of bytes of a body that are buffered before the application reads it. They count towards the memory
for bodies.
"""

SMALL_BODY_BYTES = 64 * 1024
LOOK_SECONDS = 0.1
PATIENT_SECONDS = 2.0
"""Seconds for which a body that is not small waits for free memory before it is refused."""

SMALL_PIECE_BYTES = 1024
"""Size in bytes below which received pieces are joined, because a body in chunks of a few bytes would take many times
its size.
"""

STREAMED_BODY_BYTES = 256 * 1024
"""Maximum number of buffered bytes of a body that is passed on as it arrives. Beyond it, the router pauses reading from
the client.
"""


class BodyTooLarge(Exception):
    """An exception: the body has more bytes than allowed."""


class ClientGone(Exception):
    """An exception: the client closed its connection before its request was handled."""


class Connection(Protocol):
    """The methods and attributes of a connection that a `ClientRequest` uses."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    flow: FlowControl
    server_state: ServerState
    known_headers: KnownHeaders

    def forget(self, request: ClientRequest) -> None:
        """Remove a request that the application has handled."""


class _ServersOwn:
    """Caches the bytes of the server's own headers, which uvicorn makes once a second."""

    def __init__(self) -> None:
        self._headers: Headers = []
        self._lines = b""

    def of(self, headers: Headers) -> bytes:
        if headers is not self._headers:
            self._headers, self._lines = headers, b"".join(b"%s: %s\r\n" % pair for pair in headers)
        return self._lines


_SERVERS_OWN = _ServersOwn()


class ClientRequest:
    """One request on a client's connection. The application gets it as the ASGI extension `fairlead.client`.

    It replaces ASGI's `receive` and `send`. These wake a task for each piece, check and copy every header again, and
    cannot be called from an engine's callback.
    """

    __slots__ = (
        "_chunked", "_connection", "_crowded", "_cycle", "_discarding", "_expired", "_gone_callback", "_head", "_held",
        "_id", "_limit", "_memory", "_overflowed", "_owner", "_patience", "_pieces", "_size", "_standing", "_streaming",
        "_waiter", "_writable", "complete", "explains", "gone", "headers",
    )  # fmt: skip

    def __init__(self, connection: Connection, cycle: RequestResponseCycle, memory: BodyMemory, headers: Set[bytes] = frozenset()) -> None:
        """Make a request whose body uses `memory`. `headers`: the names of its headers, in lower case."""
        self.headers = headers
        self._connection = connection
        self._cycle = cycle
        self._memory = memory
        self._held = 0
        """Number of bytes of the memory for bodies that the request holds."""
        self._owner: Owner | None = None
        self._patience: asyncio.TimerHandle | None = None
        """The timer of the next check for free memory, while the router does not read this body because the memory for
        bodies is nearly full. None otherwise.
        """
        self._crowded = False
        self._standing = b""
        self._id = b""
        self.explains = False
        """Whether the client asked to have its routing decision kept, and no header of `accompany` says yet whether it
        is kept.
        """
        self._pieces: list[bytes | bytearray] = []
        self._size = 0
        self._limit = UNASKED_BODY_BYTES
        self.complete = False
        """Whether the whole body has arrived."""
        self._discarding = False
        self._expired = False
        self._overflowed = False
        self._streaming = False
        self._waiter: asyncio.Future[None] | None = None
        self._gone_callback: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None
        self._head = b""
        self._chunked = False
        self.gone = False

    # ── reading ──

    async def body(self, limit: int, seconds: float) -> bytes:
        """Return the whole body. Raises BodyTooLarge as soon as more than `limit` bytes have arrived; also MemoryFull,
        TimeoutError or ClientGone.
        """
        self._limit = limit
        if not self.complete:
            self._allow_body()
            await self._arrival(seconds)
        if self._crowded:
            raise MemoryFull
        if self._overflowed or self._size > limit:
            raise BodyTooLarge
        if self.gone:
            raise ClientGone
        if not self.complete:
            raise TimeoutError
        pieces, self._pieces = self._pieces, []
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)  # no copy of bytes

    async def next_piece(self, seconds: float) -> bytes:
        """Return the bytes of the body that have arrived since the last call; b"" at its end. Raises MemoryFull,
        TimeoutError or ClientGone.

        Use it instead of `body` if the body may be too large for the memory. Between calls, the router pauses reading
        from the client when enough bytes are buffered.
        """
        self._streaming = True
        if not self._pieces and not self.complete:
            self._allow_body()
            self._connection.flow.resume_reading()
            await self._arrival(seconds)
        if self._crowded:
            raise MemoryFull
        if self._overflowed or self.gone:
            raise ClientGone
        if not self._pieces and not self.complete:
            raise TimeoutError
        self._release(min(self._size, self._held))
        pieces, self._pieces, self._size = self._pieces, [], 0
        return b"".join(pieces)

    async def discard(self, limit: int, seconds: float, idle_seconds: float) -> None:
        """Read and discard the rest of the body: about `limit` bytes at most, for `seconds` at most, and until no bytes
        arrive for `idle_seconds`.
        """
        self._keep_nothing()
        self._size = 0
        self._limit = limit
        self._crowded = False
        self._streaming = False
        self._connection.flow.resume_reading()
        clock = self._connection.loop.time
        ends_at = clock() + seconds
        before = -1
        while before < self._size <= limit and not (self.complete or self.gone) and (left := ends_at - clock()) > 0:
            before = self._size
            await self._arrival(min(idle_seconds, left))

    async def _arrival(self, seconds: float) -> None:
        """Wait for a change: the body is complete, too large or refused, a piece of a streamed body has arrived, the
        client has closed the connection, or `seconds` have passed.
        """
        loop = self._connection.loop
        self._expired = False
        timer = loop.call_later(seconds, self._expire)
        try:
            while not (
                self.complete
                or self.gone
                or self._expired
                or self._crowded
                or self._size > self._limit
                or (self._streaming and self._pieces)
            ):
                self._waiter = waiter = loop.create_future()
                await waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _allow_body(self) -> None:
        if self._cycle.waiting_for_100_continue:
            self._cycle.waiting_for_100_continue = False
            if not self._connection.transport.is_closing():
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _expire(self) -> None:
        self._expired = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def arrived(self, piece: bytes) -> None:
        """Add a piece of the body that the connection has received."""
        self._size += len(piece)
        if self._size > self._limit:
            self._overflowed = True
            self._keep_nothing()
            self._wake()
        elif not self._discarding:
            memory, size, owner = self._memory, len(piece), self._owner
            if memory.held + size > memory.most or (owner is not None and owner.body_bytes + size > memory.most_each):
                self._crowd()
                return
            memory.held += size
            self._held += size
            if owner is not None:
                owner.body_bytes += size
            self._keep(piece)
            if memory.held > memory.soft and self._size > SMALL_BODY_BYTES and self._patience is None:
                self._hold_back(self._connection.loop.time() + PATIENT_SECONDS)
            if self._streaming:
                if self._size > STREAMED_BODY_BYTES:
                    self._connection.flow.pause_reading()
                self._wake()

    def _keep(self, piece: bytes) -> None:
        pieces = self._pieces
        if not pieces or len(piece) >= SMALL_PIECE_BYTES:
            pieces.append(piece)
        elif isinstance(pieces[-1], bytearray):
            pieces[-1] += piece
        else:
            pieces.append(bytearray(piece))

    def _crowd(self) -> None:
        """Refuse the body, because there is no memory left for it."""
        self._crowded = True
        self._keep_nothing()
        self._wake()

    def _hold_back(self, until: float) -> None:
        """Pause reading the body, so that other requests can end and release memory. Refuse the body if there is still
        no memory at the time `until`.
        """
        self._connection.flow.pause_reading()
        self._patience = self._connection.loop.call_later(LOOK_SECONDS, self._look_for_room, until)

    def _look_for_room(self, until: float) -> None:
        self._patience = None
        if not (self.complete or self._discarding) and self._memory.held > self._memory.soft:
            if self._connection.loop.time() < until:
                self._hold_back(until)
                return
            self._crowd()
        if not self.gone:
            self._connection.flow.resume_reading()

    def belongs_to(self, owner: Owner) -> None:
        """Count the bytes of the body, received and future ones, towards the owner's part of the memory. A small body
        that has already arrived is not counted.
        """
        if self.complete and self._held <= SMALL_BODY_BYTES:
            return
        self._owner = owner
        owner.body_bytes += self._held

    def keeps(self, size: int) -> bool:
        """Count `size` bytes of the response that are buffered in the router. Return False if no further bytes may be
        buffered.
        """
        self._memory.held += size
        self._held += size
        if self._owner is not None:
            self._owner.body_bytes += size
        return self._memory.held <= self._memory.soft

    def _keep_nothing(self) -> None:
        self._discarding = True
        self._pieces.clear()
        self._release(self._held)

    def _release(self, size: int) -> None:
        self._memory.held -= size
        self._held -= size
        if self._owner is not None:
            self._owner.body_bytes -= size

    def hold(self, size: int) -> None:
        """Reserve memory until the request ends, for `size` bytes that are made from the body. Raises MemoryFull."""
        memory, owner = self._memory, self._owner
        if memory.held + size > memory.most or (owner is not None and owner.body_bytes + size > memory.most_each):
            raise MemoryFull
        memory.held += size
        self._held += size
        if owner is not None:
            owner.body_bytes += size

    def let_go(self, size: int) -> None:
        """Release `size` bytes of the memory that the request holds."""
        self._release(min(size, self._held))

    def completed(self) -> None:
        """Record that the whole body has arrived."""
        self.complete = True
        if self._waiter is not None:
            self._wake()

    # ── the client's leaving ──

    @property
    def known_headers(self) -> KnownHeaders:
        """The connection's cache of forwarded headers."""
        return self._connection.known_headers

    def watch(self, gone: Callable[[], None]) -> None:
        """Call `gone` once when the client closes its connection. If it has closed already, call `gone` at once."""
        if self.gone:
            gone()
        else:
            self._gone_callback = gone

    def unwatch(self) -> None:
        """Drop the body and release its memory, because the application has handled the request."""
        self._discarding = True
        self._pieces.clear()
        self._memory.held -= self._held
        if self._owner is not None:
            self._owner.body_bytes -= self._held
            self._owner = None
        self._held = 0
        self._gone_callback = None
        self._writable = None
        self._connection.forget(self)

    def left(self) -> None:
        """Record that the connection is lost, and drop the body."""
        self._keep_nothing()
        self.gone = True
        self._cycle.disconnected = True  # uvicorn notifies only the last of a pipeline
        self._wake()
        callback, self._gone_callback = self._gone_callback, None
        if callback is not None:
            callback()

    # ── answering ──

    def accompany(self, headers: Headers) -> None:
        """Add headers from an engine or the router to every response to this request."""
        self._standing += b"".join(b"%s: %s\r\n" % pair for pair in headers)
        self.explains = self.explains and all(name != KEPT_HEADER for name, _ in headers)

    def name(self, request_id: bytes) -> None:
        """Set the request id that responses show, unless one is set already, such as the client's own."""
        self._id = self._id or request_id

    @property
    def known_as(self) -> str:
        """The request id that responses show; "" if it is not set yet."""
        return self._id.decode("ascii")

    def answer_by_asgi(self) -> None:
        """Prepare for a response through ASGI's `send` instead of `begin`: add the headers that every response to this
        request has.
        """
        lines = self._standing.split(b"\r\n")[:-1]
        standing = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
        if self._id:
            standing.append((b"x-request-id", self._id))
        self._cycle.default_headers = [*self._cycle.default_headers, *standing]

    def begin(self, status: int, headers: bytes, length: int | None, *, close: bool = False) -> None:
        """Set the status and the headers (whole lines) of a response. They are sent with its first bytes.

        `length`: the number of bytes of the body; None = the body is chunked. `close`: the connection ends after the
        response. It also ends if the rest of the request's body will not be read.
        """
        cycle = self._cycle
        if close or (self._streaming and not self.complete):
            cycle.keep_alive = False
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        lines = [STATUS_LINES[status], _SERVERS_OWN.of(self._connection.server_state.default_headers), self._standing]
        if self._id:
            lines += (b"x-request-id: ", self._id, b"\r\n")
        lines.append(headers)
        old = cycle.scope["http_version"] == "1.0"
        bodiless = status in BODILESS
        if bodiless:
            pass  # what frames a body, even an empty one, would be read as the next answer (RFC 9112 §6.3)
        elif length is not None:
            lines.append(b"content-length: %d\r\n" % length)
        elif old:
            cycle.keep_alive = False  # HTTP/1.0 knows no chunks: the body ends with the connection
        else:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        self._chunked = length is None and not old and not bodiless

    def write(self, piece: bytes) -> bool:
        """Send a piece of the body at once. Return False if the client reads slowly. The caller must then wait until
        the callback that it gave to `on_writable` is called.
        """
        transport = self._connection.transport
        if self.gone or transport.is_closing():
            return True
        head, self._head = self._head, b""
        transport.write(b"%s%x\r\n%s\r\n" % (head, len(piece), piece) if self._chunked else head + piece)
        return not self._connection.flow.write_paused

    def end(self, piece: bytes, *, close: bool = False) -> None:
        """Send the last piece, which may be empty, and complete the response. `close`: the connection ends too."""
        if self.gone:
            return
        head, self._head = self._head, b""
        transport, cycle = self._connection.transport, self._cycle
        if transport.is_closing():
            pass  # cut already: its loss is reported with the next turn of the event loop
        elif self._chunked:
            transport.write(b"%s%x\r\n%s\r\n0\r\n\r\n" % (head, len(piece), piece) if piece else head + b"0\r\n\r\n")
        elif head or piece:
            transport.write(head + piece)
        cycle.response_complete = True
        if close or not cycle.keep_alive:
            transport.close()
        cycle.on_response()

    @property
    def unread(self) -> bool:
        """Whether a part of a body that is passed on as it arrives has not arrived yet."""
        return self._streaming and not self.complete

    @property
    def answering(self) -> bool:
        """Whether a response has begun."""
        return bool(self._cycle.response_started)

    def abort(self) -> None:
        """Drop the connection in the middle of a response, so that the client does not take the part for a whole
        response.
        """
        self._connection.transport.abort()

    def on_writable(self, resume: Callable[[], None]) -> None:
        """Call `resume` each time the client has read enough for more to be sent."""
        self._writable = resume

    def caught_up(self) -> None:
        """Record that the connection's send buffer is empty again, and call the callback given to `on_writable`."""
        if self._writable is not None:
            self._writable()
