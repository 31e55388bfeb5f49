"""Accepts the connections that wait at a listening socket, within the limits of a door.

The event loop's own servers accept all waiting connections in one turn, whatever number of files that needs. They also
do not count a connection during its TLS handshake.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from fairlead_process.doors import Door, Visitor

BACKLOG = 2048
"""Maximum number of connections that wait at a socket."""
MOST_A_TURN = 16
"""Maximum number of connections accepted before other tasks run; this many files may be open in addition to the files
that the door counts.
"""
HANDSHAKE_SECONDS = 5.0
PAUSE_SECONDS = 0.5
"""Pause in seconds after no connection could be accepted, for example because file descriptors are missing."""

logger = logging.getLogger(__name__)


class VisitingProtocol(Visitor, Protocol):
    """The protocol of a connection that a door admits: it can be asked to close in favour of another connection."""

    def connection_made(self, transport: Any) -> None:
        """Handle a new connection; see asyncio."""


class BoundedServer:
    """A server at `listener`: each connection gets a protocol from `make`.

    A connection that the door does not admit gets the bytes that `farewell` returns, and is closed. The server calls
    `lost` for such a connection and after a failed handshake; `lost` must remove the connection from the door, and a
    protocol must do the same when its connection is lost. `tls` returns the TLS context of each new connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        door: Door,
        make: Callable[[], VisitingProtocol],
        lost: Callable[[Any], None],
        farewell: Callable[[], bytes],
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.sockets = [listener]
        self._listener = listener
        self._door = door
        self._make = make
        self._lost = lost
        self._farewell = farewell
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._meeting: set[asyncio.Task[None]] = set()
        self._is_closed = False
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._listen()

    def close(self) -> None:
        """Stop accepting connections; open connections stay open."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()

    async def take_waiting(self) -> None:
        """Accept all connections that wait at the socket. If the socket were closed first, they would be reset."""
        while self._take_some():  # noqa: ASYNC110  # nothing is awaited: others have their turns
            await asyncio.sleep(0)
        if self._meeting:
            await asyncio.wait(self._meeting)

    async def wait_closed(self) -> None:
        """Return at once. In this method, asyncio's own server would wait until its connections are closed."""

    def _listen(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listener.fileno(), self._take_some)

    def _take_some(self) -> bool:
        """Accept some connections; return whether more may wait."""
        for _ in range(MOST_A_TURN):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return False
            except OSError as error:
                logger.warning("connections cannot be taken now", extra={"error": str(error)})
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(PAUSE_SECONDS, self._listen)
                return False
            self._admit(accepted)
        return True

    def _admit(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        visitor = self._make()
        if not self._door.enter(visitor):
            self._refuse(accepted, visitor)
            return
        meeting = self._loop.create_task(self._meet(accepted, visitor))
        self._meeting.add(meeting)
        meeting.add_done_callback(self._meeting.discard)

    async def _meet(self, accepted: socket.socket, visitor: VisitingProtocol) -> None:
        tls, seconds = (None, None) if self._tls is None else (self._tls(), HANDSHAKE_SECONDS)
        made: Any = lambda: visitor  # noqa: E731  # asyncio wants a factory
        try:
            await self._loop.connect_accepted_socket(made, accepted, ssl=tls, ssl_handshake_timeout=seconds)
        except OSError:  # it left before its handshake was done, or took too long
            accepted.close()
            self._lost(visitor)

    def _refuse(self, accepted: socket.socket, visitor: VisitingProtocol) -> None:
        self._lost(visitor)
        words = self._farewell()
        with suppress(OSError):
            if self._tls is None:
                accepted.send(words)
        accepted.close()
