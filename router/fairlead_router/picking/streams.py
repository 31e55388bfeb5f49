"""The streams of the picker's port. It passes the messages of each gRPC call to the call's exchange, does the actions
that the exchange returns, and responds to health checks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from fairlead_process.grpc_server.grpc_stream import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    GrpcStream,
)
from fairlead_router.picking import wire
from fairlead_router.picking.accounts import Account, NoAccount
from fairlead_router.picking.exchange import (
    Abandoned,
    Action,
    Exchange,
    Finish,
    ResponseBegan,
    ResponseEnded,
    ResponsePiece,
    Say,
    Stage,
    TooLarge,
    Whole,
)
from fairlead_router.picking.messages import AnswerAtOnce, BodyCame, HeaderList, Incoming, PassHeaders, Side
from fairlead_router.picking.picked_request import PickedRequest
from fairlead_router.picking.picker import Picker
from fairlead_router.protocols.kept_headers import KEPT_HEADER, NO_DECISION, NOT_ALLOWED, asks_to_explain
from fairlead_router.protocols.refusals import ErrorAnswer
from fairlead_router.serving.body_memory import MemoryShare

PROCESS = b"/envoy.service.ext_proc.v3.ExternalProcessor/Process"
HEALTH_CHECK = b"/grpc.health.v1.Health/Check"
HEALTH_WATCH = b"/grpc.health.v1.Health/Watch"

LARGEST_UNCOUNTED = 1024 * 1024
"""A piece of a response is buffered even if the memory for bodies is used up, as long as it has at most this many
bytes. Proxies send smaller pieces.
"""
LARGEST_HEADS = 1024 * 1024
"""Maximum number of bytes of a message without a body. Such messages do not count towards the memory for bodies."""
LARGEST_HEALTH_CHECK = 64 * 1024

LIVENESS = "liveness"
READINESS = ("", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor")

_NO_ACCOUNT = NoAccount()
_WITHHELD = (b"set-cookie", b"set-cookie2", b"clear-site-data", b"alt-svc", b"x-llm-d-request-dropped-reason")
"""Headers of an engine's response that the client does not get."""

logger = logging.getLogger(__name__)


