"""An httpx transport that calls an ASGI app in this process and streams its answer.

httpx's own ASGITransport collects the whole body before it answers, so a server-sent event stream would never begin and
an export would sit in memory. Here the app runs as a task; each body chunk is handed over as it comes, one at a time,
and closing the response tells the app that its client has gone.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import httpx

Message = MutableMapping[str, Any]
App = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class _Exchange(httpx.AsyncByteStream):
    """One request: `receive` and `send` for the app, an async iterator of body chunks for the client."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        self.started: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            self.started.set_result((message["status"], list(message.get("headers", []))))
        elif message["type"] == "http.response.body":
            if chunk := message.get("body", b""):
                await self._offer(chunk)
            if not message.get("more_body", False):
                await self._offer(None)

    async def _offer(self, chunk: bytes | None) -> None:
        """Waits until the client took the chunk before, or went away."""
        put = asyncio.ensure_future(self._chunks.put(chunk))
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({put, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in (put, gone):
                waiter.cancel()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert self.task is not None
        while True:
            take = asyncio.ensure_future(self._chunks.get())
            waited: set[asyncio.Future[Any]] = {take, self.task}
            try:
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if not take.done() and self._chunks.empty():
                    if self.task.exception() is not None:
                        raise httpx.RemoteProtocolError(f"the app failed mid-answer: {self.task.exception()!r}")
                    return
                chunk = await take
            finally:
                take.cancel()
            if chunk is None:
                return
            yield chunk

    async def aclose(self) -> None:
        self._gone.set()
        if self.task is not None and not self.task.done():
            _, pending = await asyncio.wait({self.task}, timeout=1.0)
            for task in pending:
                task.cancel()


class StreamingAsgiTransport(httpx.AsyncBaseTransport):
    """Calls `app` for every request.

    `client` is the address it sees. Errors of the app become httpx.RemoteProtocolError.
    """

    def __init__(self, app: App, client: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._app = app
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(await request.aread())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.split(b"?")[0],
            "query_string": request.url.query,
            "server": (request.url.host, request.url.port),
            "client": self._client,
            "root_path": "",
        }

        async def run() -> None:
            await self._app(scope, exchange.receive, exchange.send)

        exchange.task = asyncio.create_task(run())
        waited: set[asyncio.Future[Any]] = {exchange.started, exchange.task}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            exchange.task.cancel()
            raise
        if not exchange.started.done():
            exchange.started.cancel()
            raise httpx.RemoteProtocolError(f"the app ended without an answer: {exchange.task.exception()!r}")
        status, headers = exchange.started.result()
        return httpx.Response(status, headers=headers, stream=exchange, request=request)


def streaming(transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncBaseTransport | None:
    """The transport itself, or its streaming twin when it is httpx's collecting one."""
    if isinstance(transport, httpx.ASGITransport):
        return StreamingAsgiTransport(transport.app, transport.client)
    return transport
