"""The HTTP server around the gateway: uvicorn's httptools protocol with a header limit and word of clients that leave, and a server that drains."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairlead.errors import InvalidInput
from fairlead_router.refusals import BadRequest

MAX_HEADER_BYTES = 64 * 1024


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


STATUS_LINES = {status: _status_line(status) for status in range(100, 1000)}

logger = logging.getLogger("fairlead.router.serving")


class _HeadersTooLarge(Exception):
    """More header bytes than allowed."""


class ClientConnection(HttpToolsProtocol):
    """One client's connection. Limits request line and headers to `max_header_bytes` together, answers parse errors in OpenAI's form, and tells
    whoever watches when the client leaves."""

    max_header_bytes = MAX_HEADER_BYTES

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head = True
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._too_large = False
        self._gone: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None
        self._head = b""
        self._chunked = False

    # ── the ASGI extension `fairlead.client` ──

    def watch(self, gone: Callable[[], None]) -> None:
        self._gone = gone
        self.flow.resume_reading()  # a large body's last piece leaves reading paused, and a paused connection does not notice its end

    def unwatch(self) -> None:
        self._gone = None
        self._writable = None

    # Answers written past ASGI's `send`, which would check and copy every header again and could not be called from an engine's callback.

    def begin(self, status: int, headers: bytes, length: int | None) -> None:
        """Status and headers (complete lines) of an answer; they leave with its first bytes. Without `length` the body is chunked."""
        cycle = self.cycle
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        lines = [STATUS_LINES[status], *(b"%s: %s\r\n" % pair for pair in self.server_state.default_headers), headers]
        if length is not None:
            lines.append(b"content-length: %d\r\n" % length)
        elif self.scope["http_version"] == "1.0":
            cycle.keep_alive = False  # HTTP/1.0 knows no chunks: the body ends with the connection
        else:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        self._chunked = length is None and self.scope["http_version"] != "1.0"

    def write(self, piece: bytes) -> bool:
        """Pass on a piece now. False: the client is slow, wait until `on_writable` is called."""
        if self.cycle.disconnected:
            return True
        head, self._head = self._head, b""
        self.transport.write(b"%s%x\r\n%s\r\n" % (head, len(piece), piece) if self._chunked else head + piece)
        return not self.flow.write_paused

    def end(self, piece: bytes) -> None:
        """The last piece (maybe empty); the answer is complete."""
        cycle = self.cycle
        if cycle.disconnected:
            return
        head, self._head = self._head, b""
        if self._chunked:
            self.transport.write(b"%s%x\r\n%s\r\n0\r\n\r\n" % (head, len(piece), piece) if piece else head + b"0\r\n\r\n")
        else:
            self.transport.write(head + piece)
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def on_writable(self, resume: Callable[[], None]) -> None:
        """Call `resume` each time the client has caught up."""
        self._writable = resume

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writable is not None:
            self._writable()

    # ── limits ──

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > self.max_header_bytes and b"\r\n\r\n" not in data[: self.max_header_bytes]:
                self._refuse_headers()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()
        self.scope["extensions"] = {"fairlead.client": self}  # type: ignore[dict-item]  # uvicorn types values as mappings

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unparsed_bytes = 0
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.max_header_bytes:
            self._too_large = True
            raise _HeadersTooLarge

    def send_400_response(self, msg: str) -> None:
        if self._too_large:
            self._refuse_headers()
        else:
            self._answer(BadRequest(400, "invalid_http", "the request is not valid HTTP"))

    def _refuse_headers(self) -> None:
        limit = self.max_header_bytes
        self._answer(BadRequest(431, "headers_too_large", f"request line and headers are larger than {limit} bytes; send shorter ones"))

    def _answer(self, problem: BadRequest) -> None:
        """Answer outside ASGI: there is no parsed request to answer. An answer in progress on this connection is cut instead."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            answer = problem.answer(close=True)
            lines = b"".join(b"%s: %s\r\n" % pair for pair in answer.headers)
            self.transport.write(b"%s%s\r\n%s" % (STATUS_LINES[answer.status], lines, answer.body))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()


class GatewayServer(uvicorn.Server):
    """Uvicorn, but the first signal only asks `on_signal` to drain; the server stops when `should_exit` is set. A second signal stops at once."""

    def __init__(self, config: uvicorn.Config, loop: asyncio.AbstractEventLoop, on_signal: Callable[[], None]) -> None:
        super().__init__(config)
        self._loop = loop
        self._on_signal = on_signal
        self._asked = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._asked:
            self.should_exit = True
            self.force_exit = True
            return
        self._asked = True
        self._loop.call_soon_threadsafe(self._on_signal)


def bind(host: str, port: int, *, reuse: bool) -> socket.socket:
    """A listening-ready TCP socket. Raises InvalidInput naming host and port when it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(
            "--host/--port", f"{host}:{port}", f"choose an address this machine has and a port that is free ({reason})"
        ) from None
    listener.setblocking(False)
    return listener


def server_config(app: Any, *, max_header_bytes: int = MAX_HEADER_BYTES) -> uvicorn.Config:
    """The uvicorn configuration of a gateway."""
    protocol = type("LimitedClientConnection", (ClientConnection,), {"max_header_bytes": max_header_bytes})
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        backlog=4096,
    )
