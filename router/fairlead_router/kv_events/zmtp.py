"""The part of ZeroMQ's wire protocol that a publisher speaks to a subscriber (ZMTP 3.0, RFC 23, no authentication).

ZeroMQ's own sockets cannot be limited: a peer that reaches the port can open any number of connections, and each
connection can have ten thousand buffered messages of any size. This module parses the bytes of a connection into
messages within limits, however the bytes are split on arrival.
"""

from collections.abc import Iterator
from struct import Struct

from fairlead.plausibility import MESSAGE_BYTES

GREETING_BYTES = 64
MOST_FRAMES = 8
"""Maximum number of frames of one message; a batch of KV events has three."""
COMMAND_BYTES = 1024
"""Maximum number of bytes of a ZMTP command, which carries a name and the properties of a socket."""
MORE, LONG, COMMAND = 1, 2, 4

_LENGTH = Struct(">Q")
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_NULL = b"NULL".ljust(20, b"\0")


class NotZmtp(Exception):
    """An exception: the bytes are not the bytes of a publisher, or exceed a limit."""


def command(name: bytes, rest: bytes = b"") -> bytes:
    """Return the bytes of a short ZMTP command."""
    body = bytes([len(name)]) + name + rest
    return bytes([COMMAND, len(body)]) + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


OPENING = _SIGNATURE + b"\x03\x00" + _NULL + bytes(32) + command(b"READY", _property(b"Socket-Type", b"SUB"))
"""The bytes that a subscriber sends before it has received anything from its peer."""
SUBSCRIPTION = b"\x00\x01\x01"
"""The message that subscribes to every topic."""


class PublisherReader:
    """Parses the bytes of a publisher into messages of topic, sequence number and batch. `answer` has the bytes to send
    to the publisher next.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._frames: list[bytes] = []
        self._frames_bytes = 0
        self._greeted = False
        self.is_ready = False
        """Whether the peer has identified itself as a publisher."""
        self.answer = b""

    @property
    def held(self) -> int:
        """Number of buffered bytes of an incomplete message."""
        return len(self._buffer) + self._frames_bytes

    def feed(self, data: bytes) -> Iterator[list[bytes]]:
        """Yield the messages that are complete with these bytes. Raises NotZmtp."""
        self._buffer += data
        if not self._greeted and not self._greet():
            return
        place = 0
        while (found := self._frame(place)) is not None:
            flags, start, end = found
            with memoryview(self._buffer) as view:
                body = bytes(view[start:end])
            place = end
            if flags & COMMAND:
                self._obey(body)
            elif (message := self._add(flags, body)) is not None:
                yield message
        del self._buffer[:place]

    def _greet(self) -> bool:
        greeting = self._buffer
        if greeting[:1] != b"\xff"[: len(greeting)] or (len(greeting) > 9 and not greeting[9] & 1):
            raise NotZmtp("it did not begin with the greeting of ZeroMQ")
        if len(greeting) < GREETING_BYTES:
            return False
        if greeting[10] < 3 or greeting[12:32] != _NULL:
            raise NotZmtp("an older ZeroMQ than 4.0, or one that authenticates")
        del greeting[:GREETING_BYTES]
        self._greeted = True
        return True

    def _frame(self, place: int) -> tuple[int, int, int] | None:
        """Return the flags, the start and the end of the frame at this position; None if the frame has not fully
        arrived. Raises NotZmtp.
        """
        buffer = self._buffer
        if len(buffer) - place < 2:
            return None
        flags = buffer[place]
        head = 9 if flags & LONG else 2
        if flags > COMMAND | LONG | MORE or len(buffer) - place < head:
            if flags > COMMAND | LONG | MORE:
                raise NotZmtp("a frame with unknown flags")
            return None
        size = _LENGTH.unpack_from(buffer, place + 1)[0] if flags & LONG else buffer[place + 1]
        if size > (COMMAND_BYTES if flags & COMMAND or not self.is_ready else MESSAGE_BYTES - self._frames_bytes):
            raise NotZmtp(f"a frame of {size} bytes, which is more than allowed")
        end = place + head + size
        return (flags, place + head, end) if len(buffer) >= end else None

    def _obey(self, body: bytes) -> None:
        name, rest = body[1 : 1 + body[0]] if body else b"", body[1 + body[0] :] if body else b""
        if name == b"READY" and not self.is_ready:
            if b"\x0bSocket-Type\0\0\0\x03PUB" not in rest and b"\x0bSocket-Type\0\0\0\x04XPUB" not in rest:
                raise NotZmtp("no publisher")
            self.is_ready = True
            self.answer += SUBSCRIPTION
        elif name == b"PING" and len(self.answer) < COMMAND_BYTES:
            self.answer += command(b"PONG", rest[2:18])
        elif name == b"ERROR" or not self.is_ready:
            raise NotZmtp("it refused the connection")

    def _add(self, flags: int, body: bytes) -> list[bytes] | None:
        """Add a frame to the current message. Return the message if this frame completes it; None otherwise."""
        if not self.is_ready:
            raise NotZmtp("a message before the handshake was complete")
        self._frames.append(body)
        self._frames_bytes += len(body)
        if len(self._frames) > MOST_FRAMES:
            raise NotZmtp(f"a message of more than {MOST_FRAMES} frames")
        if flags & MORE:
            return None
        message, self._frames, self._frames_bytes = self._frames, [], 0
        return message
