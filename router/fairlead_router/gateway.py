"""The gateway: a raw ASGI application with the OpenAI paths, health, metrics and a debug view."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import orjson

from fairlead.routing.prefixes import block_hashes, first_bytes_hash
from fairlead.routing.protocols import RoutingRequest
from fairlead_router.metrics import InstanceReading, RouterMetrics, render
from fairlead_router.pools import Pool, Pools
from fairlead_router.proxying import Proxy, Send, send_answer
from fairlead_router.refusals import BadRequest, shutting_down
from fairlead_router.requests import Kind, forwarded_headers, parse_request, session_name
from fairlead_router.serving import BodyTooLarge, ClientGone, ClientRequest
from fairlead_router.upstream import UpstreamPool

Receive = Callable[[], Awaitable[dict[str, Any]]]
Scope = dict[str, Any]

LINGER_SECONDS = 1.0
"""How long the rest of a body that is too large is read and thrown away, so that the client sees the 413 instead of a reset connection."""

_GENERATING = {"/v1/chat/completions": Kind.CHAT, "/v1/completions": Kind.COMPLETION, "/v1/embeddings": Kind.EMBEDDING}

logger = logging.getLogger("fairlead.router.gateway")


class Gateway:
    """The ASGI application. `synced` tells whether the control API has told all its tables once; `now` is the router's clock."""

    def __init__(
        self,
        pools: Pools,
        proxy: Proxy,
        upstream: UpstreamPool,
        metrics: RouterMetrics,
        now: Callable[[], float],
        *,
        max_body_bytes: int,
        body_seconds: float,
        request_prefix: str,
    ) -> None:
        self._pools = pools
        self._proxy = proxy
        self._upstream = upstream
        self._metrics = metrics
        self._now = now
        self._max_body = max_body_bytes
        self._body_seconds = body_seconds
        self._prefix = request_prefix
        self._numbers = itertools.count(1)
        self.synced = False
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        client: ClientRequest = scope["extensions"]["fairlead.client"]
        kind = _GENERATING.get(path)
        try:
            if kind is not None:
                if scope["method"] != "POST":
                    raise BadRequest(405, "method_not_allowed", f"{path} takes POST, not {scope['method']}")
                if self.draining:
                    await send_answer(send, shutting_down())
                    return
                await self._generate(scope, client, send, kind)
            else:
                await self._inform(path, scope["method"], send)
        except BadRequest as problem:
            self._metrics.client_errors[problem.code] += 1
            await self._refuse(problem, client, send)
        except ClientGone:
            self._metrics.client_errors["client_gone"] += 1
        finally:
            client.unwatch()

    # ── generation ──

    async def _generate(self, scope: Scope, client: ClientRequest, send: Send, kind: Kind) -> None:
        arrived = self._now()
        body = await self._body(scope, client)
        parsed = parse_request(body, kind)
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        pool = self._pools.resolve(parsed.model, _header(headers, b"x-fairlead-pool"))
        forwarded, session_value, client_id = forwarded_headers(headers, pool.session_header)
        session = session_value.decode("latin-1") if session_value else parsed.user
        prompt = parsed.prompt
        blocks = block_hashes(prompt, pool.block_bytes)
        request = RoutingRequest(
            id=f"{self._prefix}-{next(self._numbers):x}",
            arrived_at=arrived,
            prompt_tokens=max(1, -(-len(prompt) // pool.bytes_per_token)),
            blocks=blocks,
            first_bytes_hash=first_bytes_hash(prompt, pool.block_bytes, blocks),
            session=session_name(session) if session else None,
            max_output_tokens=parsed.max_output_tokens,
            streamed=parsed.stream,
        )
        if parsed.model != pool.table.model:
            body = parsed.renamed(pool.table.model)
        head = _request_head(scope, forwarded, len(body), client_id or request.id.encode())
        call = self._proxy.new_call(request, head, body, stream=parsed.stream)
        client.watch(call.client_gone)
        refusal = await self._proxy.relay(call, pool, client)
        if refusal is not None:
            await send_answer(send, refusal)
        if logger.isEnabledFor(logging.DEBUG):
            seconds = round(self._now() - arrived, 6)
            logger.debug(
                "request",
                extra={"request": request.id, "pool": str(pool.key), "path": scope["path"], "seconds": seconds, "gone": call.gone},
            )

    async def _body(self, scope: Scope, client: ClientRequest) -> bytes:
        """The whole body. Raises BadRequest 413 as soon as it is known to be too large, 408, or ClientGone."""
        length = _header(scope["headers"], b"content-length")
        if length is not None and length.isdecimal() and int(length) > self._max_body:
            raise self._too_large()
        try:
            return await client.body(self._max_body, self._body_seconds)
        except BodyTooLarge:
            raise self._too_large() from None
        except TimeoutError:
            raise BadRequest(408, "body_timeout", f"the body did not arrive within {self._body_seconds:g} s") from None

    def _too_large(self) -> BadRequest:
        return BadRequest(413, "request_too_large", f"the body is larger than {self._max_body} bytes; send less (FAIRLEAD_MAX_BODY_BYTES)")

    async def _refuse(self, problem: BadRequest, client: ClientRequest, send: Send) -> None:
        if problem.status not in (408, 413):
            await send_answer(send, problem.answer())
            return
        answer = problem.answer(close=True)
        lines = b"".join(b"%s: %s\r\n" % pair for pair in answer.headers if pair[0] != b"content-length")
        client.begin(answer.status, lines, len(answer.body))
        client.write(answer.body)
        await client.discard(2 * self._max_body, LINGER_SECONDS)
        client.end(b"", close=True)

    # ── information ──

    async def _inform(self, path: str, method: str, send: Send) -> None:
        if method not in ("GET", "HEAD"):
            if path in _PATHS:
                raise BadRequest(405, "method_not_allowed", f"{path} takes GET, not {method}")
            raise BadRequest(404, "not_found", f"{path[:200]!r} is not a path of this gateway")
        if path == "/v1/models":
            await _send_json(send, 200, {"object": "list", "data": self._models()})
        elif path.startswith("/v1/models/"):
            wanted = path.removeprefix("/v1/models/")
            found = [model for model in self._models() if model["id"] == wanted]
            if not found:
                raise BadRequest(404, "model_not_found", f"model: {wanted[:200]!r} is not served here", "model")
            await _send_json(send, 200, found[0])
        elif path == "/healthz":
            await _send_json(send, 200, {"status": "alive"})
        elif path == "/readyz":
            ready = not self.draining and (self.synced or len(self._pools) > 0)
            reason = "shutting-down" if self.draining else "ready" if ready else "no routing table yet"
            await _send_json(
                send, 200 if ready else 503, {"ready": ready, "reason": reason, "pools": len(self._pools), "synced": self.synced}
            )
        elif path == "/metrics":
            self._metrics.upstream_connections = self._upstream.opened
            self._metrics.readings = [reading for pool in self._pools.living() for reading in _readings(pool)]
            text = render(self._metrics)
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]}
            )
            await send({"type": "http.response.body", "body": text})
        elif path == "/debug/pools":
            await _send_json(send, 200, {"pools": [_debug(pool) for pool in self._pools.living()]})
        else:
            raise BadRequest(404, "not_found", f"{path[:200]!r} is not a path of this gateway")

    def _models(self) -> list[dict[str, object]]:
        models: list[dict[str, object]] = [
            {"id": model, "object": "model", "created": 0, "owned_by": "fairlead", "root": model} for model in self._pools.models()
        ]
        models.extend(
            {"id": str(pool.key), "object": "model", "created": 0, "owned_by": "fairlead", "root": pool.table.model}
            for pool in self._pools.all()
        )
        return models


