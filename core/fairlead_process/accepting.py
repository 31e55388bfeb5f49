"""Takes connections at a listening socket for protocols that are not uvicorn's, within the limits of a door.

The event loop's own servers take all that wait in one turn, and count no connection whose TLS handshake is under way.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from fairlead_process.doors import Door, Visitor, backlog_of

HANDSHAKE_SECONDS = 5.0
PAUSE_SECONDS = 0.5
"""Pause after the socket could not be read, for want of files for instance."""

logger = logging.getLogger(__name__)


class VisitingProtocol(Visitor, Protocol):
    """The protocol of a connection that comes in by a door."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""


class BoundedServer:
    """Serves at `listener`: each connection gets a protocol from `make`. Those that the door does not let in get
    `farewell` and are closed. `lost` is called for these, and where a handshake fails; it must leave the door, and a
    protocol must call it when its connection is lost.
    """

    def __init__(
        self,
        listener: socket.socket,
        door: Door,
        make: Callable[[], VisitingProtocol],
        lost: Callable[[Any], None],
        *,
        tls: ssl.SSLContext | None = None,
        farewell: bytes = b"",
    ) -> None:
        self._listener = listener
        self._door = door
        self._make = make
        self._lost = lost
        self._tls = tls
        self._farewell = farewell
        self._loop = asyncio.get_running_loop()
        self._meeting: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        listener.listen(backlog_of(door.most))
        self._accepting = self._loop.create_task(self._accept_forever(), name="accept")

    def close(self) -> None:
        """Take no more connections; those that are there stay."""
        self._accepting.cancel()
        self._listener.close()

    async def _accept_forever(self) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:
                logger.warning("connections cannot be taken now", extra={"error": str(error)})
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            accepted.setblocking(False)
            visitor = self._make()
            if self._door.enter(visitor):
                meeting = self._loop.create_task(self._meet(accepted, visitor))
                self._meeting.add(meeting)
                meeting.add_done_callback(self._meeting.discard)
            else:
                self._refuse(accepted, visitor)

    async def _meet(self, accepted: socket.socket, visitor: VisitingProtocol) -> None:
        seconds = HANDSHAKE_SECONDS if self._tls is not None else None
        made: Any = lambda: visitor  # noqa: E731  # asyncio wants a factory
        try:
            await self._loop.connect_accepted_socket(made, accepted, ssl=self._tls, ssl_handshake_timeout=seconds)
        except OSError:  # it left before its handshake was done, or took too long
            accepted.close()
            self._lost(visitor)

    def _refuse(self, accepted: socket.socket, visitor: VisitingProtocol) -> None:
        self._lost(visitor)
        with suppress(OSError):
            if self._farewell and self._tls is None:
                accepted.send(self._farewell)
        accepted.close()
