"""Keeps idle connections to engines and opens new ones."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from fairlead.addresses import host_of
from fairlead_router.engines.loop_time import LoopTime
from fairlead_router.engines.upstream_connections import BeyondBounds, UpstreamConnection, UpstreamFailure


class UpstreamPool:
    """The idle connections to engines, by address. It also opens new connections. `clock` returns seconds from any
    start.
    """

    def __init__(
        self, clock: Callable[[], float], *, connect_seconds: float = 2.0, idle_seconds: float = 30.0, idle_limit: int = 512
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._connect_seconds = connect_seconds
        self._idle_seconds = idle_seconds
        self._idle_limit = idle_limit
        self._idle: dict[str, list[UpstreamConnection]] = {}
        self.opened = 0
        self.time = LoopTime()

    def take_idle(self, address: str) -> UpstreamConnection | None:
        """Remove and return the most recently used idle connection to `address`; None if there is none."""
        stack = self._idle.get(address)
        while stack:
            connection = stack.pop()
            if not connection.closed:
                connection.reused = True
                return connection
        return None

    async def connect(self, address: str, seconds: float = math.inf) -> UpstreamConnection:
        """Open a connection within `seconds`, or within the general connect timeout if that is shorter.

        Raises UpstreamFailure of kind `refused`, of kind `deadline` if `seconds` have passed, or of kind `unreachable`
        if the general timeout has passed.
        """
        host, port = host_of(address), address.rpartition(":")[2]
        limit = min(self._connect_seconds, seconds)
        try:
            async with asyncio.timeout(limit):
                _, connection = await self._loop.create_connection(
                    lambda: UpstreamConnection(self._loop, address, self._forget, self.time), host, int(port)
                )
        except TimeoutError:
            kind = "deadline" if limit < self._connect_seconds else "unreachable"
            raise UpstreamFailure(kind, f"did not accept a connection within {limit:.3g} s", at=address) from None
        except (OSError, ValueError) as error:
            why = error if isinstance(error, OSError) else "it is not a host and port"  # Python's words for such a name differ by version
            raise UpstreamFailure("refused", "refused the connection", at=address, detail=str(why)) from None
        self.opened += 1
        return connection

    def release(self, connection: UpstreamConnection) -> None:
        """Take back a connection after its response, and keep it for reuse if the response is complete and both sides
        allow reuse. Otherwise close it.
        """
        if connection.closed or not connection.complete or not connection.keep_alive or connection.half_sent:
            connection.close()
            return
        stack = self._idle.setdefault(connection.address, [])
        if len(stack) >= self._idle_limit:
            connection.close()
            return
        if connection.paused:
            connection.resume()
        connection.busy = False
        connection.idle_since = self._clock()
        stack.append(connection)

    def _forget(self, connection: UpstreamConnection) -> None:
        """Forget a closed connection if it was idle."""
        stack = self._idle.get(connection.address)
        if stack is not None and not connection.busy and connection in stack:
            stack.remove(connection)

    def close_idle(self) -> None:
        """Close the connections that have been idle for too long."""
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
        self.time.forget()

    def close(self) -> None:
        """Close all idle connections."""
        for stack in self._idle.values():
            for connection in list(stack):
                connection.close()
        self._idle.clear()

    async def fetch(
        self, address: str, path: str, *, seconds: float, limit: int = 4 * 1024 * 1024, headers: bytes = b"", body: bytes | None = None
    ) -> bytes:
        """Return the response body of a small GET request to an engine, with these header lines. With a JSON `body`,
        POST that body instead.

        Raises UpstreamFailure, also for a status other than 200. Raises BeyondBounds for a response of more than
        `limit` bytes.
        """
        connection = self.take_idle(address) or await self.connect(address)
        try:
            async with asyncio.timeout(seconds):
                if body is not None:
                    headers += b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
                method = "GET" if body is None else "POST"
                connection.send(f"{method} {path} HTTP/1.1\r\nhost: {address}\r\n".encode() + headers + b"\r\n", body or b"")
                await connection.first()
                answer = bytearray()
                while piece := await connection.read():
                    answer += piece
                    if len(answer) > limit:
                        raise BeyondBounds(f"answered {path[:100]} with more than {limit} bytes", at=address)
        except TimeoutError:
            raise UpstreamFailure("timeout", f"did not answer within {seconds:g} s", at=f"{address}{path}") from None
        finally:
            if connection.complete:
                self.release(connection)
            else:
                connection.abort()
        if connection.status != 200:
            raise UpstreamFailure("status", f"answered {connection.status}", connection.status, at=f"{address}{path}")
        return bytes(answer)
