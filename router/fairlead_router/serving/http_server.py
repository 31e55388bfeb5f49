"""The HTTP server of the gateway: its sockets, its maximum number of connections, and its drain after a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from fairlead_process.accepting import BoundedServer
from fairlead_process.http_connections import HttpServer
from fairlead_router.serving.client_connections import ClientConnection, ConnectionLimits

LINGER_SECONDS = 1.0
"""Seconds for which idle connections stay open when the router stops, because their clients may be sending a request.
"""

LOOK_SECONDS = 0.05

UNREAD_TICKS = 50
"""Number of ticks of uvicorn (0.1 s each) between two checks for clients that do not read their responses."""


class GatewayServer(HttpServer):
    """Uvicorn's server, except that the first signal only calls `on_signal`, which drains the router. The server stops
    when `should_exit` is set.

    A second signal stops the server at once.
    """

    def __init__(self, config: uvicorn.Config, loop: asyncio.AbstractEventLoop, on_signal: Callable[[], None]) -> None:
        limits = config.http.limits  # type: ignore[union-attr]  # of `server_config`
        super().__init__(config, limits.door, limits.farewell)
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

    async def on_tick(self, counter: int) -> bool:
        if counter % UNREAD_TICKS == 0:
            for connection in self._clients():
                connection.drop_if_unread()
        return await super().on_tick(counter)

    async def let_clients_go(self, seconds: float) -> None:
        """Stop listening. Return when no client is connected, or after `seconds`.

        Connected clients are still served, but each connection must end after its next response
        (`ConnectionLimits.is_ending`). If several processes share the port, the other processes get all new
        connections.
        """
        await self._stop_listening()
        for connection in self._clients():
            connection.end_with_answer()
        stops_lingering, ends = self._loop.time() + LINGER_SECONDS, self._loop.time() + seconds
        while self.server_state.connections and self._loop.time() < ends:
            await asyncio.sleep(LOOK_SECONDS)
            if self._loop.time() >= stops_lingering:
                for connection in self._clients():
                    connection.close_if_idle()

    async def _stop_listening(self) -> None:
        """Accept the connections that wait in the listening socket's queue, and close the socket, which would reset
        them otherwise.
        """
        for server in self.servers:
            assert isinstance(server, BoundedServer)
            await server.take_waiting()
            server.close()

    def _clients(self) -> list[ClientConnection]:
        return [connection for connection in self.server_state.connections if isinstance(connection, ClientConnection)]


def server_config(app: Any, limits: ConnectionLimits) -> uvicorn.Config:
    """Return the uvicorn configuration of a gateway."""
    return uvicorn.Config(
        app,
        http=type("LimitedClientConnection", (ClientConnection,), {"limits": limits}),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.keep_alive_seconds,  # type: ignore[arg-type]  # it is only ever given to call_later
        timeout_graceful_shutdown=1,
    )
