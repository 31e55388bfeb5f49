"""The headers by which a client asks the router to keep its routing decision, and by which the router responds."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.routing.contracts.schedulers import Dispatch, Refusal

EXPLAIN_HEADER = b"x-fairlead-explain"
"""Request header by which a client asks the router to keep the routing decision."""
KEPT_HEADER = b"x-fairlead-decision-kept"
"""Response header for a client that asked: whether the routing decision will be kept. `true`, or `false` with the
reason.
"""
NOT_ALLOWED = b"false; key-not-allowed"
NO_DECISION = b"false; no-decision"
"""The response header's value if no scheduler decides about the request."""
OVER_LIMIT = b"false; too-many-asked"


def asks_to_explain(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the client asks for its routing decision to be kept. Header names must be lower case."""
    return any(name == EXPLAIN_HEADER and value not in (b"", b"0", b"false") for name, value in headers)


def decision_headers(verdict: Dispatch | Refusal) -> list[tuple[bytes, bytes]]:
    """Return the headers about a routing decision: its id, if there is a decision; and for a client that may ask for it
    and did, whether it will be kept.
    """
    named = [(b"x-fairlead-decision", verdict.decision_id.encode())] if verdict.decision_id else []
    return [*named, (KEPT_HEADER, b"true" if verdict.kept else OVER_LIMIT)] if verdict.request.explain else named
