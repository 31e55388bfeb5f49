"""Answers of an app in the same process arrive as they are made, and the app learns when its client has left."""

import asyncio
from typing import Any

import httpx
import pytest

from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_web.live.api_connections import StreamingAsgiTransport, streaming


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=StreamingAsgiTransport(app), base_url="http://api", timeout=PATIENCE_SECONDS)


async def test_chunks_arrive_before_the_answer_ends() -> None:
    may_end = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await may_end.wait()
        await send({"type": "http.response.body", "body": b"last"})

    async with client(app) as http, http.stream("GET", "/") as answer:
        chunks = answer.aiter_raw()
        assert answer.headers["x-a"] == "b"
        assert await anext(chunks) == b"first"
        may_end.set()
        assert await anext(chunks) == b"last"
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)


async def test_an_app_is_not_read_ahead_of_its_client() -> None:
    sent: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(100):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            sent.append(number)

    async with client(app) as http, http.stream("GET", "/") as answer:
        await anext(answer.aiter_raw())
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(sent) < 5


async def test_an_app_learns_that_its_client_has_gone() -> None:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        told.set_result((await receive())["type"])

    async with client(app) as http:
        async with http.stream("GET", "/") as answer:
            await anext(answer.aiter_raw())
        assert await asyncio.wait_for(told, PATIENCE_SECONDS) == "http.disconnect"


async def test_an_app_may_answer_a_client_that_has_stopped_waiting() -> None:
    """A page's request is cancelled when its time is up; the app's answer may begin at that moment."""
    asked, answers, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    failures: list[Exception] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await answers.wait()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        except asyncio.InvalidStateError as error:
            failures.append(error)
        finally:
            ended.set()

    async with client(app) as http:
        waiting = asyncio.create_task(http.get("/"))
        await asked.wait()
        answers.set()
        waiting.cancel()
        await asyncio.wait({waiting})
        await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)
    assert failures == []


async def test_the_body_reaches_the_app_whole() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": scope["method"].encode() + b" " + body})

    async with client(app) as http:
        answer = await http.post("/", content=b"hello")
        assert (answer.status_code, answer.text) == (201, "POST hello")


async def test_an_app_that_fails_is_a_broken_connection_and_not_a_traceback() -> None:
    async def fails_early(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("no database")

    async def fails_late(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("cut")

    for app in (fails_early, fails_late):
        async with client(app) as http:
            with pytest.raises(httpx.RemoteProtocolError):
                await http.get("/")


def test_only_the_collecting_transport_is_replaced() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    other = httpx.MockTransport(lambda request: httpx.Response(200))
    assert isinstance(streaming(httpx.ASGITransport(app)), StreamingAsgiTransport)
    assert streaming(other) is other
    assert streaming(None) is None
