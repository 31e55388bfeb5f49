"""The ext_proc messages that an endpoint picker needs, independent of their encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

HeaderList = list[tuple[bytes, bytes]]

NO_SCORES: Mapping[str, float] = MappingProxyType({})


class Side(Enum):
    """The subject of a message: the request or the response."""

    REQUEST = "request"
    RESPONSE = "response"


class HeadersCame(NamedTuple):
    """The message with the headers of a request or response.

    `ended`: neither body nor trailers follow. `subset`: the only endpoints that may be chosen; None = the proxy did not
    say. `served`: the endpoint that sent the response; None = the proxy did not say. `other_modes`: a processing mode
    that the proxy requests and the picker does not support; empty = none.
    """

    side: Side
    headers: HeaderList
    ended: bool
    subset: tuple[str, ...] | None = None
    served: str | None = None
    other_modes: str = ""


class BodyCame(NamedTuple):
    """The message with a piece of the body of a request or response. `ended`: this is the last piece, and no trailers
    follow.
    """

    side: Side
    piece: bytes
    ended: bool


class TrailersCame(NamedTuple):
    """The message that a request or response ends with trailers after its body."""

    side: Side


Incoming = HeadersCame | BodyCame | TrailersCame


class PassHeaders(NamedTuple):
    """The message that lets the proxy pass the headers on. `changed`, `removed`: the headers to set and to remove.
    `destination`: the endpoints, in the order in which the proxy tries them. `scores`: the scores of endpoints.
    """

    side: Side
    changed: Sequence[tuple[bytes, bytes]] = ()
    removed: Sequence[bytes] = ()
    destination: str | None = None
    scores: Mapping[str, float] = NO_SCORES


class PassBody(NamedTuple):
    """The message that lets the proxy pass a piece of the body on. `ended`: nothing follows."""

    side: Side
    piece: bytes
    ended: bool


class PassTrailers(NamedTuple):
    """The message that lets the proxy pass the trailers on."""

    side: Side


class AnswerAtOnce(NamedTuple):
    """The message that makes the proxy send this response to the client, without asking an engine."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    details: str
    """A text for the proxy's access log."""


Outgoing = PassHeaders | PassBody | PassTrailers | AnswerAtOnce
