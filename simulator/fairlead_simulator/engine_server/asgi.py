"""The few ASGI types that this server uses, and access to the connections behind them."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Connections = dict[tuple[str, int], asyncio.Transport]
"""Open connections, by the client's address and port."""

JSON = b"application/json"


class ClientGone(Exception):
    """Raised when the client closes the connection before its request body is complete."""


class BodyTooLarge(Exception):
    """Raised when the request body exceeds the server's limit."""


def protocol_that_keeps(connections: Connections) -> type[HttpToolsProtocol]:
    """Return an HTTP protocol class that records its open connections in `connections`, so that an injected failure can
    cut a connection without a response.
    """

    class RecordingProtocol(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # narrowed by uvicorn in the same way
            super().connection_made(transport)
            self._peer: tuple[str, int] = tuple(transport.get_extra_info("peername")[:2])
            connections[self._peer] = transport

        def connection_lost(self, exc: Exception | None) -> None:
            connections.pop(self._peer, None)
            super().connection_lost(exc)

    return RecordingProtocol


async def read_body(receive: Receive, limit_bytes: int) -> bytes:
    """Read the whole request body. Raises BodyTooLarge or ClientGone."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            raise BodyTooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def answer(
    send: Send, status: int, body: bytes, content_type: bytes | None = JSON, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a complete response. `content_type` may be None if the response has no body."""
    fixed = [(b"content-length", str(len(body)).encode("ascii"))]
    if content_type is not None:
        fixed.append((b"content-type", content_type))
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})
