"""A pure state machine for the order of messages of one picked request, in an ext_proc stream in full-duplex mode.

    headers ─► body … ─► Whole ──(pick)──► headers, body … passed on    request
    headers ─► began ─► body … ─► ended, each passed on as it arrives   response

The request's headers are passed on only when its body has arrived, because the destination is chosen only then. A
response may arrive at any time, because a proxy that gives a request up responds to the client itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from fairlead_router.picking.messages import (
    NO_SCORES,
    AnswerAtOnce,
    BodyCame,
    HeaderList,
    HeadersCame,
    Incoming,
    Outgoing,
    PassBody,
    PassHeaders,
    PassTrailers,
    Side,
    TrailersCame,
)

LARGEST_PIECE = 62_000
"""Maximum number of bytes of a body in one message, because some proxies accept no more than 64 KiB."""

INVALID_ARGUMENT, FAILED_PRECONDITION = 3, 9


class Stage(Enum):
    """The stage of a stream."""

    NEW = "new"
    READING = "reading"
    """The request's body is arriving."""
    DECIDING = "deciding"
    PICKED = "picked"
    RESPONDING = "responding"
    RESPONDED = "responded"
    OVER = "over"
    """The stream has ended; all further messages are ignored."""


class Say(NamedTuple):
    """An action: send a message to the proxy."""

    message: Outgoing


class Whole(NamedTuple):
    """An action: choose a destination for the request, which has fully arrived. The receiver of the action owns the
    body.
    """

    headers: HeaderList
    body: bytes
    subset: tuple[str, ...] | None


class TooLarge(NamedTuple):
    """An action: respond to the client with an error, because the request's body is larger than allowed."""


class ResponseBegan(NamedTuple):
    """A report: the response for the client has begun. `served`: the endpoint that the proxy reports, or None."""

    headers: HeaderList
    served: str | None


class ResponsePiece(NamedTuple):
    """A report: a further piece of the response's body has arrived. The receiver of the report passes the piece on.
    `last`: no further piece follows. `ended`: no trailers follow either.
    """

    piece: bytes
    last: bool
    ended: bool


class ResponseEnded(NamedTuple):
    """A report: the response is complete."""


class Abandoned(NamedTuple):
    """A report: the stream ended before the response was complete."""


class Finish(NamedTuple):
    """An action: end the stream with this gRPC status."""

    status: int = 0
    message: str = ""


Action = Say | Whole | TooLarge | ResponseBegan | ResponsePiece | ResponseEnded | Abandoned | Finish