class PickerStream:
    """The gRPC stream for one HTTP request at the proxy. `ended` is called when the stream is over."""

    __slots__ = ("_arriving", "_asked", "_ended", "_exchange", "_picker", "_stream", "arrived_at")

    def __init__(self, stream: GrpcStream, picker: Picker, ended: Callable[[PickerStream], None]) -> None:
        self._stream = stream
        self._picker = picker
        self._ended = ended
        self._exchange = Exchange(picker.most_bytes)
        self.arrived_at = picker.now()
        memory = MemoryShare(picker.body_memory, stream.connection)
        self._arriving = MemoryShare(picker.body_memory, stream.connection)
        """The memory for a message that has not fully arrived."""
        self._asked = PickedRequest([], stream.authority, self.arrived_at, memory, self._go, self._refuse)

    # ── what the connection says ──

    def message(self, payload: bytes) -> None:
        """Process a ProcessingRequest of the proxy."""
        try:
            came = wire.decode(payload)
        except wire.DecodeError:
            self._guarded(self._exchange.damaged)
            return
        if len(payload) > LARGEST_HEADS and not isinstance(came, BodyCame):
            self.break_off(RESOURCE_EXHAUSTED, f"headers of {len(payload)} bytes are more than {LARGEST_HEADS}")
            return
        self._guarded(lambda: self._exchange.hear(came) if self._has_room(came) else ())

    def _has_room(self, came: Incoming | None) -> bool:
        """Return whether there is memory for the message. If there is none, refuse the request."""
        if not isinstance(came, BodyCame) or came.side is not Side.REQUEST or self._exchange.stage is not Stage.READING:
            return True
        if self._asked.memory.take(len(came.piece)):
            return True
        self._picker.memory_full(self._asked)
        return False

    def keeps(self, size: int) -> bool:
        """Return whether `size` bytes of a message can be buffered until the rest arrives. A response in progress
        continues even if requests have used up the memory, unless its pieces are larger than usual.
        """
        share = self._arriving
        if size <= share.held:
            share.release(share.held - size)
            return True
        if share.take(size - share.held):
            return True
        if self._exchange.stage in (Stage.NEW, Stage.READING):
            self._picker.memory_full(self._asked)
            return True
        return size <= LARGEST_UNCOUNTED

    def half_closed(self) -> None:
        """Process the end of the proxy's messages."""
        self._guarded(self._exchange.half_closed)

    def gone(self) -> None:
        """Process the end of the stream."""
        self._guarded(self._exchange.gone)

    def _guarded(self, hear: Callable[[], Sequence[Action]]) -> None:
        try:
            self._do(hear())
        except Exception:  # a bug here must end this stream only
            logger.exception("a stream of the endpoint picker failed")
            self._finish(INTERNAL, "the router failed to handle this stream; its log has the details")

    # ── what is to be done ──

    def _do(self, actions: Iterable[Action]) -> None:
        asked = self._asked
        for action in actions:
            if isinstance(action, Say):
                self._stream.send(wire.encode(action.message))
            elif isinstance(action, ResponsePiece):
                shown = self._account.piece(action.piece, self._picker.now(), last=action.last)
                self._do(self._exchange.passed(shown, ended=action.ended))
            elif isinstance(action, Whole):
                asked.headers, asked.body = action.headers, action.body
                self._picker.pick(asked, action.subset, bodiless=self._exchange.bodiless)
            elif isinstance(action, ResponseBegan):
                self._began(action)
            elif isinstance(action, ResponseEnded):
                account, asked.account = self._account, None
                account.ended(self._picker.now())
            elif isinstance(action, TooLarge):
                self._picker.too_large(asked)
            elif isinstance(action, Abandoned):
                self._stream.drop()
                asked.abandon(self._picker.now())
            elif isinstance(action, Finish):
                self._finish(action.status, action.message)

    @property
    def _account(self) -> Account:
        return self._asked.account or _NO_ACCOUNT

    def _began(self, action: ResponseBegan) -> None:
        if self._asked.account is None and not self._asked.gone:
            self._asked.abandon(self._picker.now())  # the proxy answers itself what was not picked for yet
        self._let_go()
        changed = self._account.began(action.headers, action.served, self._picker.now())
        removed = [name for name, _ in action.headers if name in _WITHHELD or name.startswith(b"x-fairlead-")] if changed else []
        if changed:
            named = (b"x-request-id", self._asked.shown_id(self._picker.next_id).encode())
            changed = [*changed, named, *self._why_not_kept(changed)]
        self._stream.send(wire.encode(PassHeaders(Side.RESPONSE, changed, removed)))

    def _finish(self, status: int, message: str) -> None:
        self._asked.abandon(self._picker.now())  # does nothing to what was settled
        self._stream.finish(status, message)
        self._arriving.release()
        self._let_go()
        self._ended(self)

    def _let_go(self) -> None:
        """Drop the request's body. Release its memory when all queued bytes have been sent to the proxy."""
        self._asked.body = b""
        self._stream.when_sent(self._asked.memory.release)

    # ── what the picker says ──

    def _go(self, destination: str, removed: list[bytes], changed: HeaderList, body: bytes, scores: Mapping[str, float]) -> None:
        self._do(self._exchange.picked(destination, changed, removed, body, scores))
        self._let_go()

    def _refuse(self, answer: ErrorAnswer) -> None:
        reason = next((value for name, value in answer.headers if name == b"x-fairlead-rejection"), b"")
        headers = [pair for pair in answer.headers if pair[0] not in (b"content-length", b"connection")]
        headers.append((b"x-request-id", self._asked.shown_id(self._picker.next_id).encode()))
        headers += self._why_not_kept(headers)
        details = f"fairlead_{reason.decode() or answer.status}"
        self._do(self._exchange.refused(AnswerAtOnce(answer.status, headers, answer.body, details)))

    def _why_not_kept(self, headers: HeaderList) -> HeaderList:
        """Return a header with the reason why the routing decision is not kept, if the client asked to keep it. Empty
        if the client did not ask, or if the headers already have the reason.
        """
        if any(name == KEPT_HEADER for name, _ in headers) or not asks_to_explain(self._asked.headers):
            return []
        return [(KEPT_HEADER, NOT_ALLOWED if self._asked.is_denied else NO_DECISION)]

    # ── time ──

    def sweep(self, now: float, body_seconds: float, total_seconds: float) -> None:
        """End the stream if the request's body, or the whole request, takes longer than these seconds."""
        if self._exchange.stage is Stage.READING and now - self.arrived_at >= body_seconds:
            self._picker.too_slow(self._asked)
        elif self._exchange.stage is Stage.NEW and now - self.arrived_at >= body_seconds:
            self.break_off(DEADLINE_EXCEEDED, f"no request_headers came within {body_seconds:g} s")
        elif now - self.arrived_at >= total_seconds:
            self.break_off(DEADLINE_EXCEEDED, f"the request exceeded its total time of {total_seconds:g} s")

    def break_off(self, status: int = UNAVAILABLE, message: str = "this router stops") -> None:
        """End the stream with this gRPC status, even if its request is not complete."""
        self._exchange.gone()
        self._finish(status, message)


