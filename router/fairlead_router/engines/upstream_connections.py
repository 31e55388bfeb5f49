"""One connection to an engine, over asyncio.Protocol and llhttp.

An HTTP client library would cost more CPU than the rest of the router together.

A connection carries one request at a time. The router stops reading while the client is slower than the engine, so that
the memory of each stream is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import httptools

from fairlead.plausibility import HEAD_BYTES, MOST_HEADERS, MOST_INTERIM
from fairlead.reports.decisions import UNREACHED
from fairlead_router.engines.loop_time import PART_BYTES, QUICK_BYTES, USUAL_SECONDS, LoopTime

HIGH_WATER = 256 * 1024
"""Bytes of a response that are buffered for a slow client before the router stops reading from the engine."""
MOST_PIECES = 1024
"""Maximum number of separate pieces of a buffered body. Beyond it the pieces are joined, so that tiny chunks take
little more memory than their bytes.
"""

_SILENCE_SECONDS = 5
_PROBES = 3
_DEAD_HOST_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE_SECONDS),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE_SECONDS),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENCE_SECONDS * (1 + _PROBES)),
)
"""TCP keep-alive options. A host that acknowledges no packet for 20 s counts as dead, and its requests as lost. The
kernel of an engine's host acknowledges these probes even while the engine computes for a long time.
"""


class UpstreamFailure(Exception):
    """A failure of an engine to respond properly.

    `kind`: refused, unreachable, deadline, timeout, stalled, lost, protocol, status, or answer. Kind answer: the
    response has a success status, but reports a failure, or has no content or no end. `words`: the failure in words;
    clients read them after the instance's name (`shown`). `status`: the engine's own status code for the failure; 0 =
    none. `at`, `detail`: the address and details, for the log only; `str(failure)` has them and `words`.
    `retry_after_seconds`: the seconds after which the engine accepts the next request; None = the engine named no time.
    `headers`: headers of the engine's response that remain valid without its body.
    """

    def __init__(
        self,
        kind: str,
        words: str,
        status: int = 0,
        *,
        at: str = "",
        detail: str = "",
        retry_after_seconds: float | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(f"{at} {words}".lstrip() + (f": {detail}" if detail else ""))
        self.kind = kind
        self.words = words
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.headers = headers

    def shown(self, subject: str) -> str:
        """Return the sentence about the failure for clients. `subject` is the instance's name, or "it" in a later
        sentence.
        """
        return f"{subject} {without_addresses(self.words)}"

    @property
    def may_pass(self) -> bool:
        """Whether the engine indicated, by its status or a Retry-After, that it could serve the same request later."""
        return self.retry_after_seconds is not None or self.status in (408, 409, 429, 503)

    @property
    def reached(self) -> bool:
        """Whether the engine may have received the request; False if no connection could be opened."""
        return self.kind not in UNREACHED


class BeyondBounds(UpstreamFailure):
    """A failure: the engine sent more than any real engine sends."""

    def __init__(self, words: str, *, at: str) -> None:
        super().__init__("protocol", words, at=at)


_HEX = "[0-9a-fA-F]{1,4}"
_ADDRESS = re.compile(
    r"\[[0-9a-fA-F:.]{2,45}(?:%\w{1,20})?\](?::\d{1,5})?"  # [fd00::1]:8000
    rf"|(?<![\w:])(?:{_HEX}(?::{_HEX}){{0,6}})?::(?:{_HEX}(?::{_HEX}){{0,6}})?(?!\w)"  # fd00::1
    rf"|(?<![\w:]){_HEX}(?::{_HEX}){{4,7}}(?!\w)"
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)(?::\d{1,5})?"  # 10.0.0.7:8000
    r"|(?<![\w.-])(?=[0-9.-]{0,60}[A-Za-z])[A-Za-z0-9][A-Za-z0-9.-]{0,253}:\d{2,5}(?!\w)"  # engine-0.engines:8000
    r"|(?<![\w.-])[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}\.(?:svc|local|internal)(?:\.[A-Za-z0-9-]{1,63}){0,4}"
)
MOST_WORDS = 2000
"""Maximum number of characters of an engine's message that the router quotes in an error for a client."""


def without_addresses(words: str) -> str:
    """Return a message of an engine or of the operating system without hosts, addresses and ports, because clients must
    not see them.
    """
    return _ADDRESS.sub("[address]", words[:MOST_WORDS])


class _Heard(NamedTuple):
    """The callbacks of the HTTP parser. `on_body` is the `append` of a list, so that a body with many pieces calls no
    Python function.
    """

    on_header: Callable[[bytes, bytes], None]
    on_headers_complete: Callable[[], None]
    on_body: Callable[[bytes], None]
    on_message_complete: Callable[[], None]


