"""Cuts the bytes of an HTTP/2 client into frames, and joins the frames of each header block."""

from __future__ import annotations

from collections.abc import Callable

from fairlead_process.grpc_server import http2
from fairlead_process.grpc_server.http2 import CONTINUATION, END_HEADERS, HEAD, HEADERS, ConnectionFailed

FRAME_SIZE = 256 * 1024
LARGEST_HEADERS = 64 * 1024
_HEAD_BYTES = 9

MOST_STEPS = 1024
STREAM_STEPS = 64
"""Number of frames of one connection that are handled before other connections have their turn. A frame that begins a
stream counts as 64 frames, because it may be a whole request. The limit is necessary because a client can send
thousands of frames in one read.
"""

_OF_HEADERS = (HEADERS, CONTINUATION)


class FrameReader:
    """Reads the bytes of one connection. The callback `began` gets the stream, the flags and the whole block of
    headers; the callback `came` gets each other frame. A violation of the protocol raises ConnectionFailed, and nothing
    may be read after it.
    """

    __slots__ = ("_began", "_block", "_came", "_needed", "_place", "_rest", "_turn", "is_greeted")

    def __init__(self, came: Callable[[int, int, int, bytes], None], began: Callable[[int, int, bytes], None]) -> None:
        self._came = came
        self._began = began
        self._rest = bytearray()
        """The beginning of a frame that has not arrived completely."""
        self._needed = 0
        """Number of bytes that complete the frame in `_rest`."""
        self._turn: bytes | None = None
        self._place = 0
        """Position in `_turn`, the bytes that wait for their turn, of the first frame that was not handled yet."""
        self._block: tuple[int, int, bytearray] | None = None
        """Stream, flags and beginning of a header block that continues in the next frame."""
        self.is_greeted = False
        """Whether the client has shown that it speaks HTTP/2."""

    def read(self, data: bytes) -> bool:
        """Read bytes that have arrived. Return whether some of the bytes were not handled yet. If so, the caller lets
        other tasks run and then calls this method again without bytes.
        """
        start = 0
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return False
            data, self._rest = bytes(self._rest), bytearray()
        elif self._turn is not None:
            data, start = (self._turn[self._place :] + data, 0) if data else (self._turn, self._place)
            self._turn = None
        end = len(data)
        if not self.is_greeted:
            if not data.startswith(http2.PREFACE[:end]):
                raise ConnectionFailed(http2.PROTOCOL_ERROR, "this port speaks gRPC over HTTP/2 only")
            if end < len(http2.PREFACE):
                self._rest, self._needed = bytearray(data), 0
                return False
            self.is_greeted = True
            start = len(http2.PREFACE)
        steps = 0
        while end - start >= _HEAD_BYTES and steps < MOST_STEPS:
            high, low, kind, flags, number = HEAD.unpack_from(data, start)
            size = (high << 8) | low
            if size > FRAME_SIZE:
                raise ConnectionFailed(http2.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            stop = start + _HEAD_BYTES + size
            if stop > end:
                self._needed = stop - start
                break
            number &= 0x7FFFFFFF
            payload = data[start + _HEAD_BYTES : stop]
            if kind in _OF_HEADERS or self._block is not None:
                steps += STREAM_STEPS
                self._take_headers(kind, flags, number, payload)
            else:
                steps += 1
                self._came(kind, flags, number, payload)
            start = stop
        else:
            self._needed = _HEAD_BYTES
        if steps >= MOST_STEPS:
            self._turn, self._place = data, start  # not cut: thousands of frames would be copied once for each turn
            return True
        self._rest = bytearray(data[start:])
        return False

    def _take_headers(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is None:
            if kind == CONTINUATION:
                raise ConnectionFailed(http2.PROTOCOL_ERROR, "a continuation of nothing")
            payload = http2.unpadded(payload, flags)
            if flags & END_HEADERS:
                self._began(number, flags, payload)
            else:
                self._block = (number, flags, bytearray(payload))
            return
        begun, first_flags, block = self._block
        if kind != CONTINUATION or number != begun:
            raise ConnectionFailed(http2.PROTOCOL_ERROR, "a header block was interrupted")
        block += payload
        if len(block) > LARGEST_HEADERS:
            raise ConnectionFailed(http2.ENHANCE_YOUR_CALM, "a header block too large")
        if flags & END_HEADERS:
            self._block = None
            self._began(number, first_flags, bytes(block))
