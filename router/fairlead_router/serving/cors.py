"""CORS: lets web pages of other origins call the gateway from a browser (the Fetch standard's CORS protocol).

Every response has the CORS headers. A refusal has them too, because the page could not read its reason otherwise.
Credentials of the browser, such as cookies, are never allowed; a page itself sends its API key.
"""

from __future__ import annotations

from collections.abc import Collection

from fairlead_router.protocols.refusals import BadRequest, ErrorAnswer, Headers

EVERY = "*"

_EXPOSED = (
    b"x-request-id, retry-after, x-should-retry, x-fairlead-pool, x-fairlead-instance, x-fairlead-decode, x-fairlead-decision,"
    b" x-fairlead-decision-kept, x-fairlead-reason, x-fairlead-queued-ms, x-fairlead-priority-class, x-fairlead-rejection,"
    b" x-fairlead-rank, x-llm-d-request-dropped-reason, www-authenticate, allow, accept-encoding, metadata"
)
_PREFLIGHT_SECONDS = b"600"
_MOST_ASKED_BYTES = 4096
"""Maximum number of bytes of header names that are read from a preflight request."""


class Cors:
    """CORS headers for web pages of these origins. Without origins, responses have no CORS headers."""

    def __init__(self, origins: Collection[str]) -> None:
        self._any = EVERY in origins
        self._origins = frozenset(origin.encode() for origin in origins)
        self.is_on = bool(self._origins)

    def headers(self, request: Headers) -> Headers:
        """Return the CORS headers for the response to a request with these headers."""
        if not self._origins:
            return []
        origin = next((value for name, value in request if name == b"origin"), None)
        varies: Headers = [] if self._any else [(b"vary", b"Origin")]
        if origin is None or not self._allows(origin):
            return varies
        allowed = EVERY.encode() if self._any else origin
        return [(b"access-control-allow-origin", allowed), (b"access-control-expose-headers", _EXPOSED), *varies]

    def _allows(self, origin: bytes) -> bool:
        return self._any or origin.lower() in self._origins

    def preflight(self, method: str, request: Headers, methods: Collection[str]) -> ErrorAnswer | None:
        """Return the response to a CORS preflight for a path with these `methods`; None for any other request. No API
        key is checked, because a preflight does not have the key of the request that follows it.

        Raises BadRequest 403 for an origin that is not allowed.
        """
        asked = dict(request)
        if method != "OPTIONS" or not self._origins or b"origin" not in asked or b"access-control-request-method" not in asked:
            return None
        if not self._allows(asked[b"origin"]):
            shown = asked[b"origin"][:200].decode("latin-1")
            raise BadRequest(403, "origin_not_allowed", f"origin: {shown!r} may not call this gateway; add it to FAIRLEAD_CORS_ORIGINS")
        wanted = asked.get(b"access-control-request-headers", b"")[:_MOST_ASKED_BYTES]
        headers = [(b"access-control-allow-methods", ", ".join(methods).encode()), (b"access-control-max-age", _PREFLIGHT_SECONDS)]
        headers += [(b"access-control-allow-headers", wanted)] if wanted else []
        headers.append((b"vary", b"Access-Control-Request-Method, Access-Control-Request-Headers"))
        return ErrorAnswer(status=204, headers=headers, body=b"")
