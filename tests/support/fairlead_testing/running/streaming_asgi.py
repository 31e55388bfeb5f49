"""A transport that calls an ASGI app in the same process and streams its answer. httpx's own ASGITransport cannot
stream, because it waits for the end of the answer.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import httpx

Message = MutableMapping[str, Any]
App = Callable[[MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class _Body(httpx.AsyncByteStream):
    """The answer's chunks as the app sends them. Closing it early signals to the app that its client is gone."""

    def __init__(self, chunks: "asyncio.Queue[bytes | None]", task: "asyncio.Task[None]", gone: asyncio.Event) -> None:
        self._chunks = chunks
        self._task = task
        self._gone = gone

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk

    async def aclose(self) -> None:
        self._gone.set()
        if not self._task.done():
            self._task.cancel()
        await asyncio.wait([self._task])


class StreamingAsgiTransport(httpx.AsyncBaseTransport):
    """A transport that sends requests to `app` with the client address `client`.

    If the app fails before its answer has begun, the error is raised to the caller.
    """

    def __init__(self, app: App, client: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._app = app
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "server": (request.url.host, request.url.port),
            "client": self._client,
            "root_path": "",
            "state": {},
        }
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue(64)
        started: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]] = asyncio.get_running_loop().create_future()
        gone = asyncio.Event()
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                if not started.done():
                    started.set_result((message["status"], list(message["headers"])))
            elif message["type"] == "http.response.body":
                if message.get("body"):
                    await chunks.put(message["body"])
                if not message.get("more_body", False):
                    await chunks.put(None)

        async def run() -> None:
            try:
                await self._app(scope, receive, send)
            except BaseException as error:
                if not started.done() and not isinstance(error, asyncio.CancelledError):
                    started.set_exception(error)
                    return
                raise
            finally:
                if not started.done():
                    started.cancel()
                if not gone.is_set():
                    await chunks.put(None)

        task = asyncio.ensure_future(run())
        stream = _Body(chunks, task, gone)
        try:
            status, headers = await started
        except BaseException:
            await stream.aclose()
            raise
        return httpx.Response(status, headers=headers, stream=stream)