_PATHS = frozenset({"/v1/models", "/healthz", "/readyz", "/metrics", "/debug/pools"})


def _header(headers: list[tuple[bytes, bytes]], name: bytes) -> str | None:
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return None


def _request_head(scope: Scope, forwarded: bytes, length: int, request_id: bytes) -> bytes:
    """Request line and headers, all but `host`, without the closing empty line."""
    query: bytes = scope["query_string"]
    target = scope["raw_path"] + b"?" + query if query else scope["raw_path"]
    return b"POST %s HTTP/1.1\r\ncontent-length: %d\r\nx-request-id: %s\r\n%s" % (target, length, request_id, forwarded)


def _readings(pool: Pool) -> list[InstanceReading]:
    return [
        InstanceReading(str(pool.key), row.instance, row.in_flight, row.waiting, pool.kv_usage.get(row.instance))
        for row in pool.scheduler.in_flight()
    ]


def _debug(pool: Pool) -> dict[str, object]:
    return {
        "table": msgspec.to_builtins(pool.table),
        "requests": len(pool.tickets),
        "waiting": pool.waiting,
        "in_flight": [msgspec.to_builtins(row) for row in pool.scheduler.in_flight()],
        "kv_usage": pool.kv_usage,
    }


async def _send_json(send: Send, status: int, document: object) -> None:
    body = orjson.dumps(document)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
