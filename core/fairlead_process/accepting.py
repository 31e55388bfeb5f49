"""Takes the connections that wait at a listening socket, within the limits of a door.

The event loop's own servers take in one turn all that wait, however many files that needs, and do not count
a connection during its TLS handshake.
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
"""Connections that may wait at a socket."""
MOST_A_TURN = 16
"""Connections taken before other tasks run; this many files may be open beyond those that the door counts."""
HANDSHAKE_SECONDS = 5.0
PAUSE_SECONDS = 0.5
"""Pause after no connection could be taken, for example because file descriptors are missing."""

logger = logging.getLogger(__name__)


class VisitingProtocol(Visitor, Protocol):
    """The protocol of a connection that comes in by a door."""

    def connection_made(self, transport: Any) -> None:
        """See asyncio."""


class BoundedServer:
    """Serves at `listener`: each connection gets a protocol from `make`. Those that the door does not let in get what
    `farewell` returns, and are closed. `lost` is called for these, and where a handshake fails; it must leave the door,
    and a protocol must call it when its connection is lost. Each connection's TLS is what `tls` returns then.
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
        """Take no more connections; those that are there stay."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()

    async def take_waiting(self) -> None:
        """Take all connections that wait at the socket, which closing it would reset."""
        while self._take_some():  # noqa: ASYNC110  # nothing is awaited: others have their turns
            await asyncio.sleep(0)
        if self._meeting:
            await asyncio.wait(self._meeting)

    async def wait_closed(self) -> None:
        """As that of asyncio's servers: it does not wait for the connections."""

    def _listen(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listener.fileno(), self._take_some)

    def _take_some(self) -> bool:
        """Returns whether more may wait."""
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
