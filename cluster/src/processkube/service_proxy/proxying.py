"""Passes TCP connections on to the pods of Services, to one pod after the other."""

import asyncio
import logging
from collections.abc import Collection

from processkube.service_endpoints import Listener

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
PIECE_BYTES = 64 * 1024

Place = tuple[str, int]


class _Door:
    """One listening socket. Its targets may change while it listens; open connections keep the target that they
    have.
    """

    def __init__(self, targets: tuple[Place, ...]) -> None:
        self.targets = targets
        self.server: asyncio.Server | None = None
        self._turn = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client to the next target, and pass data on until both directions have ended."""
        try:
            self._turn += 1
            host, port = self.targets[self._turn % len(self.targets)]
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    inner_reader, inner_writer = await asyncio.open_connection(host, port)
            except (OSError, TimeoutError) as problem:
                log.info("a pod accepts no connection", extra={"target": f"{host}:{port}", "error": str(problem)})
                return
            try:
                await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
            finally:
                inner_writer.close()
        except (OSError, asyncio.CancelledError) as problem:
            log.debug("a connection ended", extra={"error": str(problem)})
        finally:
            writer.close()


class Proxy:
    """The listening sockets of all Services."""

    def __init__(self) -> None:
        self._doors: dict[Place, _Door] = {}

    async def serve(self, wanted: Collection[Listener]) -> frozenset[Place]:
        """Listen at the addresses and ports of `wanted`, and nowhere else. Return the addresses and ports at which
        listening failed.

        A Service without pods gets no socket, so that its clients are refused as in a cluster.
        """
        refused = set()
        targets = {(one.address, one.port): one.targets for one in wanted if one.targets}
        for place in [place for place in self._doors if place not in targets]:
            door = self._doors.pop(place)
            if door.server is not None:
                door.server.close()
        for place, found in targets.items():
            if place in self._doors:
                self._doors[place].targets = found
                continue
            door = _Door(found)
            try:
                door.server = await asyncio.start_server(door.accept, *place)
            except OSError as problem:
                log.warning("a Service cannot be served", extra={"place": f"{place[0]}:{place[1]}", "error": str(problem)})
                refused.add(place)
                continue
            self._doors[place] = door
        return frozenset(refused)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all data, and then the end of the stream. The other direction may stay open."""
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
