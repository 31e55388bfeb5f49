"""A light HTTP/1.1 client, which keeps connections alive and passes on streamed responses as they arrive.

It needs half the CPU time of a general client. That matters because it runs on the same machine as the router that it
measures (docs/decisions/0002-replay-client.md).
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

from fairlead.errors import shown
from fairlead_client.tls import lenient
from fairlead_process.kinds import Address

_ADDRESS = Address("http://127.0.0.1:8000")


class AnswerReader:
    """The receiver of one response. The client sets `status` and `headers`, and passes the bytes of the body to
    `on_piece` as they arrive.
    """

    __slots__ = ("headers", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}

    def on_piece(self, piece: bytes) -> None:
        """Receive the next bytes of the body."""


class ConnectFailed(Exception):
    """Raised when the client cannot connect to the server."""


class ConnectionBroke(Exception):
    """Raised when the connection ends before the response is complete."""


class AnswerMalformed(Exception):
    """Raised when the response is not HTTP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A server to which requests are sent. `path` is prefixed to the path of every request."""

    url: str
    host: str
    port: int
    secure: bool
    path: str

    @property
    def authority(self) -> str:
        """The value of the header `Host`, with the port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @staticmethod
    def parse(url: str) -> "Origin":
        """Return the server with this address, `http(s)://host[:port][/path]`. Raises ValueError with a remedy."""
        try:
            parts = urlsplit(_ADDRESS.parse(url))
        except ValueError:
            raise ValueError(f"{shown(url)} cannot be used; write {_ADDRESS.wanted}") from None
        secure = parts.scheme == "https"
        return Origin(url.rstrip("/"), parts.hostname or "", parts.port or (443 if secure else 80), secure, parts.path.rstrip("/"))


class Connection(asyncio.Protocol):
    """One connection to a server. At most one request at a time is sent over it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._reader: AnswerReader | None = None
        self._done: asyncio.Future[None] | None = None
        self._headers: dict[bytes, bytes] = {}
        self._keep_alive = False
        self.closed = False

    @property
    def reusable(self) -> bool:
        return not self.closed and self._keep_alive and self._done is None

    async def exchange(self, head: bytes, body: bytes, reader: AnswerReader) -> None:
        """Send a request, and return when its response is complete. If the call is cancelled, the connection is closed.

        Raises ConnectionBroke or AnswerMalformed.
        """
        transport = self._transport
        if transport is None or self.closed:
            raise ConnectionBroke("the connection was closed")
        self._keep_alive = False
        self._reader = reader
        self._headers = reader.headers
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        # An empty piece stays in asyncio's write buffer from Python 3.12 on: the transport then spins and never closes.
        transport.writelines((head, body) if body else (head,))
        try:
            await self._done
        finally:
            self._done = self._reader = self._parser = None
            if not self._keep_alive:
                self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # TCP connections have stream transports; uvloop's are not subclasses

    def data_received(self, data: bytes) -> None:
        if self._parser is None:  # bytes nobody asked for: the connection cannot be trusted any more
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(AnswerMalformed(f"the answer is not HTTP: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._end(ConnectionBroke(str(exc) if exc else "the connection was closed before the answer was complete"))

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._reader is not None and self._parser is not None:
            self._reader.status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        if self._reader is not None:
            self._reader.on_piece(piece)

    def on_message_complete(self) -> None:
        if self._parser is not None:
            self._keep_alive = self._parser.should_keep_alive()
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            if error is None:
                self._done.set_result(None)
            else:
                self._done.set_exception(error)


class HttpClient:
    """A client that keeps idle connections to each server, and reuses the most recently used connection first. It does
    not limit the number of connections, because its caller limits the requests in flight.
    """

    def __init__(self) -> None:
        self._idle: dict[Origin, list[Connection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def request(self, origin: Origin, head: bytes, body: bytes, reader: AnswerReader) -> None:
        """Send one request and receive its response. If the server closes a reused connection before it responds, the
        request is sent once more, on a new connection.

        Raises ConnectFailed, ConnectionBroke or AnswerMalformed.
        """
        idle = self._idle.setdefault(origin, [])
        while idle:
            connection = idle.pop()
            if not connection.reusable:
                continue
            try:
                await self._exchange(connection, idle, head, body, reader)
            except ConnectionBroke:
                if reader.status:
                    raise
                break
            return
        await self._exchange(await self._connect(origin), idle, head, body, reader)

    def close(self) -> None:
        """Close all idle connections."""
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()

    async def _exchange(self, connection: Connection, idle: list[Connection], head: bytes, body: bytes, reader: AnswerReader) -> None:
        try:
            await connection.exchange(head, body, reader)
        except asyncio.CancelledError:
            connection.abort()
            raise
        if connection.reusable:
            idle.append(connection)

    async def _connect(self, origin: Origin) -> Connection:
        if origin.secure and self._tls is None:
            self._tls = lenient(ssl.create_default_context())
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, origin.host, origin.port, ssl=self._tls if origin.secure else None
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConnectFailed(f"cannot connect to {origin.url}: {reason}") from None
        return connection