class HealthStream:
    """A call of grpc.health.v1.Health. `ready`: returns whether the router accepts requests. `watching`: the call gets
    every change of the state.
    """

    __slots__ = ("_ended", "_ready", "_service", "_stream", "_told", "_watching")

    def __init__(self, stream: GrpcStream, ready: Callable[[], bool], ended: Callable[[HealthStream], None], *, watching: bool) -> None:
        self._stream = stream
        self._ready = ready
        self._ended = ended
        self._watching = watching
        self._service: str | None = None
        self._told = 0

    def message(self, payload: bytes) -> None:
        """Respond to a HealthCheckRequest."""
        try:
            self._service = wire.decode_health(payload)
        except wire.DecodeError:
            self._stream.finish(INVALID_ARGUMENT, "not a HealthCheckRequest")
            self._ended(self)
            return
        if self._watching:
            self.look()
            return
        status = self._status()
        if status == wire.SERVICE_UNKNOWN:
            known = ", ".join((LIVENESS, *READINESS[1:]))
            self._stream.finish(NOT_FOUND, f"no service {self._service[:80]!r}; there are {known}")
        else:
            self._stream.send(wire.encode_health(status))
            self._stream.finish(0)
        self._ended(self)

    def keeps(self, size: int) -> bool:
        """Return whether a message of `size` bytes can be buffered. A health check is small, because it has only a
        service's name.
        """
        return size <= LARGEST_HEALTH_CHECK

    def half_closed(self) -> None:
        """Process the end of the caller's messages. A call without a request ends; a watch continues."""
        if self._service is None:
            self._stream.finish(INVALID_ARGUMENT, "no HealthCheckRequest")
            self._ended(self)

    def gone(self) -> None:
        """Forget this call, because its stream is gone."""
        self._ended(self)

    def look(self) -> None:
        """Send the current state to a watcher if the state has changed."""
        status = self._status()
        if self._service is not None and status != self._told:
            self._told = status
            self._stream.send(wire.encode_health(status))

    def _status(self) -> int:
        if self._service == LIVENESS:
            return wire.SERVING
        if self._service not in READINESS:
            return wire.SERVICE_UNKNOWN
        return wire.SERVING if self._ready() else wire.NOT_SERVING
