"""W3C Trace Context: reads the headers of a caller, and writes the headers for an engine.

https://www.w3.org/TR/trace-context/. A caller that sends a context decides whether its trace is sampled. Without a
context, the ids of the trace are derived from the request's id, so that the trace of a stored decision can be found by
the request's id.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from fairlead.routing.contracts.requests import TraceContext

Headers = list[tuple[bytes, bytes]]

TRACEPARENT, TRACESTATE = b"traceparent", b"tracestate"

_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED = 1
LONGEST_STATE = 512
"""Maximum number of bytes of a `tracestate` that is passed on. Every implementation must pass on this many bytes. A
longer `tracestate` is dropped.
"""

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/chat/completions/batch": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
"""By path: the operation name in the GenAI semantic conventions (`gen_ai.operation.name`). For any other path, the last
segment of the path is the name.
"""


class Caller(NamedTuple):
    """The trace context that the caller of a request sent."""

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str


def caller(headers: Headers) -> Caller | None:
    """Return the caller's trace context; None if it sent no valid context. Header names must be in lower case."""
    given = [value for name, value in headers if name == TRACEPARENT]
    found = _TRACEPARENT.fullmatch(given[0].strip()) if len(given) == 1 else None
    if found is None or (found[1] == b"00" and found[5] is not None):
        return None
    state = b",".join(value.strip() for name, value in headers if name == TRACESTATE)
    shown = state.decode("latin-1") if len(state) <= LONGEST_STATE and state.isascii() else ""
    return Caller(found[2].decode(), found[3].decode(), bool(int(found[4], 16) & _SAMPLED), shown)


def trace_context(headers: Headers, request_id: str, path: str, model: str | None, *, may_ask: bool) -> TraceContext | None:
    """Return the trace context of a request; None if the caller does not sample its trace. `may_ask`: whether the
    caller may have routing decisions kept.
    """
    parent = caller(headers)
    if parent is not None and not parent.is_sampled:
        return None
    return TraceContext(
        trace_id=xxh3_128_hexdigest(request_id.encode()) if parent is None else parent.trace_id,
        span_id=xxh3_64_hexdigest(request_id.encode()),
        parent=None if parent is None else parent.span_id,
        state="" if parent is None else parent.state,
        asks=may_ask and parent is not None,
        operation=OPERATIONS.get(path) or path.rpartition("/")[2],
        model=model or "",
    )


def span_id_of(context: TraceContext, name: str) -> str:
    """Return the id of a span inside the request's own span. `name`: the span's name or, for work at an engine, the
    engine's target. The engine's own spans are children of the span that has the target's name.
    """
    return xxh3_64_hexdigest(f"{context.span_id}/{name}".encode())


def traced_head(head: bytes, context: TraceContext, target: str) -> bytes:
    """Return the head of a call with this router's span, not the caller's, as the parent of the engine's spans."""
    request, *lines = head.splitlines(keepends=True)
    kept = (line for line in lines if line.partition(b":")[0] not in (TRACEPARENT, TRACESTATE))
    parent = f"traceparent: 00-{context.trace_id}-{span_id_of(context, target)}-01\r\n"
    state = f"tracestate: {context.state}\r\n" if context.state else ""
    return b"".join((request, *kept, parent.encode(), state.encode()))