class UpstreamConnection(asyncio.Protocol):
    """A connection to an engine.

    After `send`, `first` waits for the beginning of the response. Then either `read` returns the bytes of the body that
    have arrived, or `pipe` passes on each piece inside the event loop's callback. `pipe` avoids waking a task for each
    token.
    """

    __slots__ = (
        "_ahead", "_beyond", "_dropped", "_end", "_failure", "_framed", "_in_step", "_interim", "_interims", "_loop", "_lost", "_parser", "_pieces",
        "_sending_paused", "_sink", "_time", "_transport", "_turn", "_unseen", "_waiter",
        "address", "busy", "closed", "complete", "half_sent", "headers", "idle_since", "keep_alive", "paused", "received", "reused", "status",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        lost: Callable[[UpstreamConnection], None],
        loop_time: LoopTime,
    ) -> None:
        """Make a connection to `address` (host:port). `lost` is called once when the connection has closed."""
        self._loop = loop
        self._lost = lost
        self._time = loop_time
        self._ahead: bytes | None = None
        """The bytes that have arrived and wait to be read, because the event loop serves others first or the engine has
        used up its share of the loop. None if no bytes wait and the engine may be read.
        """
        self._turn: asyncio.TimerHandle | None = None
        self._in_step = False
        self._end: tuple[Exception | None] | None = None
        """The exception (or None) with which the connection was lost, kept while earlier bytes are not read yet."""
        self._dropped = False
        """Whether this side aborted the connection, so that the remaining bytes are passed to nobody."""
        self.address = address
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        """The received pieces of the body that are not read yet. It is always the same list object, because the parser
        appends to it.
        """
        heard = _Heard(self.on_header, self.on_headers_complete, self._pieces.append, self.on_message_complete)
        self._parser = httptools.HttpResponseParser(heard)
        self.paused = False
        self._sink: Callable[[bytes], bool] | None = None
        self._failure: UpstreamFailure | None = None
        self._framed = False
        self._interim = False
        self._interims = 0
        self._unseen = 0
        """Number of bytes received outside of a body, since the request or since the last piece of a body."""
        self._beyond = ""
        """A message about the exceeded limit; empty while no limit is exceeded."""
        self._sending_paused = False
        self.received = 0
        """Number of times that bytes were received on this connection. While it does not change, the engine is silent.
        """
        self.half_sent = False
        """Whether the engine responded before the whole request was sent; the connection is then not reused."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.status = 0
        self.busy = False
        self.reused = False
        self.closed = False
        self.complete = False
        self.keep_alive = False
        self.idle_since = 0.0

    # ── sending a request and reading its answer ──

    def send(self, head: bytes, body: bytes) -> None:
        """Write a request, or its beginning. `head` ends with the empty line, and `body` follows it."""
        transport = self._transport
        assert transport is not None
        self.busy = True
        self.complete = False
        self.keep_alive = False
        self.status = 0
        self.headers = []
        self._interims = self._unseen = 0
        self._framed = False
        self._failure = None
        self._pieces.clear()
        if transport.is_closing():
            self.closed = True
            self._failure = UpstreamFailure("lost", "closed the connection before the request", at=self.address)
        elif len(body) < 16384:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    async def send_more(self, piece: bytes) -> None:
        """Write more of the request's body. Waits while the engine reads too slowly.

        Raises UpstreamFailure if the connection to the engine is lost.
        """
        while self._sending_paused and self._failure is None:
            await self._wait()
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(piece)
        else:
            await asyncio.sleep(0)  # only the event loop reports the loss; a sender with more to send would starve it

    async def first(self) -> None:
        """Wait for the response's status and headers, and for the first bytes or the end of its body. Raises
        UpstreamFailure.
        """
        while not (self.status and (self._pieces or self.complete)):
            if self._failure is not None:
                raise self._failure
            await self._wait()

    async def read(self) -> bytes:
        """Return the body bytes that have arrived since the last call; b"" when the response is complete.

        Raises UpstreamFailure if the connection is lost before the response is complete.
        """
        while not self._pieces:
            if self.complete:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._wait()
        if self.paused:
            self.resume()
        return self._take()

    @property
    def is_held(self) -> bool:
        """Whether the router, not the engine, delays further bytes: it has stopped reading this connection for now."""
        return self.paused or self._ahead is not None

    def unread(self, piece: bytes) -> None:
        """Put bytes of the body back. The next `read` returns them first."""
        if piece:
            self._pieces.insert(0, piece)

    async def pipe(self, sink: Callable[[bytes], bool]) -> bytes:
        """Pass the pieces of the body to `sink` as they arrive. When the response is complete, return the last piece,
        which may be empty.

        `sink` returns whether it can take more. If it cannot, the router stops reading from the engine until `resume`.

        Raises UpstreamFailure if the connection is lost before the end.
        """
        if sum(map(len, self._pieces)) > PART_BYTES:
            await self._pass_held(sink)
        self._sink = sink
        try:
            if not self.complete and self._pieces:
                self._pass(sink, self._take())
            while not self.complete:
                if self._failure is not None:
                    raise self._failure
                await self._wait()
        finally:
            self._sink = None
        return self._take()

    async def _pass_held(self, sink: Callable[[bytes], bool]) -> None:
        """Pass on, in steps, the bytes that arrived before `sink` was set, until at most PART_BYTES are left."""
        text, ready = b"", True

        def take(at: int, end: int) -> bool:
            nonlocal ready
            ready = self._pass(sink, text[at:end])
            return ready

        while sum(map(len, self._pieces)) > PART_BYTES:
            text = self._take()
            at = self._time.step(self.address, len(text) - PART_BYTES, take)
            self._pieces.insert(0, text[at:])
            while not ready and self.paused and not self._dropped:
                await self._wait()
            if not self._dropped:
                await asyncio.sleep(self._time.pause(self.address))
            if self._dropped and self._failure is not None:
                raise self._failure
        self.resume()

    async def in_steps(self, body: bytes, read: Callable[[bytes], object]) -> None:
        """Call `read` with each part of a body that came from this engine. Between the steps the event loop serves
        others.
        """
        done = 0

        def part(at: int, end: int) -> bool:
            read(body[done + at : done + end])
            return True

        while done < len(body):
            await asyncio.sleep(self._time.pause(self.address))
            done += self._time.step(self.address, len(body) - done, part)

    def _pass(self, sink: Callable[[bytes], bool], piece: bytes) -> bool:
        """Pass a piece to the sink. Return whether the sink can take more and the connection is open."""
        ready = sink(piece)
        if not ready:
            self._pause()
        return ready and not self.closed

    def resume(self) -> None:
        """Read from the engine again, because the sink can take more."""
        if self.paused:
            self.paused = False
            self._wake()
            if self._transport is not None and not self.closed:
                if self._ahead is None:
                    self._transport.resume_reading()
                else:
                    self._go_on_in(0.0)

    def _pause(self) -> None:
        if not self.paused and self._transport is not None and not self.closed:
            self.paused = True
            self._transport.pause_reading()

    def _take(self) -> bytes:
        pieces = self._pieces
        taken = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return taken

    def abort(self, failure: UpstreamFailure | None = None) -> None:
        """Close the connection at once. A task that waits for the response gets `failure`."""
        if self._failure is None:
            self._failure = failure or UpstreamFailure("lost", "was lost: the router dropped the connection", at=self.address)
        self.closed = self._dropped = True
        self._ahead = None
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def close(self) -> None:
        """Close an idle connection."""
        self.closed = True
        self._ahead = None
        if self._transport is not None:
            self._transport.close()

    # ── waking ──

    async def _wait(self) -> None:
        self._waiter = waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ── asyncio.Protocol ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses
        connected = transport.get_extra_info("socket")
        if connected is not None:
            with contextlib.suppress(OSError):  # not TCP
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for level, option, value in _DEAD_HOST_OPTIONS:
                    connected.setsockopt(level, option, value)

    def pause_writing(self) -> None:
        self._sending_paused = True

    def resume_writing(self) -> None:
        self._sending_paused = False
        self._wake()

    def _hear_long(self, data: bytes) -> None:
        """Read a long piece of received bytes in steps."""
        if self._ahead is not None:
            self._ahead += data
            return
        size, time = len(data), self._time
        if size <= PART_BYTES and self.address not in time.free_at:  # as most: a step of one part
            began = time.clock()
            self._in_step = True
            try:
                self.data_received(data)
            finally:
                self._in_step = False
            if (spent := time.clock() - began) > USUAL_SECONDS:
                time.count(self.address, spent, size)
            return
        self._ahead = data
        self._read_ahead()
        if self._ahead is not None and not (self.paused or self.closed):
            assert self._transport is not None
            self._transport.pause_reading()

    def _go_on_in(self, seconds: float) -> None:
        if self._turn is None:
            self._turn = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        """Continue reading the waiting bytes, after the event loop has served others."""
        self._turn = None
        if self._ahead is not None and not self.paused:
            self._read_ahead()
            if self._ahead is None and not (self.paused or self.closed):
                assert self._transport is not None
                self._transport.resume_reading()

    def _read_ahead(self) -> None:
        """Read the waiting bytes (`_ahead`) for at most the time of one step.

        If bytes are left, or the engine has used up its share of the loop, `_go_on` is called later. Otherwise `_ahead`
        is None afterwards.
        """
        ahead = self._ahead
        assert ahead is not None
        at = 0
        if not self._time.pause(self.address):
            self._in_step = True
            try:
                at = self._time.step(self.address, len(ahead), self._hear_part)
            except BaseException:  # a sink's fault: whoever waits for this answer must not wait for ever
                self.abort()
                raise
            finally:
                self._in_step = False
        pause = self._time.pause(self.address) if self._end is None or at < len(ahead) else 0.0
        self._ahead = ahead[at:] if (at < len(ahead) or pause) and not self.closed else None
        if self._ahead is None:
            self._finish()
        elif not self.paused:
            self._go_on_in(pause)

    def _hear_part(self, at: int, end: int) -> bool:
        """Read a part of the waiting bytes. Return whether more of them may be read."""
        ahead = self._ahead
        assert ahead is not None
        self.data_received(ahead[at:end])
        if self.complete and end < len(ahead):
            self.close()  # bytes nobody asked for
        return not (self.closed or self.paused)

    def data_received(self, data: bytes) -> None:
        self.received += 1
        if not self.busy or self.complete:
            self.close()  # bytes nobody asked for: this connection's framing is not to be trusted
            return
        if (len(data) > QUICK_BYTES or self._ahead is not None) and not self._in_step:
            self._hear_long(data)
            return
        before = len(self._pieces)
        self._unseen += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.abort(self._broken(error))
            return
        if self.complete:
            self._wake()
        elif len(self._pieces) == before:
            if self._unseen > HEAD_BYTES:
                self.headers = self.headers if self.status else []
                self.abort(BeyondBounds(f"sent more than {HEAD_BYTES} bytes outside of an answer's body", at=self.address))
        else:
            self._unseen = 0
            sink = self._sink
            if sink is not None:
                if not sink(self._take()):
                    self._pause()
                return
            if len(self._pieces) > MOST_PIECES:
                self._pieces[:] = [b"".join(self._pieces)]
            if not self.paused and sum(map(len, self._pieces)) > HIGH_WATER:
                self._pause()
            self._wake()

    def _broken(self, error: Exception) -> UpstreamFailure:
        if not self.status:
            self.headers = []  # of a head that is not believed
        if self._beyond:
            return BeyondBounds(self._beyond, at=self.address)
        return UpstreamFailure("protocol", "sent something that is not HTTP", at=self.address, detail=str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)
        self._end = (exc,)
        if self._ahead is None:  # otherwise these bytes come first
            self._finish()

    def _finish(self) -> None:
        """End the response if the connection was lost. Called when all bytes that arrived before the loss have been
        read.
        """
        if self._end is None:
            return
        (exc,), self._end = self._end, None
        self.closed = True
        if self.busy and not self.complete:
            if exc is None and self.status and not self._framed:
                self.complete = True  # an answer without length ends with its connection
            elif self._failure is None:
                how = "closed the connection" if exc is None else "was lost"
                words = f"{how} before the answer was complete"
                self._failure = UpstreamFailure("lost", words, at=self.address, detail="" if exc is None else str(exc))
        self._wake()

    # ── httptools callbacks ──

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return  # a trailer
        name = name.lower()
        if name == b"content-length" or (name == b"transfer-encoding" and b"chunked" in value.lower()):
            self._framed = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete:  # by a piece that has more than the whole answer
            self._refuse("sent a second answer to one request")
        status = self._parser.get_status_code()
        if len(self.headers) > MOST_HEADERS or self._unseen > HEAD_BYTES:
            self._bound_head()
        if status < 200:
            self._interim = True
            self._interims += 1
            if self._interims > MOST_INTERIM:
                self._refuse(f"sent more than {MOST_INTERIM} interim answers (1xx)")
            self.headers = []
            self._framed = False
            return
        self.status = status

    def _bound_head(self) -> None:
        """Refuse the response if its head is too large. Counts only the headers, because later bytes may belong to the
        body.
        """
        if len(self.headers) > MOST_HEADERS:
            self._refuse(f"answered with {len(self.headers)} headers; {MOST_HEADERS} are allowed")
        if sum(len(name) + len(value) + 4 for name, value in self.headers) > HEAD_BYTES:
            self._refuse(f"answered with a head of more than {HEAD_BYTES} bytes")

    def _refuse(self, words: str) -> None:
        """Record the message about the exceeded limit, and stop the parser. Raises ValueError."""
        self._beyond = words
        raise ValueError(words)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            return
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()
