"""The messages between routers as bytes: four bytes of length, then a MessagePack of the message's type, pool and
body.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import (
    Abandoned,
    Asked,
    AttemptFailed,
    Completed,
    FirstToken,
    Generated,
    InstanceFailed,
    InstanceWorked,
    Prefilled,
    SentElsewhere,
    Transferred,
    UnderWay,
    Word,
)

PROTOCOL = 4
"""Version of the protocol. Routers with different versions do not connect to each other."""

LARGEST_FRAME = 1024 * 1024
"""Maximum number of bytes of a frame."""
LARGEST_GREETING = 1024
"""Maximum number of bytes of a frame from a router that has not proven its identity yet."""
MOST_BLOCKS = 48 * 1024
"""Maximum number of block keys of each kind (the router's own and the engine's) that are sent for a prompt, from the
prompt's beginning. Later blocks count as cached nowhere.
"""
_LENGTH_BYTES = 4


class FrameError(Exception):
    """The bytes are not a frame of this protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of a router that wants another router to decide. `now` is the time of the sender's clock;
    `nonce` was never sent before.
    """

    protocol: int
    router: str
    nonce: bytes
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The reply to `Hello`."""

    nonce: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The reply to `Challenge`: a code which proves that the sender knows the other router's secret."""

    code: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The reply to a valid `Proof`: a code which proves that the deciding router knows the secret too. Without it,
    another process that got the address of a killed router could pose as that router.
    """

    code: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A message sent several times a second, with a reply, so that a connection that ended silently is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """The request to decide for the pool with this `uid` from now on. Messages about the sender's requests in flight
    follow.
    """

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The message that the receiver no longer decides for the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The message that its sender does not decide for the pool."""


Control = Hello | Challenge | Proof | Welcome | Alive | Join | Leave | Gone
Body = Control | Word | Dispatch | Refusal

_KINDS: tuple[type[Body], ...] = (
    Hello,
    Challenge,
    Proof,
    Welcome,
    Alive,
    Join,
    Leave,
    Gone,
    Dispatch,
    Refusal,
    Asked,
    UnderWay,
    Prefilled,
    FirstToken,
    Transferred,
    Generated,
    Completed,
    Abandoned,
    SentElsewhere,
    InstanceFailed,
    InstanceWorked,
    AttemptFailed,
)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_encode = msgspec.msgpack.Encoder().encode
_outer = msgspec.msgpack.Decoder(tuple[int, str, msgspec.Raw])
_inner = [msgspec.msgpack.Decoder(kind) for kind in _KINDS]


class Frame(NamedTuple):
    """A message of the protocol: the `namespace/name` of its pool, or "" for a message about no pool, and its body."""

    pool: str
    body: Body


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    content = _encode((_NUMBERS[type(frame.body)], frame.pool, frame.body))
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


class FrameReader:
    """Splits the received bytes into frames of at most `largest` bytes each."""

    def __init__(self, largest: int = LARGEST_FRAME) -> None:
        self.largest = largest
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes; `largest` may change from one frame to the next. Raises
        FrameError.
        """
        buffer = self._buffer
        buffer += data
        begin = 0
        try:
            while len(buffer) - begin >= _LENGTH_BYTES:
                length = int.from_bytes(buffer[begin : begin + _LENGTH_BYTES], "big")
                if length > self.largest:
                    raise FrameError(f"a frame of {length} bytes")
                end = begin + _LENGTH_BYTES + length
                if end > len(buffer):
                    break
                content = bytes(buffer[begin + _LENGTH_BYTES : end])
                begin = end
                yield _decode(content)
        finally:
            del buffer[:begin]


def _decode(content: bytes) -> Frame:
    try:
        number, pool, body = _outer.decode(content)
        if not 0 <= number < len(_inner):
            raise FrameError(f"kind {number}")
        return Frame(pool, _inner[number].decode(body))
    except msgspec.DecodeError as error:
        raise FrameError(str(error)) from None


def bounded(word: Word) -> Word:
    """Return the message, shortened so that it fits into a frame however long its request is. Names in a request are
    short anyway.
    """
    if not isinstance(word, Asked | UnderWay):
        return word
    request = word.request
    if len(request.blocks) <= MOST_BLOCKS and len(request.engine_blocks) <= MOST_BLOCKS:
        return word
    cut = replace(request, blocks=request.blocks[:MOST_BLOCKS], engine_blocks=request.engine_blocks[:MOST_BLOCKS])
    return replace(word, request=cut)


def named(request_id: str) -> RoutingRequest:
    """Return a request with only this id, as part of a decision. The router that asked for the decision has the other
    fields.
    """
    return RoutingRequest(id=request_id, arrived_at=0.0, prompt_tokens=0, blocks=(), first_bytes_hash=0)
