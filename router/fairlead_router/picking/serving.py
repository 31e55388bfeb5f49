"""The picker's ports, with or without TLS: one for the streams of proxies and for health checks, and one for health
checks only.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairlead_process.accepting import BoundedServer
from fairlead_process.certificates import Certificate
from fairlead_process.doors import Door
from fairlead_process.grpc_server import http2
from fairlead_process.grpc_server.grpc_connection import GrpcConnection
from fairlead_process.grpc_server.grpc_stream import GrpcStream, Listener
from fairlead_process.starting import bind
from fairlead_router.limits import PICKER, PICKER_HEALTH
from fairlead_router.picking.picker import Picker
from fairlead_router.picking.streams import HEALTH_CHECK, HEALTH_WATCH, PROCESS, HealthStream, PickerStream
from fairlead_router.settings import RouterSettings, Timeouts

FRAMING_BYTES = 64 * 1024
"""Number of bytes by which a gRPC message may exceed the largest allowed body."""

MOST_STREAMS = 16_384
"""Maximum number of requests over all connections. Further requests are refused before they are read, so that proxies
try them again.
"""
MOST_HEALTH_STREAMS = 256
"""Maximum number of simultaneous health checks, including watches."""

FAREWELL = http2.settings({}) + http2.goaway(0, http2.NO_ERROR, b"too many connections; try again")
"""The HTTP/2 frames with which a connection is refused when the port has its maximum number of connections."""

logger = logging.getLogger(__name__)


class PickerServer:
    """All streams of the picker. `ready`: returns whether the router accepts requests. `now`: the router's clock.
    `doors`: limit the connections of each port.
    """

    def __init__(
        self,
        picker: Picker,
        ready: Callable[[], bool],
        timeouts: Timeouts,
        now: Callable[[], float],
        doors: Mapping[str, Door] | None = None,
    ) -> None:
        self._doors = doors or {}
        self._picker = picker
        self._ready = ready
        self._timeouts = timeouts
        self._now = now
        self._servers: list[BoundedServer] = []
        self._connections: set[GrpcConnection] = set()
        self._streams: set[PickerStream] = set()
        self._health: set[HealthStream] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tls: Certificate | None = None

    @property
    def active(self) -> int:
        """Number of requests whose streams are open."""
        return len(self._streams)

    async def listen(self, listener: socket.socket, *, health_only: bool = False, tls: Certificate | None = None) -> None:
        """Serve at a bound socket until `close`. `tls`: the certificate, which is reloaded after a change; None =
        without TLS.
        """
        opener = self.open_health_check if health_only else self.open
        plan = PICKER_HEALTH if health_only else PICKER
        door = self._doors.get(plan.name, Door(plan.wanted))
        largest = self._picker.most_bytes + FRAMING_BYTES

        def lost(connection: GrpcConnection) -> None:
            self._connections.discard(connection)
            door.leave(connection)

        def connection() -> GrpcConnection:
            made = GrpcConnection(opener, largest, lost, self._is_full, self._picker.body_memory)
            self._connections.add(made)
            return made

        self._tls = tls or self._tls
        context = None if tls is None else tls.context
        self._servers.append(BoundedServer(listener, door, connection, lost, lambda: FAREWELL, context))

    def _is_full(self) -> bool:
        return len(self._streams) >= MOST_STREAMS

    def open(self, stream: GrpcStream) -> Listener | None:
        """Return the handler for the path of a new stream; None if there is no handler for the path."""
        if stream.path == PROCESS:
            made = PickerStream(stream, self._picker, self._leave)
            self._streams.add(made)
            self._idle.clear()
            return made
        return self.open_health_check(stream)

    def open_health_check(self, stream: GrpcStream) -> Listener | None:
        """Return the handler of a health check. None for any other path, or if there are too many health checks."""
        if stream.path not in (HEALTH_CHECK, HEALTH_WATCH) or len(self._health) >= MOST_HEALTH_STREAMS:
            return None
        made = HealthStream(stream, self._ready, self._health.discard, watching=stream.path == HEALTH_WATCH)
        self._health.add(made)
        return made

    def _leave(self, stream: PickerStream) -> None:
        self._streams.discard(stream)
        if not self._streams:
            self._idle.set()

    def sweep(self) -> None:
        """End streams that exceed their time, send changes to the watchers of health, and reload a changed certificate.
        Runs a few times a second.
        """
        now = self._now()
        if self._tls is not None:
            self._tls.look(now)
        for stream in tuple(self._streams):
            stream.sweep(now, self._timeouts.body, self._timeouts.total)
        for health in tuple(self._health):
            health.look()

    async def drain(self, seconds: float) -> None:
        """Accept no further streams, and wait for the open streams for at most this many seconds."""
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.leave()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return

    def close(self) -> None:
        """End all streams and close the ports."""
        for server in self._servers:
            server.close()
        for stream in tuple(self._streams):
            stream.break_off()
        for connection in tuple(self._connections):
            connection.close()


@dataclass(frozen=True, slots=True)
class PickerListeners:
    """The picker's bound sockets. The socket of a port that the settings do not configure is None."""

    picker: socket.socket | None
    health: socket.socket | None
    tls: Certificate | None

    @staticmethod
    def bind(settings: RouterSettings, host: str, *, shared: bool) -> PickerListeners:
        """Bind the sockets that the settings configure. Raises InvalidInput."""
        tls = None
        if settings.picker_tls_cert_file is not None and settings.picker_tls_key_file is not None:
            variables = "FAIRLEAD_PICKER_TLS_CERT_FILE, FAIRLEAD_PICKER_TLS_KEY_FILE"
            tls = Certificate(settings.picker_tls_cert_file, settings.picker_tls_key_file, variables, ["h2"])
        port, health_port = settings.picker_port, settings.picker_health_port
        return PickerListeners(
            None if port is None else bind("FAIRLEAD_PICKER_PORT", host, port, shared=shared),
            None if health_port is None else bind("FAIRLEAD_PICKER_HEALTH_PORT", host, health_port, shared=shared),
            tls,
        )

    async def serve(self, server: PickerServer) -> None:
        """Make the server accept connections at these sockets."""
        if self.picker is not None:
            await server.listen(self.picker, tls=self.tls)
            host, port = self.picker.getsockname()[:2]
            logger.info("picking endpoints for proxies", extra={"host": host, "port": port, "tls": self.tls is not None})
        if self.health is not None:
            await server.listen(self.health, health_only=True)
