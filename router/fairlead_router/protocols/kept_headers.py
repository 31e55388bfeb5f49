"""The header by which a client asks the router to keep its routing decision, and the header of the response to it."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.routing.contracts.schedulers import Dispatch, Refusal

EXPLAIN_HEADER = b"x-fairlead-explain"
"""The request header by which a client asks the router to keep its routing decision."""
KEPT_HEADER = b"x-fairlead-decision-kept"
"""The response header that says whether the routing decision is kept, for a client that asked to keep it. Its value is
`true`, or `false` with the reason.
"""
NOT_ALLOWED = b"false; key-not-allowed"
NO_DECISION = b"false; no-decision"
"""The value of `KEPT_HEADER` if no scheduler decides about the request."""
OVER_LIMIT = b"false; too-many-asked"


def asks_to_explain(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the client asks the router to keep its routing decision. Header names must be in lower case."""
    return any(name == EXPLAIN_HEADER and value not in (b"", b"0", b"false") for name, value in headers)


def decision_headers(verdict: Dispatch | Refusal) -> list[tuple[bytes, bytes]]:
    """Return the headers about a routing decision: its id, if it has one, and `KEPT_HEADER` for a client that asked to
    keep the decision and is allowed to.
    """
    named = [(b"x-fairlead-decision", verdict.decision_id.encode())] if verdict.decision_id else []
    return [*named, (KEPT_HEADER, b"true" if verdict.kept else OVER_LIMIT)] if verdict.request.explain else named
