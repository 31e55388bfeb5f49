"""Answers the router gives itself: OpenAI-style error bodies with a named reason, and the headers that go with them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import orjson

from fairlead.reports import RejectionReason
from fairlead.routing.protocols import Refusal

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """A complete answer: HTTP status, headers and JSON body."""

    status: int
    headers: Headers
    body: bytes


class BadRequest(Exception):
    """A client's request cannot be used. `code` is the error's name, `param` the field of the body at fault."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param

    def answer(self, *, close: bool = False) -> ErrorAnswer:
        """The answer to send; with `close` the connection ends after it."""
        extra: Headers = [(b"connection", b"close")] if close else []
        return error_answer(self.status, "invalid_request_error", self.code, self.message, self.param, extra)


def error_body(kind: str, code: str, message: str, param: str | None = None) -> bytes:
    """The OpenAI error document as JSON bytes."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_answer(status: int, kind: str, code: str, message: str, param: str | None = None, extra: Headers | None = None) -> ErrorAnswer:
    """An error answer with the OpenAI body and `extra` headers."""
    body = error_body(kind, code, message, param)
    headers: Headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers.extend(extra or [])
    return ErrorAnswer(status=status, headers=headers, body=body)


def _dropped(status: int, reason: RejectionReason, message: str, retry_after_seconds: float | None, extra: Headers) -> ErrorAnswer:
    word = reason.value.encode()
    headers: Headers = [(b"x-llm-d-request-dropped-reason", word), (b"x-fairlead-rejection", word), *extra]
    if retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(min(retry_after_seconds, 86400.0)))))
    kind = "rate_limit_error" if status == 429 else "server_error"
    return error_answer(status, kind, reason.value, message, None, headers)


def refusal_answer(refusal: Refusal, pool: bytes) -> ErrorAnswer:
    """A scheduler's refusal as 429 or 503 with Retry-After and the reason."""
    return _dropped(refusal.status, refusal.reason, refusal.message, refusal.retry_after_seconds, [(b"x-fairlead-pool", pool)])


def upstream_failed(message: str, pool: bytes) -> ErrorAnswer:
    """502: engines were tried and none answered."""
    return _dropped(502, RejectionReason.UPSTREAM_FAILED, message, None, [(b"x-fairlead-pool", pool)])


def shutting_down() -> ErrorAnswer:
    """503 while this router drains; another router serves."""
    return _dropped(
        503, RejectionReason.SHUTTING_DOWN, "this router is shutting down; send the request again", 1.0, [(b"connection", b"close")]
    )


def stream_error(message: str, *, mid_event: bool) -> bytes:
    """The server-sent event that ends a stream whose engine was lost. `mid_event`: the last event was cut and must be closed first."""
    event = b"data: " + error_body("server_error", RejectionReason.UPSTREAM_FAILED.value, message) + b"\n\n"
    return b"\n\n" + event if mid_event else event
