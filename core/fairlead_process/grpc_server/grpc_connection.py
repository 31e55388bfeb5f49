"""The server side of one HTTP/2 connection of gRPC: the handling of its frames, and how much of its streams' data is
sent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from fairlead_process.doors import IDLE_SECONDS, STRANGER_SECONDS
from fairlead_process.grpc_server import http2
from fairlead_process.grpc_server.frame_reader import FRAME_SIZE, LARGEST_HEADERS, FrameReader
from fairlead_process.grpc_server.grpc_stream import INVALID_ARGUMENT, STREAM_WINDOW, UNIMPLEMENTED, GrpcStream, Memory, Opener
from fairlead_process.grpc_server.http2 import ConnectionFailed, HeaderBlocks

CONNECTION_WINDOW = 16 * 1024 * 1024
MOST_STREAMS = 2048
"""Maximum number of streams of one connection; a proxy opens another connection for more streams."""
MOST_WINDOW_CHANGES = 100
"""Maximum number of changes of the streams' window that may arrive at once. The limit exists because each change is
applied to every stream.
"""
MOST_QUEUED = 256 * 1024
"""Maximum number of bytes given to the transport at once. The transport then reports whether the peer takes these
bytes. The remaining bytes wait in their streams, where they are counted.
"""
FIRST_STREAM_SECONDS = 10.0
"""Seconds within which a connection must have begun a stream."""
IDLE_STREAMS_SECONDS = 300.0
"""Seconds for which a connection stays open after its last stream."""
CLOSING_SECONDS = 5.0
"""Seconds that a closing connection may take to send its remaining bytes."""
MOST_RESETS = 2 * MOST_STREAMS
RESETS_SECONDS = 10.0
"""Period in seconds in which the peer may reset at most MOST_RESETS streams."""
MOST_REFUSED = 4096
"""Maximum number of streams that the peer may begin after a GOAWAY."""

logger = logging.getLogger(__name__)


class _Uncounted:
    """A counter of memory that always stays at 0, for connections whose messages are too small to be counted."""

    held = 0


class GrpcConnection(asyncio.Protocol):
    """One connection. `opener` gives each stream its listener; no message may be larger than `largest` bytes; while
    `is_full`, no stream is accepted. `memory` counts the bytes that its streams wait to send.
    """

    def __init__(
        self,
        opener: Opener,
        largest: int,
        closed: Callable[[GrpcConnection], None],
        is_full: Callable[[], bool] = lambda: False,
        memory: Memory | None = None,
    ) -> None:
        self.body_bytes = 0
        self.memory: Memory = _Uncounted() if memory is None else memory
        self._is_full = is_full
        self._opener = opener
        self._largest = largest
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._queued = 0
        """Number of bytes of streams' data in `_out`."""
        self._has_more = False
        """Whether a stream waits because `_out` is full."""
        self._reading = False
        self._flush_due = False
        self._frames = FrameReader(self._take, self._begin)
        self._blocks = HeaderBlocks(LARGEST_HEADERS)
        self._streams: dict[int, GrpcStream] = {}
        self._last_stream = 0
        """The highest stream number that may be served, as a GOAWAY reports it."""
        self._highest_stream = 0
        """The highest stream number that the peer has begun. After a GOAWAY the peer may begin more until it has read
        the GOAWAY.
        """
        self._send_window = http2.DEFAULT_WINDOW
        self._peer_window = http2.DEFAULT_WINDOW
        self._peer_frame_size = http2.DEFAULT_FRAME_SIZE
        self._unacknowledged = 0
        self._window_changes = 0
        self._has_room = False
        """Whether the streams may send more than before. They are notified after all received frames, not after each
        frame.
        """
        self._paused = False
        self._leaving = False
        self._is_behind = False
        """Whether arrived frames wait until other connections have had their turn."""
        self._resets = 0
        self._resets_since = self._loop.time()
        self._refused = 0
        self._idle_since = self._loop.time()
        self._impatience: asyncio.TimerHandle | None = None

    # ── asyncio ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not subclasses of asyncio.Transport
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._leaving and self._transport is not None:
            self._transport.abort()
            return
        self._idle_since = self._loop.time()
        self._impatience = self._loop.call_later(FIRST_STREAM_SECONDS, self._look_whether_idle)
        values = {
            http2.SETTING_MAX_STREAMS: MOST_STREAMS,
            http2.SETTING_WINDOW: STREAM_WINDOW,
            http2.SETTING_FRAME_SIZE: FRAME_SIZE,
            http2.SETTING_HEADER_LIST: LARGEST_HEADERS,
        }
        self.push(http2.settings(values) + http2.window_update(0, CONNECTION_WINDOW - http2.DEFAULT_WINDOW))

    def data_received(self, data: bytes) -> None:
        self._reading = True
        self._window_changes = 0
        try:
            if self._frames.read(data):
                self._fall_behind()
            if self._has_room:
                self._has_room = False
                self._flush_streams()
        except ConnectionFailed as failure:
            logger.warning("a gRPC client broke HTTP/2", extra={"error": str(failure), "code": failure.code})
            self.push(http2.goaway(self._last_stream, failure.code, str(failure)[:100].encode()))
            self._flush()
            self.close()
        finally:
            self._reading = False
            self._flush()

    def _fall_behind(self) -> None:
        if not self._is_behind and self._transport is not None:
            self._is_behind = True
            self._transport.pause_reading()
            self._loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        self._is_behind = False
        if self._transport is None or self._transport.is_closing():
            return
        self.data_received(b"")
        if not self._is_behind and not self._paused and self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
        self._transport = None
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.lose()
        self._closed(self)

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self._transport is not None and not self._is_behind:
            self._transport.resume_reading()
        self._flush_streams()

    def close(self) -> None:
        """End the connection and its streams, after the frames already queued.

        The transport is closed only once. On Python 3.11 a TLS transport that is closed twice forgets its state, and
        `abort` then does nothing.
        """
        if self._transport is not None:
            self._flush()
            if not self._transport.is_closing():
                self._transport.close()
            if self._transport.get_write_buffer_size():  # a peer that reads nothing would keep it open for ever
                self._loop.call_later(CLOSING_SECONDS, self._transport.abort)

    def leave(self, code: int = http2.NO_ERROR) -> None:
        """Accept no more streams; close after the last stream has ended."""
        if not self._leaving:
            self._leaving = True
            self.push(http2.goaway(self._last_stream, code))
        if not self._streams:
            self.close()

    @property
    def streams(self) -> int:
        """Streams that are open."""
        return len(self._streams)

    # ── its door, and time ──

    def may_go(self) -> bool:
        """Return whether the connection has been without a stream long enough to be closed in favour of another
        connection.
        """
        if self._streams or self._transport is None:
            return False
        return self._loop.time() - self._idle_since >= (IDLE_SECONDS if self._highest_stream else STRANGER_SECONDS)

    def turn_away(self) -> None:
        """Close the connection in favour of another connection."""
        self.leave()

    def _look_whether_idle(self) -> None:
        most = IDLE_STREAMS_SECONDS if self._highest_stream else FIRST_STREAM_SECONDS
        left = most if self._streams else self._idle_since + most - self._loop.time()
        if left > 0:
            self._impatience = self._loop.call_later(left, self._look_whether_idle)
        elif self._frames.is_greeted:
            self.leave()
        elif self._transport is not None:
            self._transport.abort()

    # ── sending ──

    def push(self, data: bytes) -> None:
        """Send these bytes in one write together with other bytes that are sent at the same moment."""
        self._out.append(data)
        if not self._reading and not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._out:
            out, self._out = self._out, []
            self._queued = 0
            if self._transport is not None and not self._transport.is_closing():
                self._transport.write(b"".join(out))
                if self._has_more:
                    self._loop.call_soon(self._flush_streams)

    def send_data(self, stream: GrpcStream, data: bytes) -> bool:
        """Send all of the data in one frame if flow control allows it, which is the usual case; return whether the data
        was sent.
        """
        size = len(data)
        if (
            size > self._peer_frame_size
            or size > self._send_window
            or size > stream.send_window
            or self._paused
            or self._queued > MOST_QUEUED
        ):
            return False
        self._send_window -= size
        stream.send_window -= size
        self._queued += size
        self.push(http2.data_head(size, stream.id) + data)
        return True

    def send_part(self, stream: GrpcStream, data: bytes) -> int:
        """Send as much of the data as flow control allows now; return the number of bytes sent."""
        sent = 0
        while sent < len(data) and not self._paused:
            if self._queued > MOST_QUEUED:
                self._has_more = True
                break
            size = min(len(data) - sent, self._peer_frame_size, self._send_window, stream.send_window)
            if size <= 0:
                break
            self._send_window -= size
            stream.send_window -= size
            self._queued += size
            self.push(http2.data_head(size, stream.id) + data[sent : sent + size])
            sent += size
        return sent

    def forget(self, stream: GrpcStream) -> None:
        """Remove a stream that has ended on the server's side."""
        self._streams.pop(stream.id, None)
        if not self._streams:
            self._last_has_ended()

    def _last_has_ended(self) -> None:
        self._idle_since = self._loop.time()
        if self._leaving:
            self._loop.call_soon(self.close)

    def _flush_streams(self) -> None:
        self._has_more = False
        for stream in tuple(self._streams.values()):
            stream.flush()

    # ── reading ──

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == http2.DATA:
            self._take_data(flags, number, payload)
        elif kind == http2.RST_STREAM:
            if len(payload) != 4 or not 0 < number <= self._highest_stream:
                raise ConnectionFailed(http2.PROTOCOL_ERROR, "a reset of no stream")
            stream = self._streams.pop(number, None)
            if stream is not None:
                self._count_reset()
                stream.lose()
                if not self._streams:
                    self._last_has_ended()
        elif kind == http2.WINDOW_UPDATE:
            self._take_window(number, payload)
        elif kind == http2.SETTINGS:
            self._take_settings(flags, number, payload)
        elif kind == http2.PING:
            if len(payload) != 8 or number:
                raise ConnectionFailed(http2.FRAME_SIZE_ERROR, "a ping of another size")
            if not flags & http2.ACK:
                self.push(http2.frame(http2.PING, http2.ACK, 0, payload))
        elif kind == http2.PUSH_PROMISE:
            raise ConnectionFailed(http2.PROTOCOL_ERROR, "clients promise nothing")

    def _count_reset(self) -> None:
        """Count a reset stream. A peer that begins and resets streams faster than clients would plausibly cancel them
        gets a GOAWAY; the other streams on its connection finish normally.
        """
        self._resets += 1
        if self._resets <= MOST_RESETS:
            return
        now = self._loop.time()
        if now - self._resets_since < RESETS_SECONDS:
            self.leave(http2.ENHANCE_YOUR_CALM)
        self._resets, self._resets_since = 0, now

    def _count_refused(self) -> None:
        if self._leaving:
            self._refused += 1
            if self._refused > MOST_REFUSED:
                raise ConnectionFailed(http2.ENHANCE_YOUR_CALM, "streams after a GOAWAY, without end")

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._unacknowledged += size
        if self._unacknowledged >= CONNECTION_WINDOW // 2:
            self.push(http2.window_update(0, self._unacknowledged))
            self._unacknowledged = 0
        stream = self._streams.get(number)
        if stream is None:
            if not 0 < number <= self._highest_stream:
                raise ConnectionFailed(http2.PROTOCOL_ERROR, f"data of stream {number}, which was never begun")
            return  # it has ended here, which the peer did not know yet
        stream.take(http2.unpadded(payload, flags & http2.PADDED), size, self._largest)
        if flags & http2.END_STREAM:
            stream.close_half()

    def _begin(self, number: int, flags: int, block: bytes) -> None:
        headers = self._blocks.decode(block)
        stream = self._streams.get(number)
        if stream is not None:  # trailers
            if not flags & http2.END_STREAM:
                raise ConnectionFailed(http2.PROTOCOL_ERROR, "headers in the middle of a stream")
            stream.close_half()
            return
        if number <= self._highest_stream:
            return  # of a stream that has ended here
        if not number % 2:
            raise ConnectionFailed(http2.PROTOCOL_ERROR, f"stream {number} is not one that a client may open")
        self._highest_stream = number
        if not self._leaving:
            self._last_stream = number
        if self._leaving or len(self._streams) >= MOST_STREAMS or self._is_full():
            self._count_refused()
            self.push(http2.rst_stream(number, http2.REFUSED_STREAM))
            return
        stream = GrpcStream(self, number, headers.get(b":path", b""), headers.get(b":authority", b""), self._peer_window)
        self._streams[number] = stream
        if headers.get(b":method") != b"POST" or not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            stream.finish(INVALID_ARGUMENT, "this port speaks gRPC only")
            return
        stream.listener = self._opener(stream)
        if stream.listener is None:
            stream.finish(UNIMPLEMENTED, f"no method {headers.get(b':path', b'')[:80].decode('latin-1')}")
        elif flags & http2.END_STREAM:
            stream.close_half()

    def _take_window(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFailed(http2.FRAME_SIZE_ERROR, "a window update of another size")
        increment = int.from_bytes(payload, "big") & 0x7FFFFFFF
        if not number:
            self._send_window += increment
            if not increment or self._send_window > http2.LARGEST_WINDOW:
                raise ConnectionFailed(http2.FLOW_CONTROL_ERROR, "an impossible window")
            self._has_room = True
        elif (stream := self._streams.get(number)) is not None:
            stream.send_window += increment
            if not increment or stream.send_window > http2.LARGEST_WINDOW:
                raise ConnectionFailed(http2.FLOW_CONTROL_ERROR, "an impossible window")
            stream.flush()

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        if flags & http2.ACK:
            return
        if number or len(payload) % 6:
            raise ConnectionFailed(http2.FRAME_SIZE_ERROR, "settings of another size")
        for start in range(0, len(payload), 6):
            setting, value = int.from_bytes(payload[start : start + 2], "big"), int.from_bytes(payload[start + 2 : start + 6], "big")
            if setting == http2.SETTING_WINDOW:
                if value > http2.LARGEST_WINDOW:
                    raise ConnectionFailed(http2.FLOW_CONTROL_ERROR, "an impossible window")
                self._window_changes += 1
                if self._window_changes > MOST_WINDOW_CHANGES:
                    raise ConnectionFailed(http2.ENHANCE_YOUR_CALM, "too many settings of the window")
                for stream in self._streams.values():
                    stream.send_window += value - self._peer_window
                self._peer_window = value
            elif setting == http2.SETTING_FRAME_SIZE:
                if not http2.DEFAULT_FRAME_SIZE <= value < 2**24:
                    raise ConnectionFailed(http2.PROTOCOL_ERROR, "an impossible size of frames")
                self._peer_frame_size = min(value, FRAME_SIZE)
        self.push(http2.frame(http2.SETTINGS, http2.ACK, 0))
        self._has_room = True
