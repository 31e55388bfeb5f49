"""Connections to engines: an own keep-alive pool over asyncio.Protocol and llhttp, because a client library costs more than the whole proxy.

A connection carries one request at a time. Reading is paused while the client is slower than the engine, so memory per stream is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import cast

import httptools

HIGH_WATER = 256 * 1024
"""Bytes of an answer held for a slow client before the engine is paused."""


class UpstreamFailure(Exception):
    """An engine did not answer as HTTP should. `kind`: refused, timeout, lost, protocol or status."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class UpstreamConnection(asyncio.Protocol):
    """One connection to an engine. After `send`, `first` waits for the beginning of the answer; then either `read` takes what has arrived since, or
    `pipe` hands every piece on from within the event loop's callback, which spares a stream waking a task per token."""

    __slots__ = (
        "_failure", "_framed", "_interim", "_parser", "_pieces", "_pool", "_sending_paused", "_sink", "_size", "_transport", "_waiter",
        "address", "busy", "closed", "complete", "half_sent", "headers", "idle_since", "keep_alive", "paused", "received", "reused", "status",
    )  # fmt: skip

    def __init__(self, pool: UpstreamPool, address: str) -> None:
        self._pool = pool
        self.address = address
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self.paused = False
        self._sink: Callable[[bytes], bool] | None = None
        self._failure: UpstreamFailure | None = None
        self._framed = False
        self._interim = False
        self._sending_paused = False
        self.received = 0
        """How often anything came on this connection: what does not grow has fallen silent."""
        self.half_sent = False
        """The request was answered before all of it was sent: what came next would be taken for its rest."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.status = 0
        self.busy = False
        self.reused = False
        self.closed = False
        self.complete = False
        self.keep_alive = False
        self.idle_since = 0.0

    # ── used by the proxy ──

    def send(self, head: bytes, body: bytes) -> None:
        """Write one request: `head` up to and including the empty line, then `body`."""
        transport = self._transport
        assert transport is not None
        self.busy = True
        self.complete = False
        self.keep_alive = False
        self.status = 0
        self.headers = []
        self._framed = False
        self._failure = None
        self._pieces = []
        self._size = 0
        if len(body) < 16384:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    async def send_more(self, piece: bytes) -> None:
        """Write more of the request's body; waits while the engine is slow to take it. Raises UpstreamFailure when the engine is lost."""
        while self._sending_paused and self._failure is None:
            await self._wait()
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None
        self._transport.write(piece)

    async def first(self) -> None:
        """Wait for status, headers and the first body bytes (or the end). Raises UpstreamFailure."""
        while not (self.status and (self._pieces or self.complete)):
            if self._failure is not None:
                raise self._failure
            await self._wait()

    async def read(self) -> bytes:
        """Body bytes that have arrived; b"" when the answer is over. Raises UpstreamFailure when the engine is lost before that."""
        while not self._pieces:
            if self.complete:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._wait()
        self.resume()
        return self._take()

    async def pipe(self, sink: Callable[[bytes], bool]) -> bytes:
        """Hand every piece but the last to `sink`, which answers whether it can take more; when not, the engine is paused until `resume`.

        Returns the last piece (maybe empty) once the answer is complete. Raises UpstreamFailure when the engine is lost before that.
        """
        self._sink = sink
        try:
            if not self.complete and self._pieces:
                self._flow(sink)
            while not self.complete:
                if self._failure is not None:
                    raise self._failure
                await self._wait()
        finally:
            self._sink = None
        return self._take()

    def resume(self) -> None:
        """The sink can take more again."""
        if self.paused and self._transport is not None and not self.closed:
            self.paused = False
            self._transport.resume_reading()

    def _flow(self, sink: Callable[[bytes], bool]) -> None:
        if not sink(self._take()) and not self.paused and self._transport is not None and not self.closed:
            self.paused = True
            self._transport.pause_reading()

    def _take(self) -> bytes:
        pieces = self._pieces
        self._pieces = []
        self._size = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def abort(self, failure: UpstreamFailure | None = None) -> None:
        """Drop the connection now; whoever waits on it gets `failure`."""
        if self._failure is None:
            self._failure = failure or UpstreamFailure("lost", f"the connection to {self.address} was dropped")
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def close(self) -> None:
        """Close an idle connection."""
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    # ── waking ──

    async def _wait(self) -> None:
        self._waiter = waiter = self._pool.loop.create_future()
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
            with contextlib.suppress(OSError):  # not TCP, so there is nothing to delay
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pause_writing(self) -> None:
        self._sending_paused = True

    def resume_writing(self) -> None:
        self._sending_paused = False
        self._wake()

    def data_received(self, data: bytes) -> None:
        self.received += 1
        if not self.busy or self.complete:
            self.close()  # bytes nobody asked for: this connection's framing is not to be trusted
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.abort(UpstreamFailure("protocol", f"{self.address} sent something that is not HTTP: {error}"))
            return
        if self.complete:
            self._wake()
        elif self._pieces:
            sink = self._sink
            if sink is not None:
                self._flow(sink)
                return
            if self._size > HIGH_WATER and not self.paused and self._transport is not None:
                self.paused = True
                self._transport.pause_reading()
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._pool.forget(self)
        if self.busy and not self.complete:
            if exc is None and self.status and not self._framed:
                self.complete = True  # an answer without length ends with its connection
            elif self._failure is None:
                self._failure = UpstreamFailure("lost", f"{self.address} closed the connection before the answer was complete")
        self._wake()

    # ── httptools callbacks ──

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length" or (name == b"transfer-encoding" and b"chunked" in value.lower()):
            self._framed = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._interim = True
            self.headers = []
            self._framed = False
            return
        self.status = status

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            return
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()


