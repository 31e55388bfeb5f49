"""Connections to the control API, over the network or to the API's ASGI app in this process.

httpx's own ASGITransport collects the whole body before it returns a response, so a server-sent event stream would
never begin, and an export would fill memory. Here the app runs as a task. Each chunk of a body is passed on when it is
sent, one at a time, and closing the response tells the app that its client has disconnected.

While its database is unreachable, the API marks stale responses with `x-fairlead-stale` and `age`. The typed client
hides headers, so a hook on the connection collects these ages in a list for each page request, and pages can show them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any

import httpx

from fairlead_client.addresses import reaching
from fairlead_client.http_clients import LARGEST_ANSWER, BoundedClient

Message = MutableMapping[str, Any]
App = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class _Exchange(httpx.AsyncByteStream):
    """One request to the ASGI app: `receive` and `send` for the app, an async iterator of body chunks for the client.

    Only the app runs as a task, because a page makes ten requests and streams last long, so that further tasks would be
    costly. App and client each wait for a future that the other one sets.
    """

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._chunk: bytes | None = None
        self._ended = False
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self.started: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    def run(self, app: Awaitable[None]) -> None:
        """Begin to run the app's response to the request."""
        self.task = asyncio.ensure_future(_awaited(app))
        self.task.add_done_callback(self._finished)

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
            if not self.started.done():  # a caller that was cancelled has not closed the exchange yet
                self.started.set_result((message["status"], list(message.get("headers", []))))
        elif message["type"] == "http.response.body":
            if chunk := message.get("body", b""):
                await self._offer(chunk)
            if not message.get("more_body", False):
                self._ended = True
                _set(self._news)

    async def _offer(self, chunk: bytes) -> None:
        """Pass a chunk to the client. Waits until the client has taken the previous chunk, or has disconnected."""
        while self._chunk is not None and not self._gone.is_set():
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        self._chunk = chunk
        _set(self._news)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert self.task is not None
        while True:
            if self._chunk is not None:
                chunk, self._chunk = self._chunk, None
                _set(self._room)
                yield chunk
            elif self._ended:
                return
            elif self.task.done():
                if self.task.cancelled() or self.task.exception() is not None:
                    raise httpx.RemoteProtocolError(f"the app failed mid-answer: {_failure(self.task)}")
                return
            else:
                self._news = asyncio.get_running_loop().create_future()
                await self._news

    async def aclose(self) -> None:
        self._gone.set()
        _set(self._room)
        if self.task is not None and not self.task.done():
            _, pending = await asyncio.wait({self.task}, timeout=1.0)
            for task in pending:
                task.cancel()

    def _finished(self, task: "asyncio.Task[None]") -> None:
        if not self.started.done():
            self.started.set_exception(httpx.RemoteProtocolError(f"the app ended without an answer: {_failure(task)}"))
        _set(self._news)


async def _awaited(app: Awaitable[None]) -> None:
    await app


def _set(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _failure(task: "asyncio.Task[None]") -> str:
    return "cancelled" if task.cancelled() else repr(task.exception())


class StreamingAsgiTransport(httpx.AsyncBaseTransport):
    """An httpx transport that calls the ASGI app `app` for every request.

    `client` is the client address that the app sees. Errors of the app become httpx.RemoteProtocolError.
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

        exchange.run(self._app(scope, exchange.receive, exchange.send))
        try:
            status, headers = await exchange.started
        except asyncio.CancelledError:
            if exchange.task is not None:
                exchange.task.cancel()
            raise
        return httpx.Response(status, headers=headers, stream=exchange, request=request)


def streaming(transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncBaseTransport | None:
    """Return the transport, or a StreamingAsgiTransport if it is httpx's ASGITransport."""
    if isinstance(transport, httpx.ASGITransport):
        return StreamingAsgiTransport(transport.app, transport.client)
    return transport


_ages: ContextVar[list[int] | None] = ContextVar("fairlead_web_stale_ages", default=None)


def watch() -> list[int]:
    """Start to collect the ages of stale responses for this page request, and return the list of ages.

    The list grows with each stale response, including responses in tasks that the request started.
    """
    ages: list[int] = []
    _ages.set(ages)
    return ages


async def _note(response: httpx.Response) -> None:
    ages = _ages.get()
    age = response.headers.get("age", "")
    if ages is not None and "x-fairlead-stale" in response.headers and age.isdigit():
        ages.append(int(age))


def api_client(urls: str | Sequence[str], transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """Return the HTTP client that all requests to the API share. It collects the ages of stale responses, and ignores
    proxies that the environment names.
    """
    base_url, transport = reaching(urls, transport)
    return BoundedClient(
        LARGEST_ANSWER,
        base_url=base_url,
        transport=transport,
        timeout=10.0,
        headers={"accept": "application/json"},
        event_hooks={"response": [_note]},
    )
