"""The gateway: a raw ASGI application that handles each request according to the table of paths."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from fairlead_router.gateway.claims import may_explain
from fairlead_router.gateway.informing import Informing, Scope, Send, send_answer
from fairlead_router.gateway.routed_requests import POOL_HEADER, RoutedRequests, answer_follows, opened_by
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.keys import GatewayKey, GatewayKeys
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.pools.settling import LaterAnswer
from fairlead_router.protocols import paths
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.kept_headers import EXPLAIN_HEADER, KEPT_HEADER, NO_DECISION, NOT_ALLOWED
from fairlead_router.protocols.paths import Endpoint, Handling
from fairlead_router.protocols.refusals import MEMORY_FULL, BadRequest, ErrorAnswer, memory_full, own_fault, shutting_down
from fairlead_router.protocols.requests import forwarded_headers, is_shown_id, parse_request, request_head
from fairlead_router.relaying.calls import Call, Calls, Change
from fairlead_router.relaying.class_priorities import PLACES
from fairlead_router.relaying.direct import DirectRelay, Upload
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_router.relaying.proxying import Proxy
from fairlead_router.relaying.response_holders import ResponseHolders
from fairlead_router.relaying.usage_asking import ask_for_usage, may_ask_for_usage
from fairlead_router.serving.bodies import BodyReader, header_value
from fairlead_router.serving.body_memory import MemoryFull
from fairlead_router.serving.client_requests import ClientGone, ClientRequest
from fairlead_router.serving.cors import Cors
from fairlead_router.serving.forms import PassingForm
from fairlead_router.settings import RouterSettings

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_LOCAL: Final = Handling.LOCAL

Receive = Callable[[], Awaitable[dict[str, Any]]]

LINGER_SECONDS = 30.0
"""Maximum number of seconds for which the unread remainder of a too large body is read and discarded.

