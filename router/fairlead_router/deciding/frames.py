"""The messages between routers on the wire: four bytes of length, then MessagePack of kind, pool and body."""

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
"""Version of the protocol. Routers with different numbers do not ask each other."""

LARGEST_FRAME = 1024 * 1024
"""Maximum number of bytes of a frame."""
LARGEST_GREETING = 1024
"""The same limit for a router that has not yet proven that it may ask."""
MOST_BLOCKS = 48 * 1024
"""Maximum number of blocks of each kind sent for a prompt, from its beginning. The rest of a longer prompt counts as
cached nowhere.
"""
_LENGTH_BYTES = 4


class FrameError(Exception):
    """The bytes are not a frame of this protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of a router that wants to ask. `now` is the time of its own clock; `nonce` was never sent
    before.
    """

    protocol: int
    router: str
    nonce: bytes
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The answer to `Hello`."""

    nonce: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The answer to `Challenge`: it shows that the asking router knows the secret of the router that it asks."""

    code: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The answer to a valid `Proof`: it proves that the asked router knows the secret too. The address of a killed
    router may belong to any process by now.
    """

    code: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A message sent several times a second, and answered, so that the silent end of a connection is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """From now on the sender asks for the pool of this `uid`. Its requests in flight follow."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The sender no longer asks for the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """This router does not decide for the pool."""


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
    """A pool's `namespace/name`, or "" for a frame about no pool, and the body."""

    pool: str
    body: Body


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    content = _encode((_NUMBERS[type(frame.body)], frame.pool, frame.body))
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


class FrameReader:
    """Cuts the received bytes into frames of at most `largest` bytes each."""

    def __init__(self, largest: int = LARGEST_FRAME) -> None:
        self.largest = largest
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete; `largest` may change from one frame to the next. Raises FrameError."""
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
    """Return the message, shortened to fit into a frame whatever its request's length; names in a request are short."""
    if not isinstance(word, Asked | UnderWay):
        return word
    request = word.request
    if len(request.blocks) <= MOST_BLOCKS and len(request.engine_blocks) <= MOST_BLOCKS:
        return word
    cut = replace(request, blocks=request.blocks[:MOST_BLOCKS], engine_blocks=request.engine_blocks[:MOST_BLOCKS])
    return replace(word, request=cut)


def named(request_id: str) -> RoutingRequest:
    """Return the request of a verdict, with its id only: the router that asked has the other fields."""
    return RoutingRequest(id=request_id, arrived_at=0.0, prompt_tokens=0, blocks=(), first_bytes_hash=0)
