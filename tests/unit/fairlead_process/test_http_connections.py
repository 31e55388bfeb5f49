"""Request heads over a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from fairlead_process import http_connections
from fairlead_process.doors import Door
from fairlead_process.http_connections import MOST_BYTES, http_server
from fairlead_testing.waiting import PATIENCE_SECONDS

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def listening(app: Any, most: int = 100) -> AsyncIterator[tuple[str, int]]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    place = listener.getsockname()
    server = http_server(app, Door(most), lifespan="off")
    serving = asyncio.create_task(server.serve([listener]))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server.started:
            await asyncio.sleep(0.01)
    try:
        yield place
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def connected(app: Any = _app) -> AsyncIterator[Connection]:
    async with listening(app) as place:
        reader, writer = await asyncio.open_connection(*place)
        try:
            yield reader, writer
        finally:
            writer.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await reader.readuntil(b"ok")


@pytest.mark.parametrize("piece", [b"a" * 16384, b"a: " + b"b" * 16000 + b"\r\n"], ids=["one header", "many headers"])
async def test_a_head_without_end_is_refused(piece: bytes) -> None:
    async def send(writer: asyncio.StreamWriter) -> None:
        for _ in range(1000):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    async with connected() as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nx-" + piece)
        with pytest.raises(ConnectionError):
            await send(writer)


async def test_a_head_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "MOST_SECONDS", 0.1)
    for sent, told in ((b"", b""), (b"GET / HTTP/1.1\r\nx: ", b"HTTP/1.1 408 ")):
        async with connected() as (reader, writer):
            writer.write(sent)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert (await reader.read())[: len(told) or None] == told


async def test_requests_one_after_the_other_and_large_bodies_are_served() -> None:
    async with connected() as (reader, writer):
        body = b"x" * (4 * MOST_BYTES)
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")


async def read_all(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await reader.read()


@pytest.mark.parametrize(("piece", "status"), [(b"x", b"408"), (b"x" * 1000, b"200")], ids=["drips", "takes its time"])
async def test_a_body_that_drips_is_refused_and_a_large_one_may_take_its_time(
    piece: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of the body arrives for each read. The loop's clock is advanced when the app has got the piece before."""
    monkeypatch.setattr(http_connections, "BODY_SECONDS", 10 * PATIENCE_SECONDS)
    monkeypatch.setattr(http_connections, "BODY_BYTES", 1000)
    loop, wound_on = asyncio.get_running_loop(), 0.0
    real_time = loop.time
    monkeypatch.setattr(loop, "time", lambda: real_time() + wound_on)
    pieces = asyncio.Queue[int]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def told() -> Any:
            message = await receive()
            pieces.put_nowait(len(message.get("body", b"")))
            return message

        await _app(scope, told, send)

    async with connected(app) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (20 * len(piece)))
        for _ in range(20):
            writer.write(piece)
            while await pieces.get() < len(piece):
                pass
            wound_on += 10 * PATIENCE_SECONDS
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if status == b"408":
                break
        assert (await read_all(reader) if status == b"408" else await answer(reader)).startswith(b"HTTP/1.1 %b " % status)


async def test_thousands_of_requests_in_one_read_become_few_calls_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal calls
        calls += 1
        await _app(scope, receive, send)

    async with connected(app) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 5000)
        with suppress(ConnectionError):
            await read_all(reader)
    assert calls <= http_connections.MOST_PIPELINED + 1


async def test_an_answer_that_nobody_reads_is_dropped_with_its_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "UNREAD_SECONDS", 0.1)
    ended = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

        async def tell() -> None:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)

        telling = asyncio.create_task(tell())
        while (await receive())["type"] != "http.disconnect":
            pass
        telling.cancel()
        ended.set()

    async with connected(endless) as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()


async def test_a_full_port_serves_who_asks_and_refuses_the_rest_politely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "STRANGER_SECONDS", PATIENCE_SECONDS)
    async with listening(_app, most=3) as place:
        strangers = [await asyncio.open_connection(*place) for _ in range(3)]
        strangers[0][1].write(b"GET / HTTP/1.1\r\nx-")
        reader, _ = await asyncio.open_connection(*place)
        refused = await read_all(reader)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in refused
        monkeypatch.setattr(http_connections, "STRANGER_SECONDS", 0.0)  # as if they had been there for so long
        askers = []  # all stay, so that each takes a stranger's place
        for _ in range(3):
            askers.append(await asyncio.open_connection(*place))
            askers[-1][1].write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await answer(askers[-1][0])).startswith(b"HTTP/1.1 200 ")
        told = [await read_all(reader) for reader, _ in strangers]
        assert told[0].startswith(b"HTTP/1.1 503 "), "it had begun to ask"
        assert told[1:] == [b"", b""]
