"""Limits the size and duration of a request's head before its sender is known; uvicorn itself has no limits for it."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_BYTES = 64 * 1024
"""Maximum number of bytes of the request line and the headers together; one read may exceed it."""
MOST_SECONDS = 30.0
"""Seconds from the connection, or from a later request's first byte, until the headers are complete."""


class BoundedHeads(HttpToolsProtocol):
    """Uvicorn's connection, which ends when a head is too large or takes too long."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head = True
        self._head_bytes = 0
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            self._await_head()
        super().data_received(data)
        if self._in_head and self._head_bytes > MOST_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The headers are larger than {MOST_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._forget()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._overdue is None:
            self._overdue = self.loop.call_later(MOST_SECONDS, self.transport.close)

    def _forget(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
