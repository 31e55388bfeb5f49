"""The messages of ext_proc, as far as an endpoint picker needs them, without any wire format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

HeaderList = list[tuple[bytes, bytes]]

NO_SCORES: Mapping[str, float] = MappingProxyType({})


class Side(Enum):
    """Whether a message is about the client's request or about its response."""

    REQUEST = "request"
    RESPONSE = "response"


class HeadersCame(NamedTuple):
    """Headers of one side. `ended`: there is neither body nor trailers.

    `subset` are the only endpoints to choose from, `served` is the one that answered; None = the proxy did not say.
    `other_modes` names a way in which the proxy wants to be answered that a picker cannot; empty = none.
    """

    side: Side
    headers: HeaderList
    ended: bool
    subset: tuple[str, ...] | None = None
    served: str | None = None
    other_modes: str = ""


class BodyCame(NamedTuple):
    """A piece of one side's body; `ended`: the last, without trailers."""

    side: Side
    piece: bytes
    ended: bool


class TrailersCame(NamedTuple):
    """The trailers of one side: its body has ended."""

    side: Side


Incoming = HeadersCame | BodyCame | TrailersCame


class PassHeaders(NamedTuple):
    """Let the headers of one side go on, with these set and those removed; `destination` are endpoints in the order in
    which they are to be tried, `scores` how endpoints compared.
    """

    side: Side
    changed: Sequence[tuple[bytes, bytes]] = ()
    removed: Sequence[bytes] = ()
    destination: str | None = None
    scores: Mapping[str, float] = NO_SCORES


class PassBody(NamedTuple):
    """Let a piece of body go on."""

    side: Side
    piece: bytes
    ended: bool


class PassTrailers(NamedTuple):
    """Let the trailers go on."""

    side: Side


class AnswerAtOnce(NamedTuple):
    """Answer the client with this and ask no engine."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    details: str
    """For the proxy's access log."""


Outgoing = PassHeaders | PassBody | PassTrailers | AnswerAtOnce
