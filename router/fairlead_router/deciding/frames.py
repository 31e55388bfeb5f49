"""Encodes the messages between routers as frames: four bytes of length, then a MessagePack of the message's type, pool
and body.
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
"""Maximum number of block keys of each kind (the router's own and the engine's) that are sent for a prompt, counted
from the prompt's beginning. The deciding router takes the prompt's later blocks as cached nowhere.
"""
_LENGTH_BYTES = 4


class FrameError(Exception):
    """An exception: the received bytes are not a frame of this protocol."""


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
    """The reply to `Hello`. `nonce` was never sent before."""

    nonce: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The reply to `Challenge`. `code` proves that the sender knows the secret of the router that it asks to decide."""

    code: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The reply to a valid `Proof`. `code` proves that the deciding router knows the secret too. Otherwise a process
    that got the address of a killed router could pose as that router.
    """

    code: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A message that a router sends several times a second and the other router returns, so that both notice a lost
    connection.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """The request to decide from now on for the pool with this `uid`. Messages about the sender's requests in flight
    follow.
    """

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The message to a deciding router that it no longer decides for the sender's requests to the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A router's message that it does not decide, or no longer decides, for the receiver's requests to the pool."""


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
    """A message of the protocol. `pool`: the `namespace/name` of its pool, or "" for a message about no pool."""

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
        """Yield the frames that `data` completes. `largest` may be changed between two frames. Raises FrameError."""
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
    """Return the message without its request's block keys beyond `MOST_BLOCKS`, so that it fits into a frame. The other
    fields of a request are short.
    """
    if not isinstance(word, Asked | UnderWay):
        return word
    request = word.request
    if len(request.blocks) <= MOST_BLOCKS and len(request.engine_blocks) <= MOST_BLOCKS:
        return word
    cut = replace(request, blocks=request.blocks[:MOST_BLOCKS], engine_blocks=request.engine_blocks[:MOST_BLOCKS])
    return replace(word, request=cut)


def named(request_id: str) -> RoutingRequest:
    """Return a request that has only this id, for use in a decision. The router that asked for the decision knows the
    other fields.
    """
    return RoutingRequest(id=request_id, arrived_at=0.0, prompt_tokens=0, blocks=(), first_bytes_hash=0)
