"""Sends a call to one instance and waits for the answer's beginning. Selects the answer's headers for the client."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import rank_of
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamConnection, UpstreamFailure
from fairlead_router.protocols.answers import METADATA_HEADER
from fairlead_router.protocols.refusals import Headers
from fairlead_router.protocols.requests import RANK_HEADER, is_credential
from fairlead_router.relaying.calls import Call, Calls, Leg
from fairlead_router.tracing.contexts import traced_head

_PASSED = frozenset(
    {
        b"accept-ranges", b"age", b"cache-control", b"content-disposition", b"content-encoding", b"content-language", b"content-range",
        b"content-type", b"deprecation", b"digest", b"etag", b"expires", b"last-modified", b"pragma", b"repr-digest", b"content-digest",
        b"request-id", b"retry-after", b"server-timing", b"sunset", b"traceparent", b"tracestate", b"vary", b"warning",
        METADATA_HEADER,
    }
)  # fmt: skip
"""Headers of an engine's answer that are passed on, because they describe its content, its time or the engine's own
work.

Other headers are dropped unless they have a prefix of `_PASSED_BEGINNINGS`. Only the gateway may set headers for
framing, connections, CORS and the request id. Other headers would change the behaviour of a browser beyond this answer
(cookies, redirects, security policies, reports, other services, credentials).
"""

_PASSED_BEGINNINGS = (b"x-", b"openai-", b"anthropic-", b"ratelimit")
"""Prefixes of further headers that are passed on, because engines make such headers of their own."""

_WITHHELD = frozenset(
    {
        b"x-request-id", b"x-llm-d-request-dropped-reason", b"x-frame-options", b"x-xss-protection",
        b"x-dns-prefetch-control", b"x-download-options", b"x-permitted-cross-domain-policies", b"x-ua-compatible", b"x-sourcemap",
        b"x-robots-tag", b"x-sendfile", b"x-lighttpd-send-file", b"x-webkit-csp", b"x-content-security-policy", b"x-pingback",
    }
)  # fmt: skip
"""Headers that are dropped although they have a prefix of `_PASSED_BEGINNINGS`: the gateway's own headers, and headers
that change the behaviour of browsers, proxies and search engines.
"""

_WITHHELD_BEGINNINGS = (b"x-fairlead-", b"x-accel-", b"x-forwarded-", b"x-litespeed-", b"x-envoy-")

LONGEST_RETRY_AFTER_SECONDS = 600.0
"""Maximum Retry-After in seconds, as in the scheduler's own refusals."""
_MOST_DIGITS = 9
_LONGEST_TIME = 64

_OF_BODY = (
    b"content-", b"etag", b"last-modified", b"accept-ranges", b"digest", b"repr-digest", b"retry-after", METADATA_HEADER,
)  # fmt: skip
"""Prefixes of headers that describe a body, or whose information the router sends in another form. An error response of
the router leaves these headers out.
"""


class Sender:
    """Sends calls to instances over connections of the `UpstreamPool`."""

    def __init__(self, upstream: UpstreamPool, calls: Calls) -> None:
        self._upstream = upstream
        self._calls = calls

    async def begin(
        self, call: Call, instance: str, address: str, *, credentials: bool, carried: bool, leg: Leg | None = None
    ) -> UpstreamConnection:
        """Send a call, or its part `leg`, and return the connection when the answer has begun. `instance` is a target;
        if it is a rank, the engine gets the rank's index in a header.

        If an idle connection turns out to be closed, the request is sent once more on a new connection, without
        counting a failure. A closed connection is noticed at once. If a connection is lost later, the engine has begun
        to compute, and the request may have killed it.

        `credentials`: whether the engine gets the client's credentials. `carried`: whether the call has credentials.
        Raises UpstreamFailure, also for a status that is the fault of the engine and not of the request.
        """
        connection = self._upstream.take_idle(address)
        if connection is None:
            connection = await self._upstream.connect(address, self._calls.seconds_left(call))
        head, body = (call.head, call.body) if leg is None else leg
        if carried and not credentials:
            head = without_credentials(head)
        ticket = call.ticket
        if ticket is not None and ticket.request.trace is not None and isinstance(ticket.verdict, Dispatch) and ticket.verdict.traced:
            head = traced_head(head, ticket.request.trace, instance)
        rank = rank_of(instance)
        if rank is not None:
            head = b"%s%s: %d\r\n" % (head, RANK_HEADER, rank)
        head = b"".join((head, b"host: ", address.encode(), b"\r\n\r\n"))
        self._calls.await_answer(call, connection)
        received = connection.received
        connection.send(head, body)
        try:
            await connection.first()
        except UpstreamFailure as failure:
            was_closed = connection.reused and connection.received == received and self._calls.just_sent(call)
            if failure.kind != "lost" or not was_closed:
                raise
            call.connection = None
            try:
                call.connection = connection = await self._upstream.connect(address, self._calls.seconds_left(call))
            except UpstreamFailure:
                raise failure from None  # the request did reach it, and counts among those that it was tried on
            connection.send(head, body)
            await connection.first()
        self._calls.began(call)
        if connection.status >= 300:
            refuse_engine_faults(connection, credentials=credentials)
        return connection

    def release(self, call: Call, connection: UpstreamConnection) -> None:
        """Release the connection of a complete answer, so that another call can use it."""
        call.connection = None
        self._upstream.release(connection)