class UpstreamPool:
    """Idle connections by address, and the making of new ones. `clock` gives seconds; only differences matter."""

    def __init__(
        self, clock: Callable[[], float], *, connect_seconds: float = 2.0, idle_seconds: float = 30.0, idle_limit: int = 512
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._clock = clock
        self._connect_seconds = connect_seconds
        self._idle_seconds = idle_seconds
        self._idle_limit = idle_limit
        self._idle: dict[str, list[UpstreamConnection]] = {}
        self.opened = 0

    def take_idle(self, address: str) -> UpstreamConnection | None:
        """The most recently used idle connection to `address`, if any."""
        stack = self._idle.get(address)
        while stack:
            connection = stack.pop()
            if not connection.closed:
                connection.reused = True
                return connection
        return None

    async def connect(self, address: str) -> UpstreamConnection:
        """A new connection. Raises UpstreamFailure (refused, timeout)."""
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await self.loop.create_connection(lambda: UpstreamConnection(self, address), host.strip("[]"), int(port))
        except TimeoutError:
            raise UpstreamFailure("timeout", f"{address} did not accept a connection within {self._connect_seconds:g} s") from None
        except (OSError, ValueError) as error:
            raise UpstreamFailure("refused", f"{address} refused the connection: {error}") from None
        self.opened += 1
        return connection

    def release(self, connection: UpstreamConnection) -> None:
        """Give back a connection whose answer is complete, for reuse if both sides can."""
        if connection.closed or not connection.complete or not connection.keep_alive or connection.half_sent:
            connection.close()
            return
        stack = self._idle.setdefault(connection.address, [])
        if len(stack) >= self._idle_limit:
            connection.close()
            return
        connection.resume()
        connection.busy = False
        connection.idle_since = self._clock()
        stack.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection closed by itself; drop it if it was idle."""
        stack = self._idle.get(connection.address)
        if stack is not None and not connection.busy and connection in stack:
            stack.remove(connection)

    def close_idle(self) -> None:
        """Close connections idle for too long."""
        limit = self._clock() - self._idle_seconds
        for address in list(self._idle):
            stack = self._idle[address]
            fresh = [connection for connection in stack if connection.idle_since > limit]
            stale = [connection for connection in stack if connection.idle_since <= limit]
            if fresh:
                self._idle[address] = fresh
            else:
                del self._idle[address]
            for connection in stale:
                connection.close()

    def close(self) -> None:
        """Close all idle connections."""
        for stack in self._idle.values():
            for connection in list(stack):
                connection.close()
        self._idle.clear()

    async def fetch(self, address: str, path: str, *, seconds: float, limit: int = 4 * 1024 * 1024, headers: bytes = b"") -> bytes:
        """GET a small document from an engine, with these header lines. Raises UpstreamFailure, also for a status other than 200 and for more than
        `limit` bytes."""
        connection = self.take_idle(address) or await self.connect(address)
        try:
            async with asyncio.timeout(seconds):
                connection.send(f"GET {path} HTTP/1.1\r\nhost: {address}\r\n".encode() + headers + b"\r\n", b"")
                await connection.first()
                body = bytearray()
                while piece := await connection.read():
                    body += piece
                    if len(body) > limit:
                        raise UpstreamFailure("protocol", f"{address}{path} answered more than {limit} bytes")
        except TimeoutError:
            raise UpstreamFailure("timeout", f"{address}{path} did not answer within {seconds:g} s") from None
        finally:
            if connection.complete:
                self.release(connection)
            else:
                connection.abort()
        if connection.status != 200:
            raise UpstreamFailure("status", f"{address}{path} answered {connection.status}")
        return bytes(body)
