"""Connections through a Service's address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from processkube.service_endpoints import Listener
from processkube.service_proxy.proxying import Proxy
from processkube.testing.ports import free_port

HOST = "127.0.0.1"


@asynccontextmanager
async def a_pod(name: str) -> AsyncIterator[tuple[str, int]]:
    """Yield the address of a server that reads to the end, then answers with its name and the bytes that it read."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name.encode() + b":" + await reader.read())
        writer.close()

    async with await asyncio.start_server(answer, HOST, 0) as server:
        yield server.sockets[0].getsockname()[:2]


async def ask(port: int, text: str = "hello") -> str:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(text.encode())
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer.decode()


async def test_connections_take_turns_over_the_pods_and_pass_both_ends_on() -> None:
    proxy, port = Proxy(), free_port()
    async with a_pod("a") as first, a_pod("b") as second:
        assert await proxy.serve([Listener(address=HOST, port=port, targets=(first, second))]) == frozenset()
        large = "x" * 1_000_000
        answers = sorted([await ask(port, large) for _ in range(4)])
        assert answers == sorted([f"a:{large}", f"b:{large}"] * 2)
        await proxy.serve([])


async def test_an_open_connection_stays_where_it_is_when_the_pods_change() -> None:
    proxy, port = Proxy(), free_port()
    async with a_pod("a") as first, a_pod("b") as second:
        await proxy.serve([Listener(address=HOST, port=port, targets=(first,))])
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"early")
        await writer.drain()
        assert (await ask(port)).startswith("a")
        await proxy.serve([Listener(address=HOST, port=port, targets=(second,))])
        assert (await ask(port)).startswith("b")
        writer.write_eof()
        assert await reader.read() == b"a:early"
        writer.close()
        await proxy.serve([])


async def test_a_service_without_pods_refuses_clients() -> None:
    proxy, port = Proxy(), free_port()
    async with a_pod("a") as first:
        await proxy.serve([Listener(address=HOST, port=port, targets=(first,))])
    await proxy.serve([Listener(address=HOST, port=port, targets=())])
    with pytest.raises(ConnectionRefusedError):
        await ask(port)


async def test_a_place_that_is_taken_is_told_and_had_later() -> None:
    proxy, port = Proxy(), free_port()
    listener = Listener(address=HOST, port=port, targets=((HOST, 9),))
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), HOST, port):
        assert await proxy.serve([listener]) == {(HOST, port)}
    assert await proxy.serve([listener]) == frozenset()
    await proxy.serve([])
