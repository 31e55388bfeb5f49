"""Gives engines the priority of a request's class (`spec.engine.passPriority`), where and as each kind reads it.

What a client writes in the field or in the header is replaced or taken out, because its class is what it may have. Read
in the sources of vLLM 0.32 and SGLang 0.5.23:

- vLLM serves the lowest number first, and takes a missing one for 0. Every path that generates or pools has the body's
  field, except Anthropic's protocol; where an answer is generated, a header is preferred to the field
  (`entrypoints/generate/base/serving.py`).
- SGLang serves the highest number first, and a request without one last (`managers/scheduler.py`). The field counts
  on fewer paths: `/v1/responses` has it and gives it to nobody. A header is read in chats, messages and invocations, if
  SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES is set (`request_headers.py`).
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
"""Stands for a path that only the proxy of an endpoint picker understands: it gets both the field and the header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityPlaces:
    """Where one kind of engine reads a request's priority.

    `sign`: 1 if the highest number goes first there, as with classes, else -1.
    `zero`: whether the number 0 differs from none.
    `fields`: the paths on which the body's field counts.
    `header`: the header that the engine prefers to the field.
    `by_header`: the paths on which the header is needed.
    """

    sign: int
    zero: bool
    fields: frozenset[str]
    header: bytes
    by_header: frozenset[str] = frozenset({_MESSAGES, _UNKNOWN})

    def body(self, body: bytes, parsed: ParsedRequest, endpoint: Endpoint, priority: int) -> bytes:
        """Return the body, of which `parsed` was made, with the priority of its class. The body stays as it is if the
        client wrote no priority, and the engine needs none in it.
        """
        document = parsed.document
        if _FIELD not in document and not (endpoint.path in self.fields and (priority or self.zero)):
            return body
        return edited(body, document, {_FIELD: self.sign * priority})

    def header_value(self, path: str, priority: int) -> bytes | None:
        """Return the header's value for a request at this path; None if the engine needs none."""
        return b"%d" % (self.sign * priority) if path in self.by_header and (priority or self.zero) else None

    def head(self, forwarded: bytes, endpoint: Endpoint, priority: int) -> bytes:
        """Return the header lines for an engine with the priority of the class instead of the client's."""
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
"""The places of each `engine.type`. Simulated engines read what a vLLM reads."""
