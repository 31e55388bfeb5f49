"""What routers say to each other on the wire: four bytes of length, then MessagePack of kind, pool and body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import (
    Abandoned,
    Asked,
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

PROTOCOL = 2
"""Routers of another number do not ask each other."""

LARGEST_FRAME = 8 * 1024 * 1024
_LENGTH_BYTES = 4


class FrameError(Exception):
    """The bytes are no frame of this protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first word of a router that may ask; `now` is its own clock's."""

    protocol: int
    router: str
    secret: str
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The answer to `Hello`. The `proof` stands in the router's file: whoever got a dead router's port lacks it."""

    proof: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """Said now and then, and answered, so that a silent end is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """From now on the pool of this `uid` is asked for; what is under way follows."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The pool is asked for no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """This router does not decide for the pool."""


Control = Hello | Welcome | Alive | Join | Leave | Gone
Body = Control | Word | Dispatch | Refusal

_KINDS: tuple[type[Body], ...] = (
    Hello,
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
)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_encode = msgspec.msgpack.Encoder().encode
_outer = msgspec.msgpack.Decoder(tuple[int, str, msgspec.Raw])
_inner = [msgspec.msgpack.Decoder(kind) for kind in _KINDS]


class Frame(NamedTuple):
    """A pool's `namespace/name`, or "" where it is about none, and what is said."""

    pool: str
    body: Body


def encode(frame: Frame) -> bytes:
    """The bytes of a frame."""
    content = _encode((_NUMBERS[type(frame.body)], frame.pool, frame.body))
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


class FrameReader:
    """Cuts what comes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now. Raises FrameError."""
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        begin = 0
        while len(buffer) - begin >= _LENGTH_BYTES:
            length = int.from_bytes(buffer[begin : begin + _LENGTH_BYTES], "big")
            if length > LARGEST_FRAME:
                raise FrameError(f"a frame of {length} bytes")
            end = begin + _LENGTH_BYTES + length
            if end > len(buffer):
                break
            frames.append(_decode(bytes(buffer[begin + _LENGTH_BYTES : end])))
            begin = end
        del buffer[:begin]
        return frames


def _decode(content: bytes) -> Frame:
    try:
        number, pool, body = _outer.decode(content)
        if not 0 <= number < len(_inner):
            raise FrameError(f"kind {number}")
        return Frame(pool, _inner[number].decode(body))
    except msgspec.DecodeError as error:
        raise FrameError(str(error)) from None


def named(request_id: str) -> RoutingRequest:
    """A request in a verdict: its router has the rest of it."""
    return RoutingRequest(id=request_id, arrived_at=0.0, prompt_tokens=0, blocks=(), first_bytes_hash=0)
