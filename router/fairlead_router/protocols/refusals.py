"""The error responses that the router itself makes. Each has a body in the client's protocol, with a reason, and
headers. The status of each reason is in `fairlead.reports.rejections`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.reports.rejections import RejectionReason
from fairlead.routing.admission.refusals import why_closed
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.tables import RoutingTable
from fairlead_router.protocols.dialects import Dialect, error_body
from fairlead_router.protocols.kept_headers import decision_headers

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """A complete error response: HTTP status, headers and JSON body."""

    status: int
    headers: Headers
    body: bytes


class BadRequest(Exception):
    """An exception: a client's request is refused.

    `code`: the name of the error. `param`: the invalid field of the body. `extra`: further headers of the response.
    """

    def __init__(self, status: int, code: str, message: str, param: str | None = None, extra: Headers | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.extra = extra or []

    def answer(self, dialect: Dialect = Dialect.OPENAI, *, close: bool = False) -> ErrorAnswer:
        """Return the response to send. `close`: whether the connection ends after the response."""
        extra: Headers = [*self.extra, (b"connection", b"close")] if close else self.extra
        return error_answer(dialect, self.status, self.code, self.message, self.param, extra)


def error_answer(
    dialect: Dialect, status: int, code: str, message: str, param: str | None = None, extra: Headers | None = None
) -> ErrorAnswer:
    """Return an error response with a body in the protocol's format and the `extra` headers."""
    body = error_body(dialect, status, code, message, param)
    headers: Headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers.extend(extra or [])
    return ErrorAnswer(status=status, headers=headers, body=body)


def body_too_large(limit: int, setting: str) -> BadRequest:
    """Return a 413 for a body that is too large. `setting` names the environment variable with the limit."""
    return BadRequest(413, "request_too_large", f"the body is larger than {limit} bytes; send less ({setting})")


def body_too_slow(seconds: float) -> BadRequest:
    """Return a 408 for a body that did not arrive in time."""
    return BadRequest(408, "body_timeout", f"the body did not arrive within {seconds:g} s")


MEMORY_FULL = "body_memory_full"


def memory_full() -> BadRequest:
    """Return a 503 for a body for which the router has no memory at the moment."""
    message = "the router has no memory left for request bodies (FAIRLEAD_BODY_MEMORY_BYTES); send the request again"
    return BadRequest(503, MEMORY_FULL, message, None, [(b"retry-after", b"1")])


def own_fault(request: str, dialect: Dialect) -> ErrorAnswer:
    """Return a 500 for a bug of the router. The response has an id by which the log entry can be found, and never a
    traceback.
    """
    message = f"the router failed to handle this request; its log has the details under {request}"
    return error_answer(dialect, 500, "internal_error", message)


def _dropped(
    dialect: Dialect, reason: RejectionReason, message: str, retry_after_seconds: float | None, extra: Headers, status: int | None = None
) -> ErrorAnswer:
    """Return the response for a request that was dropped for this reason. `status`: the HTTP status; None = the
    reason's own status.
    """
    word = reason.value.encode()
    headers: Headers = [(b"x-llm-d-request-dropped-reason", word), (b"x-fairlead-rejection", word), *extra]
    if retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(min(retry_after_seconds, 86400.0)))))
    return error_answer(dialect, status or reason.facts.status, reason.value, message, None, headers)


SENDS_AGAIN = b"x-should-retry"
"""The header by which a server lets the SDKs of OpenAI and Anthropic send a request again or not. Without the header,
these SDKs repeat a request twice after a 408, 409, 429 or 5xx (`_base_client.py` of both).
"""


def refusal_answer(
    refusal: Refusal, pool: bytes, dialect: Dialect = Dialect.OPENAI, engine: Sequence[tuple[bytes, bytes]] = ()
) -> ErrorAnswer:
    """Return the response for a scheduler's refusal, with status, Retry-After and reason. `engine`: headers of the last
    engine that was tried. The response for a final refusal has no Retry-After, but the header that stops SDKs from
    sending again.
    """
    extra = [(b"x-fairlead-pool", pool), *decision_headers(refusal), *engine]
    seconds: float | None = refusal.retry_after_seconds
    if refusal.is_final:
        seconds, extra = None, [*(header for header in extra if header[0] != SENDS_AGAIN), (SENDS_AGAIN, b"false")]
    return _dropped(dialect, refusal.reason, refusal.message, seconds, extra, refusal.status)


def upstream_failed(
    message: str,
    pool: bytes,
    dialect: Dialect = Dialect.OPENAI,
    retry_after: float | None = None,
    engine: Sequence[tuple[bytes, bytes]] = (),
    decided: Dispatch | None = None,
) -> ErrorAnswer:
    """Return a 502, because engines were tried and none sent a complete answer.

    `retry_after`: the seconds after which the last engine accepts a retry; None = it named no time. `engine`: headers
    of the last engine's response. `decided`: the decision about a routed request; None for other requests.
    """
    extra = [(b"x-fairlead-pool", pool), *(decision_headers(decided) if decided is not None else ()), *engine]
    return _dropped(dialect, RejectionReason.UPSTREAM_FAILED, message, retry_after or 1.0, extra)


def nobody_serves(message: str, pool: bytes, dialect: Dialect = Dialect.OPENAI) -> ErrorAnswer:
    """Return a 503, because the pool has no instance that accepts requests."""
    return _dropped(dialect, RejectionReason.NO_INSTANCES, message, 1.0, [(b"x-fairlead-pool", pool)])


def closed(table: RoutingTable, now: float, pool: bytes, dialect: Dialect = Dialect.OPENAI) -> ErrorAnswer:
    """Return a 503, because the pool intentionally has no instances, and a request does not start one."""
    message, retry_after = why_closed(table, now)
    return _dropped(dialect, RejectionReason.SCALED_TO_ZERO, message, retry_after, [(b"x-fairlead-pool", pool)])


def shutting_down(dialect: Dialect = Dialect.OPENAI) -> ErrorAnswer:
    """Return a 503, because this router drains. Other routers serve the request if it is sent again."""
    message = "this router is shutting down; send the request again"
    return _dropped(dialect, RejectionReason.SHUTTING_DOWN, message, 1.0, [(b"connection", b"close")])