def without_credentials(head: bytes) -> bytes:
    """Return the head of a call without the client's credentials, for an engine that must not get them."""
    request, *lines = head.splitlines(keepends=True)
    return b"".join((request, *(line for line in lines if not is_credential(line.partition(b":")[0]))))


def refuse_engine_faults(connection: UpstreamConnection, *, credentials: bool) -> None:
    """Raise UpstreamFailure if the client must not get the response, because of its status.

    These statuses are 5xx, 429, redirects (their target is not trusted), and a demand for credentials (401, 403) if the
    engine does not get the client's credentials.
    """
    status = connection.status
    if status >= 500 or status == 429:
        raise failure_of_answer(connection, "busy" if status in (429, 503) else "status", f"answered {status}")
    if 300 <= status < 400:
        raise failure_of_answer(connection, "status", f"answered {status}, a redirect, which is not passed on")
    if status in (401, 403) and not credentials:
        remedy = "set spec.engine.passClientCredentials, or let the engines serve without credentials"
        words = f"answered {status}: it requires a credential, and this pool passes no credentials on"
        raise failure_of_answer(connection, "credential", words, detail=remedy)


def failure_of_answer(connection: UpstreamConnection, kind: str, words: str, status: int = 0, *, detail: str = "") -> UpstreamFailure:
    """Return an `UpstreamFailure` for a failure that the engine's answer reports."""
    seconds, headers = retry_after(connection.headers), bodiless_headers(connection)
    return UpstreamFailure(kind, words, status, at=connection.address, detail=detail, retry_after_seconds=seconds, headers=headers)


def bodiless_headers(connection: UpstreamConnection | None) -> Headers:
    """Return the headers of an engine's answer that remain valid without its body; empty if no answer has begun."""
    return [] if connection is None else [header for header in _passed(connection) if not header[0].startswith(_OF_BODY)]


def retry_after(headers: Headers) -> float | None:
    """Return the engine's Retry-After in seconds (RFC 9110 §10.2.3), at most `LONGEST_RETRY_AFTER_SECONDS`. None if it
    is missing or invalid. A date in it is compared with the response's own date.
    """
    told = {name: value[:_LONGEST_TIME].decode("latin-1").strip() for name, value in headers if name in (b"retry-after", b"date")}
    text = told.get(b"retry-after", "")
    if text.isascii() and text.isdecimal():
        seconds = float(text[:_MOST_DIGITS])
    else:
        try:
            seconds = (parsedate_to_datetime(text) - parsedate_to_datetime(told.get(b"date", ""))).total_seconds()
        except (TypeError, ValueError, IndexError, OverflowError):
            return None
    return min(seconds, LONGEST_RETRY_AFTER_SECONDS) if seconds > 0 else None


def passed_headers(connection: UpstreamConnection) -> list[bytes]:
    """Return the header lines of an engine's answer that the client gets."""
    return [b"%s: %s\r\n" % header for header in _passed(connection)]


def _passed(connection: UpstreamConnection) -> Headers:
    headers: Headers = []
    named: set[bytes] = set()
    for header in connection.headers:
        name, value = header
        if name in _PASSED or (name.startswith(_PASSED_BEGINNINGS) and _is_engines_own(name)):
            headers.append(header)
        elif name == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    if named and any(token not in (b"keep-alive", b"close") for token in named):
        headers = [header for header in headers if header[0] not in named]
    return headers


def _is_engines_own(name: bytes) -> bool:
    return name not in _WITHHELD and not name.startswith(_WITHHELD_BEGINNINGS)
