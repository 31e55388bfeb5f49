"""The server side of one gRPC call: messages in both directions on a stream of an HTTP/2 connection, with flow control.

Messages to the peer wait here while the peer has no room for them. While too many bytes wait, the peer gets no
permission to send more on this stream. So memory stays bounded, even if one side is slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from fairlead_process.grpc_server import http2

STREAM_WINDOW = 512 * 1024
"""Number of bytes that a peer may send on a stream before it gets permission for more."""
MOST_WAITING = 512 * 1024
"""Maximum number of bytes of a stream's messages that may wait to be sent to the peer. While more bytes wait, the peer
gets no permission to send on the stream.
"""

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 0, 1, 2, 3, 4, 5
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 8, 9, 12, 13, 14


class Listener(Protocol):
    """The handler of a stream."""

    def message(self, payload: bytes) -> None:
        """Handle a message of the peer."""

    def keeps(self, size: int) -> bool:
        """Return whether `size` bytes of an incomplete message may be kept until the remaining bytes of the message
        arrive. Called each time that the size changes, finally with 0.
        """

    def half_closed(self) -> None:
        """Handle the end of the peer's messages."""

    def gone(self) -> None:
        """Handle the end of the stream; nothing can be sent on it."""


class Memory(Protocol):
    """Counts the bytes that are `held` in memory."""

    held: int


class Connection(Protocol):
    """The calls that a stream makes to its connection."""

    body_bytes: int

    @property
    def memory(self) -> Memory:
        """The counter of the bytes that the connection's streams wait to send."""

    def push(self, data: bytes) -> None:
        """Send these bytes in one write together with other bytes that are sent at the same moment."""

    def send_data(self, stream: GrpcStream, data: bytes) -> bool:
        """Send all of the data in one frame if flow control allows it, which is the usual case; return whether the data
        was sent.
        """

    def send_part(self, stream: GrpcStream, data: bytes) -> int:
        """Send as much of the data as flow control allows now; return the number of bytes sent."""

    def forget(self, stream: GrpcStream) -> None:
        """Remove a stream that has ended on the server's side."""


Opener = Callable[["GrpcStream"], Listener | None]
"""A function that returns the handler of a new stream; None for an unknown path."""


