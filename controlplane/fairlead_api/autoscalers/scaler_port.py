"""Serves KEDA's calls to the external scaler: the streams of the calls, and the port that accepts them."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fairlead_api.autoscalers import keda
from fairlead_api.autoscalers.figures import FiguresUnknown, LatestFigures
from fairlead_process.accepting import BoundedServer
from fairlead_process.certificates import Certificate
from fairlead_process.doors import Door
from fairlead_process.grpc_server import http2
from fairlead_process.grpc_server.grpc_connection import GrpcConnection
from fairlead_process.grpc_server.grpc_stream import INVALID_ARGUMENT, OK, UNAVAILABLE, GrpcStream, Listener

LARGEST = 64 * 1024
"""Maximum number of bytes of one message. The metadata of a trigger are only a few names."""
LOOK_SECONDS = 1.0
"""Seconds between two checks whether the response to a watching call has changed."""
MOST_STREAMS = 1024

FAREWELL = http2.settings({}) + http2.goaway(0, http2.NO_ERROR, b"too many connections; try again")

CALLS = ("IsActive", "GetMetricSpec", "GetMetrics")
WATCH = "StreamIsActive"


class ScalerCall:
    """One call of KEDA, with one message. The call gets a response at once. A watching call (`StreamIsActive`) gets
    another response whenever the response would differ from the last one.
    """

    def __init__(self, stream: GrpcStream, method: str, figures: LatestFigures, ended: Callable[["ScalerCall"], None]) -> None:
        self._stream = stream
        self._method = method
        self._figures = figures
        self._ended = ended
        self._asked: keda.Asked | None = None
        self._said: bytes | None = None

    def message(self, payload: bytes) -> None:
        """Take the call's request message."""
        try:
            self._asked = keda.read_asked(self._method, payload)
        except keda.Refused as refused:
            self._end(refused.status, str(refused))
            return
        self.look()

    def look(self) -> None:
        """Respond to the call. A watching call gets another response only if the response has changed."""
        if self._asked is None:
            return
        try:
            said = keda.answer(self._method, self._asked, self._figures.samples(self._asked.trigger.namespace))
        except keda.Refused as refused:
            self._end(refused.status, str(refused))
        except FiguresUnknown as unknown:
            self._end(UNAVAILABLE, str(unknown))
        else:
            self._say(said)

    def _say(self, said: bytes) -> None:
        if said != self._said:
            self._said = said
            self._stream.send(said)
        if self._method != WATCH:
            self._end(OK, "")

    def _end(self, status: int, message: str) -> None:
        self._stream.finish(status, message)
        self._ended(self)

    def keeps(self, size: int) -> bool:
        """Return whether the stream may wait for the rest of an incomplete message; `size` is the number of bytes
        received so far.
        """
        return size <= LARGEST

    def half_closed(self) -> None:
        """End a call whose sender finished sending without a message."""
        if self._asked is None:
            self._end(INVALID_ARGUMENT, f"no message of {self._method}")

    def gone(self) -> None:
        """Remove the call, because the caller closed it."""
        self._ended(self)


class ScalerCalls:
    """All open calls of KEDA."""

    def __init__(self, figures: LatestFigures) -> None:
        self._figures = figures
        self._open: set[ScalerCall] = set()

    def begin(self, stream: GrpcStream) -> Listener | None:
        """Return the handler of a call, chosen by the call's path; None for an unknown path."""
        method = stream.path.decode("latin-1").removeprefix(keda.SERVICE)
        if method not in (*CALLS, WATCH):
            return None
        made = ScalerCall(stream, method, self._figures, self._open.discard)
        self._open.add(made)
        return made

    def is_full(self) -> bool:
        """Return whether further calls are refused."""
        return len(self._open) >= MOST_STREAMS

    def look(self) -> None:
        """Send new responses to those watching calls whose response has changed."""
        for call in tuple(self._open):
            call.look()


@asynccontextmanager
async def serving_scaler(
    figures: LatestFigures, listener: socket.socket, door: Door, certificate: Certificate | None
) -> AsyncIterator[ScalerCalls]:
    """Serve KEDA at a bound socket while the block runs."""
    calls, connections = ScalerCalls(figures), set[GrpcConnection]()

    def lost(connection: GrpcConnection) -> None:
        connections.discard(connection)
        door.leave(connection)

    def connection() -> GrpcConnection:
        made = GrpcConnection(calls.begin, LARGEST, lost, calls.is_full)
        connections.add(made)
        return made

    tls = None if certificate is None else certificate.context
    server = BoundedServer(listener, door, connection, lost, lambda: FAREWELL, tls)
    looking = asyncio.create_task(_looking(calls, certificate), name="scaler")
    try:
        yield calls
    finally:
        looking.cancel()
        server.close()
        for one in tuple(connections):
            one.close()


async def _looking(calls: ScalerCalls, certificate: Certificate | None) -> None:
    """Send new responses to watching calls, and keep the port's certificate up to date."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        calls.look()
        if certificate is not None:
            certificate.look(time.monotonic())
