"""The messages of ext_proc, as far as an endpoint picker needs them, without any wire format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

HeaderList = list[tuple[bytes, bytes]]

NO_SCORES: Mapping[str, float] = MappingProxyType({})


class Side(Enum):
    """The direction of a message: about the client's request, or about its response."""

    REQUEST = "request"
    RESPONSE = "response"


class HeadersCame(NamedTuple):
    """The headers of a request or response. `ended`: there is neither body nor trailers.

    `subset` are the only endpoints to choose from, `served` is the endpoint that answered; None = the proxy did not
    say. `other_modes` names a processing mode that the proxy asks for and the picker does not support; empty = none.
    """

    side: Side
    headers: HeaderList
    ended: bool
    subset: tuple[str, ...] | None = None
    served: str | None = None
    other_modes: str = ""


class BodyCame(NamedTuple):
    """A piece of the body of a request or response; `ended`: the last piece, without trailers after it."""

    side: Side
    piece: bytes
    ended: bool


class TrailersCame(NamedTuple):
    """The trailers of a request or response, after its body."""

    side: Side


Incoming = HeadersCame | BodyCame | TrailersCame


class PassHeaders(NamedTuple):
    """The message that lets the headers go on, with some of them set and some removed. `destination` are endpoints in
    the order in which they are to be tried, `scores` their scores.
    """

    side: Side
    changed: Sequence[tuple[bytes, bytes]] = ()
    removed: Sequence[bytes] = ()
    destination: str | None = None
    scores: Mapping[str, float] = NO_SCORES


class PassBody(NamedTuple):
    """The message that lets a piece of body go on."""

    side: Side
    piece: bytes
    ended: bool


class PassTrailers(NamedTuple):
    """The message that lets the trailers go on."""

    side: Side


class AnswerAtOnce(NamedTuple):
    """The message that answers the client with this, without any engine."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    details: str
    """For the proxy's access log."""


Outgoing = PassHeaders | PassBody | PassTrailers | AnswerAtOnce
