"""An HTTP request and its response, as the engine's protocol handlers use them."""

import asyncio
from typing import Any
from urllib.parse import parse_qs

import orjson

from fairlead_simulator.engine_server.asgi import JSON, Connections, Receive, Scope, Send, answer, read_body
from fairlead_simulator.engine_server.failures import HEADER, Failure, FailureKind, parse_failure
from fairlead_simulator.engine_server.fields import Document, json_object, priority

TIMING_HEADER = b"x-sim-timing"
"""A request header that asks for the engine's timestamps. The response then has a field `timing`, with seconds of
engine time since the engine's start.
"""

_STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class Exchange:
    """A received request, and the methods that send its response. `name` is the variable part of the path, "" if the
    path has no such part.
    """

    __slots__ = (
        "_body_limit_bytes",
        "_connections",
        "_receive",
        "_scope",
        "_send",
        "failure",
        "headers",
        "name",
        "priority",
        "status",
        "timing",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, connections: Connections, body_limit_bytes: int, name: str = "") -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._connections = connections
        self._body_limit_bytes = body_limit_bytes
        self.name = name
        self.status: int | None = None
        """HTTP status of the response; None until the response has begun."""
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.timing = TIMING_HEADER in self.headers
        self.priority = 0
        """The request's priority number, of which a lower one goes first; 0 until `document` has read it."""
        self.failure: Failure | None = None
        """The failure that the request asks the engine to inject; None if it asks for none. `read_failure` sets it."""

    def read_failure(self) -> None:
        """Set `failure` from the header `x-sim-fail`, if the request has this header. Raises RequestInvalid."""
        if HEADER in self.headers:
            self.failure = parse_failure(self.headers[HEADER])

    def fails(self, kind: FailureKind) -> bool:
        return self.failure is not None and self.failure.kind is kind

    @property
    def host(self) -> str:
        """The address of this engine to which the client has connected."""
        server = self._scope.get("server")
        return server[0] if server else "127.0.0.1"

    def query(self, field: str) -> str | None:
        """Return the last value of a field in the query string; None if the field is absent."""
        values = self.queries(field)
        return values[-1] if values else None

    def queries(self, field: str) -> list[str]:
        """Return all values of a field in the query string; empty if the field is absent."""
        return parse_qs(self._scope.get("query_string", b"").decode("latin-1")).get(field, [])

    async def body(self) -> bytes:
        """Return the whole request body. Raises BodyTooLarge or ClientGone."""
        return await read_body(self._receive, self._body_limit_bytes)

    async def document(self) -> Document:
        """Return the request body as a JSON object. Raises RequestInvalid and the errors of `body`."""
        document = json_object(await self.body(), self.headers.get(b"content-type", b""))
        self.priority = priority(document, self.headers, self._scope["path"])
        return document

    async def answer(
        self, status: int, body: bytes = b"", content_type: bytes | None = JSON, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        self.status = status
        await answer(self._send, status, body, content_type, headers)

    async def answer_json(self, document: dict[str, Any]) -> None:
        await self.answer(200, orjson.dumps(document))

    async def begin_stream(self) -> None:
        self.status = 200
        await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})

    async def send_events(self, events: bytes, *, last: bool) -> None:
        await self._send({"type": "http.response.body", "body": events, "more_body": not last})

    def watch(self) -> "asyncio.Future[None]":
        """Return a future that is done when the client has disconnected. The caller must cancel the future."""
        return asyncio.ensure_future(self.gone())

    async def gone(self) -> None:
        """Wait until the client has disconnected."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def cut(self) -> None:
        """Abort the connection, as if the process had crashed, and return once the connection is closed."""
        client = self._scope.get("client")
        transport = self._connections.get(tuple(client)) if client else None
        if transport is not None:
            transport.abort()
            await self.gone()