If the connection were closed at once, the client would see a reset connection instead of the 413.
"""

LINGER_IDLE_SECONDS = 2.0
"""Seconds without a byte after which the router stops discarding a too large body."""

logger = logging.getLogger(__name__)


class Gateway:
    """The ASGI application for clients. `now` is the router's clock in Unix seconds."""

    def __init__(
        self,
        settings: RouterSettings,
        pools: Pools,
        keys: GatewayKeys,
        calls: Calls,
        proxy: Proxy,
        direct: DirectRelay,
        held: HeldResponses,
        informing: Informing,
        routed: RoutedRequests,
        metrics: RouterMetrics,
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._pools = pools
        self._keys = keys
        self._calls = calls
        self._proxy = proxy
        self._direct = direct
        self._held = held
        self._holders = ResponseHolders(held, direct, pools)
        self._informing = informing
        self._routed = routed
        self._metrics = metrics
        self._now = now
        self._bodies = BodyReader(settings, now)
        self._cors = Cors(settings.cors_origins)
        self._handlers = {
            Handling.ROUTED: self._route,
            Handling.SPREAD: self._spread,
            Handling.UPLOAD: self._upload,
            Handling.HELD: self._ask_holder,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client: ClientRequest = scope["extensions"].pop("fairlead.client")  # or each request would be a reference cycle
        raw_path: bytes = scope["raw_path"]
        endpoint = paths.find(raw_path)
        if endpoint is None and len(raw_path) > 1 and raw_path.endswith(b"/"):
            scope["raw_path"] = raw_path = raw_path[:-1]  # engines would redirect, and a client need not come twice
            endpoint = paths.find(raw_path)
        if b"x-request-id" in client.headers or EXPLAIN_HEADER in client.headers:
            given, client.explains = _asked(scope["headers"])
            if given and is_shown_id(given):
                client.name(given.encode())
        dialect = endpoint.dialect if endpoint is not None else paths.dialect_of(raw_path)
        try:
            if endpoint is None:
                raise _unknown(raw_path)
            if scope["method"] not in endpoint.methods:
                preflight = self._cors.preflight(scope["method"], scope["headers"], endpoint.methods)
                if preflight is not None:
                    client.answer_by_asgi()
                    await send_answer(send, preflight)
                    return
                raise _wrong_method(endpoint, scope["method"])
            local = endpoint.handling is _LOCAL
            if not local and self._informing.refusing:
                await self._send(shutting_down(dialect), client, send)
                return
            key = None if endpoint.keyless else self._keys.admit(scope["headers"], self._now(), counted=not local)
            if key is not None:
                client.belongs_to(key)
            if client.explains:
                self._answer_explaining(client, endpoint, key)
            if local:
                client.name(self._calls.next_id().encode())
                client.answer_by_asgi()
                await self._informing.answer(endpoint, scope, send, opened_by(key))
            else:
                refusal = await self._handlers[endpoint.handling](scope, client, endpoint, key)
                if refusal is not None:
                    await self._send(refusal, client, send)
        except BadRequest as problem:
            self._metrics.client_errors[problem.code] += 1
            await self._refuse(problem, dialect, client, send)
        except ClientGone:
            self._metrics.client_errors["client_gone"] += 1
        except Exception:  # noqa: BLE001  # logged, and hidden from clients
            await self._own_fault(scope, dialect, client, send)
        finally:
            client.unwatch()

    def _answer_explaining(self, client: ClientRequest, endpoint: Endpoint, key: GatewayKey | None) -> None:
        """Add a header with the reason to the response if the client wants its routing decision kept and the router
        will not keep it.
        """
        if endpoint.handling is not Handling.ROUTED:
            why_not = NO_DECISION
        elif not may_explain(key, anybody=self._settings.explains_without_key):
            why_not = NOT_ALLOWED
        else:
            return
        client.accompany([(KEPT_HEADER, why_not)])

    # ── what is done with a path ──

    async def _route(self, scope: Scope, client: ClientRequest, endpoint: Endpoint, key: GatewayKey | None) -> ErrorAnswer | None:
        """Send the request through the pool's scheduler. Return the error for the client if the request was refused;
        None otherwise.
        """
        arrived = self._now()
        body = await self._bodies.whole(scope["headers"], client)
        parsed = parse_request(body, endpoint)
        body = parsed.body
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        pool = self._routed.pool_for(parsed.model, headers if POOL_HEADER in client.headers else [], key)
        forwarded, naming = client.known_headers.forwarded(headers, pool.session_header, credentials=pool.pass_credentials)
        if "previous_response_id" in parsed.document and self._holders.is_sought(parsed.document, endpoint, pool):
            await self._holders.seek(parsed.document, endpoint, pool, headers)
        known_as, explain = client.known_as, client.explains
        request = self._routed.request(
            pool, endpoint, parsed, headers, naming, key, arrived, body_bytes=len(body), client_id=known_as, explain=explain, movable=True
        )
        divisible = request.divisible
        name = pool.engine_name(parsed.model)
        if parsed.model != name:
            body = parsed.renamed(name)
        if pool.passes_priority:
            places, priority = PLACES[pool.table.engine.type], pool.classes[request.priority_class].priority
            body, forwarded = places.body(body, parsed, endpoint, priority), places.head(forwarded, endpoint, priority)
        client.name(request.id.encode())
        change: Change | None = None
        if parsed.stream and may_ask_for_usage(parsed, endpoint):
            body, change = ask_for_usage(body, parsed.document)
        head = request_head(scope, forwarded, (known_as or request.id).encode(), length=len(body))
        call = self._calls.new(request.id, arrived, head, body, stream=parsed.stream, dialect=endpoint.dialect)
        call.asks_usage = change
        call.generates = endpoint.streams
        call.model = name
        if pool.divides and divisible:
            call.document = parsed.document if parsed.model == name else {**parsed.document, "model": name}
        charge: Charge | None = None
        if key is not None:
            follows = answer_follows(parsed, endpoint)
            most, answers = pool.most_tokens(len(body), parsed.answers), parsed.answers
            charge = self._keys.reserve(key, request, most, self._now(), follows=follows, answers=answers)
        client.watch(call.client_gone)
        del parsed  # what it holds is as large as the body, and the answer may take minutes
        refusal = await self._proxy.relay(call, request, pool, client, charge)
        if logger.isEnabledFor(logging.DEBUG):
            seconds = round(self._now() - arrived, 6)
            logger.debug(
                "request",
                extra={"request": request.id, "pool": str(pool.key), "path": scope["path"], "seconds": seconds, "gone": call.gone},
            )
        return refusal

    async def _spread(self, scope: Scope, client: ClientRequest, endpoint: Endpoint, key: GatewayKey | None) -> ErrorAnswer | None:
        """Send the request to the instance with the fewest requests in flight. Return the error for the client if the
        request was refused; None otherwise.
        """
        arrived = self._now()
        body = await self._bodies.whole(scope["headers"], client)
        parsed = parse_request(body, endpoint)
        body = parsed.body
        pool = self._routed.pool_for(parsed.model, scope["headers"], key)
        self._count(key)
        name = pool.engine_name(parsed.model)
        if parsed.model != name:
            body = parsed.renamed(name)
        call = self._direct_call(scope, client, endpoint, pool, arrived, body, length=len(body))
        call.model = name
        return await self._direct.relay(call, pool, client)

    async def _upload(self, scope: Scope, client: ClientRequest, endpoint: Endpoint, key: GatewayKey | None) -> ErrorAnswer | None:
        """Read an upload form until its model is known, then stream the form to the instance with the fewest requests
        in flight. Return the error for the client if the request was refused; None otherwise.
        """
        arrived = self._now()
        headers = scope["headers"]
        form = PassingForm(header_value(headers, b"content-type"))
        length, pieces = self._bodies.upload(headers, client, arrived)
        async for piece in pieces:
            self._hold(client, len(piece))
            form.feed(piece)
            if form.model is not None:
                break
            if form.size > self._settings.max_body_bytes:
                message = f"model: not among the first {form.size} bytes of the form; send the field `model` before the file"
                raise BadRequest(400, "missing_field", message, "model")
        pool = self._routed.pool_for(form.model or None, headers, key)
        self._count(key)
        name = pool.engine_name(form.model or None)
        body = form.taken(name)
        if length is not None:
            length += len(body) - form.size
        call = self._direct_call(scope, client, endpoint, pool, arrived, body, length=length)
        call.model = name
        return await self._direct.relay(call, pool, client, upload=Upload(rest=form.checked(pieces), chunked=length is None))

    def _hold(self, client: ClientRequest, size: int) -> None:
        """Count `size` bytes of a buffered form in the memory for bodies. Raises BadRequest 503 if there is no room."""
        try:
            client.hold(size)
        except MemoryFull:
            raise memory_full() from None

    async def _ask_holder(self, scope: Scope, client: ClientRequest, endpoint: Endpoint, key: GatewayKey | None) -> ErrorAnswer | None:
        """Send a request about a stored response to the instance that made the response. If the router does not know
        that instance, it asks the instances for the response first.

        A request about a stored response needs no body, so its body is dropped.
        """
        arrived = self._now()
        await self._bodies.whole(scope["headers"], client)
        response = paths.response_id(scope["raw_path"])
        found = await self._holders.find(response, opened_by(key), scope["headers"])
        if found is None:
            message = (
                f"response {response[:100]!r} is held by no instance: an engine keeps the responses it made for as long as it runs, "
                "and only if its store is switched on"
            )
            raise BadRequest(404, "response_not_found", message)
        pool, instance = found
        self._count(key)
        call = self._direct_call(scope, client, endpoint, pool, arrived, b"", length=0 if endpoint is paths.CANCEL else None)
        charge = self._held.charge(response)
        later = None if charge is None else LaterAnswer(pool.account.settling, charge)
        try:
            return await self._direct.relay(call, pool, client, only=instance, later=later)
        finally:
            if later is not None:
                later.settle(self._now())

    def _count(self, key: GatewayKey | None) -> None:
        """Count a request against the limit of its key. For requests that are sent to a pool and use no tokens."""
        if key is not None:
            self._keys.sent_to_pool(key, self._now())

    def _direct_call(
        self, scope: Scope, client: ClientRequest, endpoint: Endpoint, pool: Pool, arrived: float, body: bytes, *, length: int | None
    ) -> Call:
        forwarded, _ = forwarded_headers(scope["headers"], pool.session_header, credentials=pool.pass_credentials)
        call_id = self._calls.next_id()
        client.name(call_id.encode())
        chunked = length is None and endpoint.handling is Handling.UPLOAD
        head = request_head(scope, forwarded, client.known_as.encode(), length=length, chunked=chunked)
        call = self._calls.new(call_id, arrived, head, body, stream=False, dialect=endpoint.dialect)
        client.watch(call.client_gone)
        return call

    # ── refusing ──

    async def _refuse(self, problem: BadRequest, dialect: Dialect, client: ClientRequest, send: Send) -> None:
        if client.answering:
            client.abort()
        else:
            await self._send(problem.answer(dialect), client, send, close=problem.status in (408, 413) or problem.code == MEMORY_FULL)

    async def _send(self, answer: ErrorAnswer, client: ClientRequest, send: Send, *, close: bool = False) -> None:
        """Send a response that the router itself made. If the rest of the request's body will not be read (`close`, or
        a half-read upload), close the connection after the response.
        """
        client.name(self._calls.next_id().encode())
        if client.explains and all(name != KEPT_HEADER for name, _ in answer.headers):
            answer = replace(answer, headers=[*answer.headers, (KEPT_HEADER, NO_DECISION)])
        if not close and not client.unread:
            client.answer_by_asgi()
            await send_answer(send, answer)
            return
        lines = b"".join(b"%s: %s\r\n" % pair for pair in answer.headers if pair[0] not in (b"content-length", b"connection"))
        client.begin(answer.status, lines, len(answer.body), close=True)
        client.write(answer.body)
        await client.discard(2 * self._settings.max_upload_bytes, LINGER_SECONDS, LINGER_IDLE_SECONDS)
        client.end(b"", close=True)

    async def _own_fault(self, scope: Scope, dialect: Dialect, client: ClientRequest, send: Send) -> None:
        """Respond to a request that failed because of a bug of the router. The response has an id by which the log
        entry can be found, and never a traceback.
        """
        request = client.known_as or self._calls.next_id()
        client.name(request.encode())
        self._metrics.client_errors["internal_error"] += 1
        logger.exception("request failed in the router", extra={"request": request, "path": scope["path"][:200]})
        if client.answering:
            client.abort()
            return
        await self._send(own_fault(request, dialect), client, send)


def _asked(headers: list[tuple[bytes, bytes]]) -> tuple[str, bool]:
    """Return the client's own id of the request ("" if the client sends none), and whether the client wants the routing
    decision kept.
    """
    given, explains = "", False
    for name, value in headers:
        if name == b"x-request-id":
            given = given or value.decode("latin-1")
        elif name == EXPLAIN_HEADER:
            explains = value not in (b"", b"0", b"false")
    return given, explains


def _unknown(raw_path: bytes) -> BadRequest:
    path = raw_path[:200].decode("latin-1")  # as it was sent: decoded it may look like one of these
    return BadRequest(404, "not_found", f"{path!r} is not a path of this gateway; there are {', '.join(paths.KNOWN)}")


def _wrong_method(endpoint: Endpoint, method: str) -> BadRequest:
    allowed = ", ".join(endpoint.methods)
    message = f"{endpoint.path} takes {allowed}, not {method}"
    return BadRequest(405, "method_not_allowed", message, None, [(b"allow", allowed.encode())])
