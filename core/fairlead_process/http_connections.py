"""A client's HTTP connection with limits: of the head, the body, the pauses, and the number of requests before the
client is authenticated.

Uvicorn alone accepts a head of any length for any time, a body that never ends, and responses that nobody reads.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fairlead_process.accepting import BoundedServer
from fairlead_process.doors import IDLE_SECONDS, STRANGER_SECONDS, Door

MOST_BYTES = 64 * 1024
"""Maximum number of bytes of the request line and the headers together; one read may exceed it."""
MOST_SECONDS = 30.0
"""Seconds from the connection's start, or from a later request's first byte, within which the headers must be
complete.
"""

BODY_SECONDS = 30.0
BODY_BYTES = 64 * 1024
"""Least number of bytes of a body that must arrive in each period of `BODY_SECONDS` until the body is complete. A
login's body is smaller, so it must be complete after one period. A large upload may take long.
"""

UNREAD_SECONDS = 75.0
"""Seconds after which a client that reads nothing of its response is dropped."""
CLOSING_SECONDS = 5.0
"""Seconds that a closing connection may take to send its remaining bytes."""

MOST_PIPELINED = 32
"""Maximum number of requests that wait for the responses to earlier requests."""

KEEP_ALIVE_SECONDS = 75.0


class HttpServer(uvicorn.Server):
    """Uvicorn with connections admitted by `door`. A connection beyond the door's limit gets the bytes that `farewell`
    returns. `tls` returns the TLS context of a new connection.
    """

    def __init__(
        self, config: uvicorn.Config, door: Door, farewell: Callable[[], bytes], tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        super().__init__(config)
        self._door = door
        self._farewell = farewell
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for listener in sockets or ():
            server = BoundedServer(listener, self._door, self._connection, self._door.leave, self._farewell, self._tls)
            self.servers.append(server)  # type: ignore[arg-type]  # it is closed like one of asyncio's

    def _connection(self) -> Any:
        made: Any = self.config.http_protocol_class
        return made(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


def http_config(app: Any, door: Door, **more: Any) -> uvicorn.Config:
    """Return uvicorn's configuration for an app whose clients are admitted by `door`; `more` are further arguments."""
    bounded = type("BoundedAtDoor", (BoundedConnection,), {"door": door})
    return uvicorn.Config(
        app,
        **{
            "http": bounded,
            "log_config": None,
            "access_log": False,
            "server_header": False,
            "timeout_keep_alive": KEEP_ALIVE_SECONDS,
            **more,
        },
    )


def http_server(app: Any, door: Door, **more: Any) -> HttpServer:
    """Return a server of an app, with the configuration of `http_config`."""
    words = refusal(503, f"{door.most} connections are open at this port already; try again", retry=True)
    return HttpServer(http_config(app, door, **more), door, lambda: words)


