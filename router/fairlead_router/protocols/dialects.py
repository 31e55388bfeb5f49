"""The protocols of clients.

They differ in the format of an error, of an error inside a stream, and of the first token of a stream.
"""

from __future__ import annotations

from enum import Enum

import orjson


class Dialect(Enum):
    """A protocol of clients. OPENAI stands for all protocols that have no member of their own."""

    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def _openai_type(status: int) -> str:
    if status == 401:
        return "authentication_error"
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def error_body(dialect: Dialect, status: int, code: str, message: str, param: str | None = None) -> bytes:
    """Return the JSON bytes of an error response.

    Anthropic's format has no fields for `code` and `param`, so its message begins with the code.
    """
    if dialect is Dialect.ANTHROPIC:
        kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return orjson.dumps({"type": "error", "error": {"type": kind, "message": f"{code}: {message}"}})
    return orjson.dumps({"error": {"message": message, "type": _openai_type(status), "param": param, "code": code}})


def error_event(dialect: Dialect, code: str, message: str, *, mid_event: bool, sequence: int = 0) -> bytes:
    """Return the server-sent event with which a broken stream ends.

    `mid_event`: whether the previous event was cut off and must be ended first. `sequence`: the number of events before
    this event, which the Responses protocol writes into it.
    """
    if dialect is Dialect.RESPONSES:
        document = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": sequence}
        event = b"event: error\ndata: " + orjson.dumps(document) + b"\n\n"
    elif dialect is Dialect.ANTHROPIC:
        event = b"event: error\ndata: " + error_body(dialect, 500, code, message) + b"\n\n"
    else:
        event = b"data: " + error_body(dialect, 500, code, message) + b"\n\n"
    return b"\n\n" + event if mid_event else event
