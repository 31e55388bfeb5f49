"""Passes the priority of a request's class to its engine (`spec.engine.passPriority`), in the place and form that the
engine type reads.

A priority that the client writes into the field or the header is replaced or removed, because the request's class
determines its priority. The places are from the sources of vLLM 0.32 and SGLang 0.5.23:

- vLLM serves the lowest number first, and treats a missing number as 0. It reads the body's field on every path that
  generates or pools, except for Anthropic's protocol. On paths that generate, a header takes precedence over the field
  (`entrypoints/generate/base/serving.py`).
- SGLang serves the highest number first, and requests without a number last (`managers/scheduler.py`). It reads the
  field on fewer paths; on `/v1/responses` it accepts the field but ignores it. It reads a header for chats, messages
  and invocations, if SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES is set (`request_headers.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairlead_router.protocols.body_edits import edited
from fairlead_router.protocols.paths import ENDPOINTS, Endpoint, Handling
from fairlead_router.protocols.requests import OVERRIDE_PREFIX, ParsedRequest

_FIELD = "priority"
_MESSAGES = "/v1/messages"
_UNKNOWN = ""
"""Stands for paths that the gateway does not know and that only an endpoint picker's proxy uses. Requests to such a
path get both the field and the header.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityPlaces:
    """The places in which an engine type reads a request's priority.

    `sign`: 1 if the engine serves the highest number first, as with classes; -1 otherwise. `zero`: whether the number 0
    differs from a missing number. `fields`: the paths on which the engine reads the body's field. `header`: the header
    that takes precedence over the field. `by_header`: the paths on which the header is needed.
    """

    sign: int
    zero: bool
    fields: frozenset[str]
    header: bytes
    by_header: frozenset[str] = frozenset({_MESSAGES, _UNKNOWN})

    def body(self, body: bytes, parsed: ParsedRequest, endpoint: Endpoint, priority: int) -> bytes:
        """Return the body with the priority of its class. `parsed` was made from this body. The body is unchanged if
        the client wrote no priority and the engine needs no priority in the body.
        """
        document = parsed.document
        if _FIELD not in document and not (endpoint.path in self.fields and (priority or self.zero)):
            return body
        return edited(body, document, {_FIELD: self.sign * priority})

    def header_value(self, path: str, priority: int) -> bytes | None:
        """Return the value of the priority header for a request to this path; None if the engine needs no header."""
        return b"%d" % (self.sign * priority) if path in self.by_header and (priority or self.zero) else None

    def head(self, forwarded: bytes, endpoint: Endpoint, priority: int) -> bytes:
        """Return the header lines for an engine, with the class's priority in place of a priority from the client."""
        start = self.header + b":"
        if start in forwarded:
            forwarded = b"".join(line for line in forwarded.splitlines(keepends=True) if not line.startswith(start))
        value = self.header_value(endpoint.path, priority)
        return forwarded if value is None else b"%b%b %b\r\n" % (forwarded, start, value)


_VLLM = PriorityPlaces(
    sign=-1,
    zero=False,
    fields=frozenset(endpoint.path for endpoint in ENDPOINTS if endpoint.handling is Handling.ROUTED) - {_MESSAGES} | {_UNKNOWN},
    header=b"x-vllm-priority",
)
_SGLANG = PriorityPlaces(
    sign=1,
    zero=True,
    fields=frozenset({"/v1/chat/completions", "/v1/completions", "/invocations", "/v1/embeddings", "/classify", _UNKNOWN}),
    header=OVERRIDE_PREFIX + b"priority",
)
PLACES: Final = {"vllm": _VLLM, "simulated": _VLLM, "sglang": _SGLANG}
"""By `engine.type`: the places of the priority. Simulated engines read the same places as vLLM."""
