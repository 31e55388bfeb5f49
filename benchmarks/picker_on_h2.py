"""The endpoint picker's streams on the library h2 instead of our HTTP/2, to compare the cost of both.

h2 is a pure protocol object: bytes in, events out. All its optional work (validation and normalisation of headers,
conversion of bytes to text) is switched off, so its figures are the best that it can reach here. `GrpcStream` keeps the
parts that belong to gRPC. Our connection makes frames itself; here h2 makes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.settings import SettingCodes, Settings

from fairlead_process.grpc_server.frame_reader import FRAME_SIZE, LARGEST_HEADERS
from fairlead_process.grpc_server.grpc_connection import CONNECTION_WINDOW, MOST_STREAMS
from fairlead_process.grpc_server.grpc_stream import STREAM_WINDOW, GrpcStream, Opener
from fairlead_process.grpc_server.http2 import DEFAULT_WINDOW
from fairlead_router.serving.body_memory import BodyMemory

OPENING = ((b":status", b"200"), (b"content-type", b"application/grpc"))


class H2GrpcStream(GrpcStream):
    """A gRPC call whose headers h2 writes."""

    def __init__(self, connection: PickerOnH2, number: int, path: bytes, authority: bytes) -> None:
        super().__init__(connection, number, path, authority, 0)
        self.on_h2 = connection

    def send(self, message: bytes) -> None:
        if not self._begun and not self._ended and self._closing is None:
            self._begun = True
            self.on_h2.protocol.send_headers(self.id, OPENING)
        super().send(message)

    def flush(self) -> None:
        while self._waiting:
            piece = self._waiting[0]
            sent = self._connection.send_part(self, piece)
            self._waiting_bytes -= sent
            if sent < len(piece):
                self._waiting[0] = piece[sent:]
                return
            self._waiting.popleft()
        self._tell_sent()
        if self._closing is not None and not self._ended:
            self._ended = True
            trailers = ((b"grpc-status", b"0"),)
            self.on_h2.protocol.send_headers(self.id, trailers if self._begun else OPENING + trailers, end_stream=True)
            self._connection.forget(self)

    def _allow(self) -> None:
        self.on_h2.protocol.increment_flow_control_window(self._unacknowledged, self.id)
        self._unacknowledged = 0


class PickerOnH2(asyncio.Protocol):
    """A connection like `GrpcConnection`, but without its handling of faulty and slow peers."""

    def __init__(self, opener: Opener, largest: int, closed: Callable[[Any], None]) -> None:
        self._opener = opener
        self._largest = largest
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._flush_due = False
        self._reading = False
        self._streams: dict[int, H2GrpcStream] = {}
        self._unacknowledged = 0
        self.memory = BodyMemory(1 << 30)
        self.body_bytes = 0
        self.protocol = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_inbound_headers=False,
                normalize_outbound_headers=False,
            )
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        values = {
            SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            SettingCodes.MAX_FRAME_SIZE: FRAME_SIZE,
            SettingCodes.MAX_HEADER_LIST_SIZE: LARGEST_HEADERS,
        }
        self.protocol.local_settings = Settings(client=False, initial_values=values)
        self.protocol.initiate_connection()
        self.protocol.increment_flow_control_window(CONNECTION_WINDOW - DEFAULT_WINDOW)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._reading = True
        for event in self.protocol.receive_data(data):
            self._take(event)
        self._reading = False
        self._flush()

    def _take(self, event: Any) -> None:
        if isinstance(event, DataReceived):
            self._unacknowledged += event.flow_controlled_length
            if self._unacknowledged >= CONNECTION_WINDOW // 2:
                self.protocol.increment_flow_control_window(self._unacknowledged)
                self._unacknowledged = 0
            if (stream := self._streams.get(event.stream_id)) is not None:
                stream.take(event.data, event.flow_controlled_length, self._largest)
        elif isinstance(event, RequestReceived):
            fields = dict(event.headers)
            stream = H2GrpcStream(self, event.stream_id, fields[b":path"], fields[b":authority"])
            self._streams[event.stream_id] = stream
            stream.listener = self._opener(stream)
        elif isinstance(event, StreamEnded):
            if (stream := self._streams.get(event.stream_id)) is not None:
                stream.close_half()
        elif isinstance(event, StreamReset):
            if (stream := self._streams.pop(event.stream_id, None)) is not None:
                stream.lose()
        elif isinstance(event, WindowUpdated):
            for stream in tuple(self._streams.values()):
                stream.flush()

    def _later(self) -> None:
        if not self._reading and not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if data := self.protocol.data_to_send():
            self._transport.write(data)

    def push(self, data: bytes) -> None:
        raise NotImplementedError("h2 writes all frames")

    def send_data(self, stream: GrpcStream, data: bytes) -> bool:
        if len(data) > self.protocol.max_outbound_frame_size or len(data) > self.protocol.local_flow_control_window(stream.id):
            return False
        self.protocol.send_data(stream.id, data)
        self._later()
        return True

    def send_part(self, stream: GrpcStream, data: bytes) -> int:
        sent = 0
        while sent < len(data):
            room = min(self.protocol.max_outbound_frame_size, self.protocol.local_flow_control_window(stream.id), len(data) - sent)
            if room <= 0:
                break
            self.protocol.send_data(stream.id, data[sent : sent + room])
            sent += room
        self._later()
        return sent

    def forget(self, stream: GrpcStream) -> None:
        self._streams.pop(stream.id, None)
        self._later()