class GrpcStream:
    """The server side of one gRPC call."""

    __slots__ = (
        "_begun", "_buffer", "_closing", "_connection", "_ended", "_kept", "_sent", "_unacknowledged", "_waiting", "_waiting_bytes",
        "authority", "id", "listener", "path", "send_window",
    )  # fmt: skip

    def __init__(self, connection: Connection, number: int, path: bytes, authority: bytes, send_window: int) -> None:
        self._connection = connection
        self.id = number
        self.path = path
        self.authority = authority
        self.send_window = send_window
        self.listener: Listener | None = None
        self._buffer = bytearray()
        """The beginning of a message, which may arrive in many frames."""
        self._kept = 0
        """Size of `_buffer` in bytes, as last reported to the listener's `keeps`."""
        self._sent: Callable[[], None] | None = None
        """The function to call when no bytes wait any more."""
        self._unacknowledged = 0
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._begun = False
        self._closing: bytes | None = None
        """The trailers, to be sent after the waiting messages."""
        self._ended = False

    @property
    def connection(self) -> Connection:
        """The stream's connection, which counts the bytes that wait in its streams."""
        return self._connection

    def send(self, message: bytes) -> None:
        """Send a message as soon as the peer has room for it. After the call's end nothing is sent."""
        if self._ended or self._closing is not None:
            return
        if not self._begun:
            self._begun = True
            self._connection.push(http2.frame(http2.HEADERS, http2.END_HEADERS, self.id, http2.GRPC_HEADERS))
        size = len(message)
        data = b"\x00" + size.to_bytes(4, "big") + message
        if not self._waiting and self._connection.send_data(self, data):
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._connection.memory.held += len(data)
        self.flush()

    def when_sent(self, then: Callable[[], None]) -> None:
        """Call `then` as soon as no bytes of this stream wait, because all bytes were sent or discarded. If this method
        is called several times, only the last function is called.
        """
        if self._waiting:
            self._sent = then
        else:
            then()

    def drop(self) -> None:
        """Discard the waiting messages."""
        self._waiting.clear()
        self._connection.memory.held -= self._waiting_bytes
        self._waiting_bytes = 0
        self._tell_sent()

    def finish(self, status: int, message: str = "") -> None:
        """End the call: after the waiting messages if the status is OK, otherwise without them. Later events of the
        call are ignored.
        """
        if self._ended or self._closing is not None:
            return
        self.listener = None
        if status != OK:
            self.drop()
        self._closing = http2.grpc_trailers(status, message, alone=not self._begun)
        self.flush()

    def flush(self) -> None:
        """Send as many of the waiting bytes as the peer has room for."""
        waiting = self._waiting
        while waiting:
            piece = waiting[0]
            sent = self._connection.send_part(self, piece)
            self._waiting_bytes -= sent
            self._connection.memory.held -= sent
            if sent < len(piece):
                waiting[0] = piece[sent:]
                break
            waiting.popleft()
        if not waiting:
            self._tell_sent()
        if self._unacknowledged >= STREAM_WINDOW // 2:
            self._allow()
        if not waiting and self._closing is not None and not self._ended:
            self._ended = True
            self._connection.push(http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, self.id, self._closing))
            self._connection.forget(self)

    def take(self, data: bytes, size: int, largest: int) -> None:
        """Handle data of the peer from a frame of `size` bytes: pass on each whole message.

        Raises ConnectionFailed for more data than the peer had permission to send.
        """
        self._unacknowledged += size
        if self._unacknowledged > STREAM_WINDOW:
            raise http2.ConnectionFailed(http2.FLOW_CONTROL_ERROR, f"more data of stream {self.id} than it may send")
        if self._unacknowledged >= STREAM_WINDOW // 2:
            self._allow()
        held = self._buffer
        came: bytes | bytearray = data
        if held:
            held += data
            came = held
        start, end = 0, len(came)
        while end - start >= 5 and self.listener is not None:
            length = int.from_bytes(came[start + 1 : start + 5], "big")
            if came[start]:
                self._fail(UNIMPLEMENTED, "messages are not to be compressed")
                return
            if length > largest:
                self._fail(RESOURCE_EXHAUSTED, f"a message of {length} bytes is more than {largest}")
                return
            if end - start - 5 < length:
                break
            self.listener.message(bytes(came[start + 5 : start + 5 + length]))
            start += 5 + length
        if self.listener is None:
            held.clear()
            return
        if came is held:
            del held[:start]
        elif start < end:
            held += data[start:]
        if self._kept != len(held):
            self._kept = len(held)
            if not self.listener.keeps(self._kept):
                self._fail(RESOURCE_EXHAUSTED, "there is no memory for this message now")

    def close_half(self) -> None:
        """Record that the peer sends no more data."""
        if self._buffer:
            self._fail(INVALID_ARGUMENT, "the stream ended in the middle of a message")
        elif self.listener is not None:
            self.listener.half_closed()

    def lose(self) -> None:
        """Record that the peer reset the stream, or that the connection is gone."""
        listener, self.listener = self.listener, None
        self._ended = True
        self._buffer.clear()
        self.drop()
        if listener is not None:
            listener.gone()

    def _tell_sent(self) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            sent()

    def _fail(self, status: int, message: str) -> None:
        listener = self.listener
        self.finish(status, message)
        if listener is not None:
            listener.gone()

    def _allow(self) -> None:
        if self._waiting_bytes < MOST_WAITING and not self._ended:
            self._connection.push(http2.window_update(self.id, self._unacknowledged))
            self._unacknowledged = 0
