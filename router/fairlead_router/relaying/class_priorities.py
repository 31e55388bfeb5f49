"""Gives engines the priority of a request's class, in the body's field `priority` (`spec.engine.passPriority`).

vLLM 0.32 reads the field on every path that generates or pools, except in Anthropic's protocol: an integer, the lower
first, 0 if it is missing. In a class, as in llm-d's objectives, the higher number comes first. In all protocols, a
header takes precedence over the field in vLLM. A client's values of the header and of the field are replaced, because
only its class determines its priority.
"""

from __future__ import annotations

from fairlead_router.protocols.body_edits import edited
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.paths import Endpoint
from fairlead_router.protocols.requests import ParsedRequest

PRIORITY_HEADER = b"x-vllm-priority"
"""The header that a vLLM prefers to the body's field (`entrypoints/generate/base/serving.py`)."""

_FIELD = "priority"


def with_class_priority(body: bytes, parsed: ParsedRequest, endpoint: Endpoint, priority: int) -> bytes:
    """Return the body of the request `parsed` with the priority of its class. The body is unchanged if the client wrote
    no priority and either the class has priority 0 or the protocol has no such field.
    """
    document = parsed.document
    if _FIELD not in document and not (priority and endpoint.dialect is not Dialect.ANTHROPIC):
        return body
    return edited(body, document, {_FIELD: -priority})


def without_priority_header(forwarded: bytes) -> bytes:
    """Return the header lines for an engine without the client's own priority."""
    return b"".join(line for line in forwarded.splitlines(keepends=True) if not line.startswith(PRIORITY_HEADER + b":"))
