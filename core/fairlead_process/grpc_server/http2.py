"""The parts of HTTP/2 (RFC 9113) that a gRPC server needs: frames as bytes, and the header blocks that the server
sends.
"""

from __future__ import annotations

from struct import Struct
from urllib.parse import quote

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 7, 8, 9, 11

SETTING_MAX_STREAMS, SETTING_WINDOW, SETTING_FRAME_SIZE, SETTING_HEADER_LIST = 3, 4, 5, 6
LARGEST_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_SIZE = 16_384

HEAD = Struct(">HBBBL")
"""The format of the nine bytes before each frame's payload: length (its upper 16 bits, then its lower 8), type, flags,
stream.
"""

Headers = dict[bytes, bytes]


class ConnectionFailed(Exception):
    """The peer violated the protocol; the connection must end with this error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a whole frame."""
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def data_head(size: int, stream: int) -> bytes:
    """Return the nine bytes before `size` bytes of a stream's data."""
    return HEAD.pack(size >> 8, size & 0xFF, DATA, 0, stream)


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(number.to_bytes(2, "big") + value.to_bytes(4, "big") for number, value in values.items()))


def window_update(stream: int, increment: int) -> bytes:
    """Encode a WINDOW_UPDATE frame: the peer may send this many bytes more on a stream, or on the connection (0)."""
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def goaway(last_stream: int, code: int, text: bytes = b"") -> bytes:
    """Encode a GOAWAY frame: no stream above `last_stream` was or will be handled."""
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + code.to_bytes(4, "big") + text)


def rst_stream(stream: int, code: int) -> bytes:
    """Encode an RST_STREAM frame, which ends one stream with an error code."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def unpadded(payload: bytes, flags: int) -> bytes:
    """Return the payload of DATA or HEADERS without padding and priority. Raises ConnectionFailed."""
    start, end = 0, len(payload)
    if flags & PADDED:
        if not payload or payload[0] >= len(payload):
            raise ConnectionFailed(PROTOCOL_ERROR, "padding longer than its frame")
        start, end = 1, end - payload[0]
    if flags & HAS_PRIORITY:
        start += 5
        if start > end:
            raise ConnectionFailed(FRAME_SIZE_ERROR, "no room for the priority")
    return payload[start:end]


def _string(text: bytes) -> bytes:
    """Return a string literal, not compressed (RFC 7541 §5.2)."""
    if len(text) < 127:
        return b"%c%s" % (len(text), text)
    rest, length = len(text) - 127, bytearray(b"\x7f")
    while rest >= 128:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return bytes(length) + text


def _literal(name: bytes, value: bytes) -> bytes:
    """Return an encoded header field that the peer does not add to its table (RFC 7541 §6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


GRPC_HEADERS = b"\x88" + _literal(b"content-type", b"application/grpc")
"""`:status: 200` and the content type."""


def grpc_trailers(status: int, message: str, *, alone: bool) -> bytes:
    """Return the header block that ends a call; `alone` if nothing was sent before it."""
    block = GRPC_HEADERS if alone else b""
    block += _literal(b"grpc-status", b"%d" % status)
    if message:
        block += _literal(b"grpc-message", quote(message[:400], safe=" !#$&'()*+,-./:;<=>?@[]^_`{|}~").encode())
    return block


class HeaderBlocks:
    """A decoder of a connection's header blocks. A block that changes no table is cached, because it always decodes to
    the same fields.
    """

    MOST_REMEMBERED = 256

    def __init__(self, largest_list: int) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=largest_list)
        self._known: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """Return the fields of a block; for a repeated name the first value. Raises ConnectionFailed."""
        known = self._known.get(block)
        if known is not None:
            return known
        entries = self._decoder.header_table.dynamic_entries
        first, count = entries[0] if entries else None, len(entries)
        try:
            fields = self._decoder.decode(block, raw=True)
        except hpack.HPACKError as error:
            raise ConnectionFailed(COMPRESSION_ERROR, f"header block: {error}") from None
        found: Headers = {}
        for name, value in fields:
            found.setdefault(name, value)
        if (entries[0] if entries else None) is not first or len(entries) != count:
            self._known.clear()
        elif len(self._known) < self.MOST_REMEMBERED:
            self._known[block] = found
        return found