class _BesideServer(HttpServer):
    """A server without signal handlers, because the process's main server handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving_beside(
    app: Any, listener: socket.socket, door: Door, name: str, tls: Callable[[], ssl.SSLContext] | None = None
) -> AsyncIterator[uvicorn.Server]:
    """Serve an app on `listener` while the block runs, in addition to the process's main server. If `tls` asks clients
    for certificates, a request's `state["client_certificate"]` is the client's verified certificate.
    """
    made = type("BesideAtDoor", (_Certified,), {"door": door})
    config = http_config(app, door, http=made, ws="none", lifespan="off", timeout_graceful_shutdown=1)
    words = refusal(503, f"{door.most} connections are open at this port already; try again", retry=True)
    server = _BesideServer(config, door, lambda: words, tls)
    task = asyncio.create_task(server.serve(sockets=[listener]), name=name)
    try:
        yield server
    finally:
        server.should_exit = True
        await task


class TooManyWaiting(Exception):
    """Raised if a client sent more requests than may wait for the responses to earlier requests."""


class BoundedConnection(HttpToolsProtocol):
    """Uvicorn's connection, within the limits of this module."""

    door = Door(2**31)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head = True
        self._head_bytes = 0
        self._body_bytes = 0
        self._has_asked = False
        self._waiting_since = self.loop.time()
        self._answered: RequestResponseCycle | None = None
        """The request whose response is being sent; `cycle` is the request that arrived last."""
        self._overdue: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        self._watch(MOST_SECONDS, self._head_overdue)

    # ── its door ──

    def may_go(self) -> bool:
        """Return whether the connection has been idle for long enough to be closed in favour of another connection."""
        if self.transport is None or self._is_asking():
            return False
        is_idle = self._has_asked and self._in_head and not self._head_bytes
        return self.loop.time() - self._waiting_since >= (IDLE_SECONDS if is_idle else STRANGER_SECONDS)

    def turn_away(self) -> None:
        """Close the connection in favour of another connection."""
        if self._in_head and self._head_bytes:
            self._refuse(503, "this port is full, and your request did not arrive; try again", retry=True)
        else:
            self._close()

    def _is_asking(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # ── what arrives ──

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._overdue is None:
                self._waiting_since = self.loop.time()
                self._watch(MOST_SECONDS, self._head_overdue)
        super().data_received(data)
        if self._in_head and self._head_bytes > MOST_BYTES:
            self._refuse(431, f"the headers are larger than {MOST_BYTES} bytes")

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            raise TooManyWaiting  # it ends the parser, which would make a request of each of thousands in one read
        self._in_head, self._head_bytes, self._body_bytes = False, 0, 0
        self._has_asked = True
        self._watch(BODY_SECONDS, self._look_at_body)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._forget()
        super().on_message_complete()
        self._in_head = True

    def on_response_complete(self) -> None:
        self._waiting_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._drop_later()

    # ── time ──

    def _head_overdue(self) -> None:
        self._overdue = None
        if self._is_asking():
            self._watch(MOST_SECONDS, self._head_overdue)  # first what is being answered
        elif self._head_bytes:
            self._refuse(408, f"the headers did not arrive within {MOST_SECONDS:g} s")
        else:
            self._close()

    def _look_at_body(self) -> None:
        self._overdue = None
        held_back = self.flow.read_paused and self.cycle is not None and len(self.cycle.body) > HIGH_WATER_LIMIT
        if self._body_bytes < BODY_BYTES and not held_back and not self.pipeline:
            self._refuse(408, f"too little of the body arrived within {BODY_SECONDS:g} s")
            return
        self._body_bytes = 0
        self._watch(BODY_SECONDS, self._look_at_body)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(UNREAD_SECONDS, self._look_at_unread, self.transport.get_write_buffer_size())

    def _look_at_unread(self, before: int) -> None:
        self._unread = None
        now = self.transport.get_write_buffer_size()
        if self.flow.write_paused and now >= before:
            self.transport.abort()
        elif self.flow.write_paused:
            self._unread = self.loop.call_later(UNREAD_SECONDS, self._look_at_unread, now)

    def _watch(self, seconds: float, overdue: Callable[[], None]) -> None:
        self._forget()
        self._overdue = self.loop.call_later(seconds, overdue)

    def _forget(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    # ── the end ──

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _refuse(self, status: int, why: str, *, retry: bool = False) -> None:
        """Send a refusal and close the connection. No refusal is sent if the client would read its bytes as part of
        another response.
        """
        if self._may_answer():
            self.transport.write(refusal(status, why, retry=retry))
        self._tell_apps()
        self._close()

    def _tell_apps(self) -> None:
        """Notify the apps of all unfinished requests that their client is gone; uvicorn notifies only the app of the
        last request.
        """
        for cycle in (self.cycle, self._answered):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _may_answer(self) -> bool:
        if self.transport.is_closing() or self.pipeline:
            return False
        return not self._is_asking() if self._in_head else self.cycle is None or not self.cycle.response_started

    def _close(self) -> None:
        self._forget()
        self.pipeline.clear()
        if not self.transport.is_closing():  # a TLS transport that is closed twice forgets its state on Python 3.11
            self.transport.close()
        self._drop_later()

    def _drop_later(self) -> None:
        """Drop the connection after a while. Closing it waits until everything is sent, so a client that reads nothing
        would keep the connection open permanently.
        """
        if self.transport.get_write_buffer_size():
            self.loop.call_later(CLOSING_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.leave(self)
        self._forget()
        if self._unread is not None:
            self._unread.cancel()
        self._tell_apps()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()


class _Certified(BoundedConnection):
    """Wraps an app: to each request, it adds the client's certificate in the form of `ssl.SSLSocket.getpeercert`, or
    None if the client showed no certificate.
    """

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["client_certificate"] = self.transport.get_extra_info("peercert") or None


_PHRASES = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}


def refusal(status: int, why: str, *, retry: bool = False) -> bytes:
    """Return a whole response in plain text, after which the connection ends."""
    body = why.encode()
    again = b"retry-after: 1\r\n" if retry else b""
    head = b"HTTP/1.1 %d %s\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % (status, _PHRASES[status], len(body))
    return head + again + b"connection: close\r\n\r\n" + body
