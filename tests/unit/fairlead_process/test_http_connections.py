"""Heads of requests, over a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from fairlead_process import http_connections
from fairlead_process.doors import Door
from fairlead_process.http_connections import MOST_BYTES, http_config
from fairlead_testing.waiting import PATIENCE_SECONDS

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def connected() -> AsyncIterator[Connection]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(http_config(_app, Door(100), lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server.started:
            await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await serving


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


async def test_requests_one_after_the_other_and_large_bodies_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "MOST_SECONDS", 1.0)
    async with connected() as (reader, writer):
        body = b"x" * (4 * MOST_BYTES)
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
        assert (await answer(reader)).startswith(b"HTTP/1.1 200 ")