class Exchange:
    """The state machine of one stream. Each method returns the actions to do now, in order. `Finish` is the last
    action.
    """

    __slots__ = ("_body", "_headers", "_most_bytes", "_trailers", "bodiless", "size", "stage", "subset")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._headers: HeaderList = []
        self._body = bytearray()  # not its pieces, which may be of a few bytes each
        self._trailers = False
        self.bodiless = False
        self.size = 0
        self.subset: tuple[str, ...] | None = None
        self.stage = Stage.NEW

    def hear(self, message: Incoming | None) -> Sequence[Action]:
        """Return the actions for a message of the proxy; `message` is None if the message has an unknown type."""
        if self.stage is Stage.OVER:
            return ()
        if message is None:
            return self._violated("a message without a request or response")
        if isinstance(message, HeadersCame) and message.other_modes:
            remedy = "set request_body_mode and response_body_mode to FULL_DUPLEX_STREAMED, and no observability_mode"
            return self._close(FAILED_PRECONDITION, f"{message.other_modes}; {remedy}")
        if message.side is Side.RESPONSE:
            return self._hear_response(message)
        return self._hear_request(message)

    def damaged(self) -> Sequence[Action]:
        """Return the actions for received bytes that cannot be decoded."""
        return self._violated("not a ProcessingRequest")

    def half_closed(self) -> Sequence[Action]:
        """Return the actions when the proxy sends no more messages."""
        return self._close(0, "")

    def gone(self) -> Sequence[Action]:
        """Return the actions for a stream that has ended. They send no messages, because no message can be sent any
        more.
        """
        return self._close(0, "")

    def picked(
        self,
        destination: str,
        changed: Sequence[tuple[bytes, bytes]],
        removed: Sequence[bytes],
        body: bytes,
        scores: Mapping[str, float] = NO_SCORES,
    ) -> Sequence[Action]:
        """Return the actions that send the request to `destination`. `changed`, `removed`: the headers to set and to
        remove. `body`: the new body, if the request has a body. `scores`: the scores of the compared endpoints.
        """
        if self.stage is not Stage.DECIDING:
            return ()
        self.stage = Stage.PICKED
        actions: list[Action] = []
        if not self.bodiless:
            changed = [*changed, (b"content-length", b"%d" % len(body))]
            actions.append(Say(PassHeaders(Side.REQUEST, changed, removed, destination, scores)))
            actions += _pieces(Side.REQUEST, body, ended=not self._trailers)
            if self._trailers:
                actions.append(Say(PassTrailers(Side.REQUEST)))
        else:
            actions.append(Say(PassHeaders(Side.REQUEST, changed, removed, destination, scores)))
        return actions

    def refused(self, answer: AnswerAtOnce) -> Sequence[Action]:
        """Return the actions that send this response to the client. Return no actions if another response has already
        begun.
        """
        if self.stage not in (Stage.NEW, Stage.READING, Stage.DECIDING, Stage.PICKED):
            return ()
        self.stage = Stage.OVER
        self._body = bytearray()
        return (Say(answer), Finish())

    # ── the request ──

    def _hear_request(self, message: Incoming) -> Sequence[Action]:
        if isinstance(message, HeadersCame):
            if self.stage is not Stage.NEW:
                return self._violated("request_headers must come once, before everything else")
            self._headers, self.subset = message.headers, message.subset
            self.stage = Stage.READING
            if message.ended:
                self.bodiless = True
                return self._complete()
            return ()
        if self.stage in (Stage.RESPONDING, Stage.RESPONDED):
            return ()  # the client was answered before its request had come
        if self.stage is not Stage.READING:
            name = "request_body" if isinstance(message, BodyCame) else "request_trailers"
            return self._violated(f"{name} {'before request_headers' if self.stage is Stage.NEW else 'after the end of the request'}")
        if isinstance(message, TrailersCame):
            self._trailers = True
            return self._complete()
        self.size += len(message.piece)
        if self.size > self._most_bytes:
            return (TooLarge(),)
        self._body += message.piece
        return self._complete() if message.ended else ()

    def _complete(self) -> Sequence[Action]:
        self.stage = Stage.DECIDING
        headers, self._headers = self._headers, []
        whole, self._body = bytes(self._body), bytearray()
        return (Whole(headers, whole, self.subset),)

    # ── the response ──

    def _hear_response(self, message: Incoming) -> Sequence[Action]:
        if isinstance(message, HeadersCame):
            if self.stage in (Stage.RESPONDING, Stage.RESPONDED):
                return self._violated("response_headers must come once")
            self.stage = Stage.RESPONDING
            self._body = bytearray()
            began = ResponseBegan(message.headers, message.served)
            return (began, *self._ended()) if message.ended else (began,)
        if self.stage is not Stage.RESPONDING:
            name = "response_body" if isinstance(message, BodyCame) else "response_trailers"
            return self._violated(
                f"{name} {'after the end of the response' if self.stage is Stage.RESPONDED else 'before response_headers'}"
            )
        if isinstance(message, TrailersCame):
            return (ResponsePiece(b"", last=True, ended=False), *self._ended(), Say(PassTrailers(Side.RESPONSE)))
        piece = ResponsePiece(message.piece, last=message.ended, ended=message.ended)
        return (piece, *self._ended()) if message.ended else (piece,)

    @staticmethod
    def passed(body: bytes, *, ended: bool) -> Sequence[Action]:
        """Return the actions that pass this piece of the response's body on to the client."""
        return _pieces(Side.RESPONSE, body, ended=ended) if body or ended else ()

    def _ended(self) -> Sequence[Action]:
        self.stage = Stage.RESPONDED
        return (ResponseEnded(),)

    # ── the end ──

    def _violated(self, what: str) -> Sequence[Action]:
        return self._close(INVALID_ARGUMENT, what)

    def _close(self, status: int, message: str) -> Sequence[Action]:
        if self.stage is Stage.OVER:
            return ()
        done = self.stage is Stage.RESPONDED
        self.stage = Stage.OVER
        self._body = bytearray()
        return (Finish(status, message),) if done else (Abandoned(), Finish(status, message))


def _pieces(side: Side, body: bytes, *, ended: bool) -> list[Action]:
    """Return the actions that send the body, in messages of at most `LARGEST_PIECE` bytes. An empty body is one
    message.
    """
    if len(body) <= LARGEST_PIECE:
        return [Say(PassBody(side, body, ended))]
    last = len(body) - 1
    return [
        Say(PassBody(side, body[start : start + LARGEST_PIECE], ended and start + LARGEST_PIECE > last))
        for start in range(0, len(body), LARGEST_PIECE)
    ]
