"""Connections to engines over loopback, with peers that break the protocol or close early."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from fairlead.addresses import joined
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import HIGH_WATER, UpstreamConnection, UpstreamFailure
from fairlead_testing.waiting import PATIENCE_SECONDS

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(script: Script) -> AsyncIterator[str]:
    """Yield the address of a server that runs `script` for each connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def _pool(connect_seconds: float = PATIENCE_SECONDS) -> UpstreamPool:
    return UpstreamPool(asyncio.get_running_loop().time, connect_seconds=connect_seconds)


async def _ask(pool: UpstreamPool, address: str) -> UpstreamConnection:
    connection = await pool.connect(address)
    connection.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"")
    await connection.first()
    return connection


async def _body(connection: UpstreamConnection) -> bytes:
    body = b""
    while piece := await connection.read():
        body += piece
    return body


def _answering(*pieces: bytes, hold: bool = True) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if not hold:
                return

    return script


@pytest.mark.parametrize(
    "pieces",
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",),
        (b"HTTP/1.1 200 OK\r\ncontent-le", b"ngth: 5\r\n\r\nhe", b"llo"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
    ],
)
async def test_answers_are_read_however_they_are_framed_and_the_connection_is_used_again(pieces: tuple[bytes, ...]) -> None:
    pool = _pool()
    async with peer(_answering(*pieces)) as address:
        for _ in range(3):
            connection = pool.take_idle(address)
            if connection is None:
                connection = await _ask(pool, address)
            else:
                connection.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"")
                await connection.first()
            assert connection.status == 200
            assert await _body(connection) == b"hello"
            pool.release(connection)
        assert pool.opened == 1
        pool.close()


FIRST = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


@pytest.mark.parametrize("first", [FIRST, CHUNKED])
@pytest.mark.parametrize("more", [FIRST, CHUNKED, b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"x"])
async def test_what_comes_with_an_answer_behind_its_end_is_no_part_of_it(first: bytes, more: bytes) -> None:
    pool = _pool()
    async with peer(_answering(first + more)) as address:
        connection = await _ask(pool, address)
        assert (connection.status, await _body(connection)) == (200, b"hello")
        assert connection.complete
        pool.release(connection)
        assert pool.take_idle(address) is None, "its framing is not to be trusted"


async def test_an_answer_without_length_ends_with_its_connection() -> None:
    async with peer(_answering(b"HTTP/1.1 200 OK\r\n\r\nall there is", hold=False)) as address:
        pool = _pool()
        connection = await _ask(pool, address)
        assert await _body(connection) == b"all there is"
        pool.release(connection)
        assert pool.take_idle(address) is None


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort",), "lost"),
        ((b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n",), "lost"),
        ((b"HTTP/1.1 200 OK\r\ncontent-le",), "lost"),
        ((b"",), "lost"),
        ((b"SSH-2.0-OpenSSH\r\n",), "protocol"),
        ((b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",), "protocol"),
    ],
)
async def test_a_broken_answer_is_a_failure_of_that_kind(pieces: tuple[bytes, ...], kind: str) -> None:
    async with peer(_answering(*pieces, hold=False)) as address:
        with pytest.raises(UpstreamFailure) as caught:
            await _body(await _ask(_pool(), address))
        assert caught.value.kind == kind


async def test_an_engine_with_an_ipv6_address_is_asked_by_it_in_brackets() -> None:
    heads: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    try:
        server = await asyncio.start_server(script, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with server:
        address = joined("::1", server.sockets[0].getsockname()[1])
        assert await _pool().fetch(address, "/metrics", seconds=PATIENCE_SECONDS) == b"ok"
    assert f"host: {address}".encode() in heads[0].lower()


async def test_nobody_listening_is_refused() -> None:
    pool = _pool()
    async with peer(_answering(b"")) as address:
        pass
    with pytest.raises(UpstreamFailure) as caught:
        await pool.connect(address)
    assert caught.value.kind == "refused"
    with pytest.raises(UpstreamFailure) as caught:
        await pool.connect("not an address")
    assert caught.value.kind == "refused"
    assert not caught.value.reached


async def test_a_host_that_answers_no_connection_is_unreachable_unless_it_had_less_time_than_any() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = f"127.0.0.1:{full.getsockname()[1]}"
        waiting = socket.create_connection(full.getsockname())  # nobody takes it, so the next one's SYN is dropped
        with waiting:
            with pytest.raises(UpstreamFailure) as caught:
                await _pool(0.5).connect(address)
            assert (caught.value.kind, caught.value.reached) == ("unreachable", False)
            with pytest.raises(UpstreamFailure) as caught:
                await _pool().connect(address, 0.0)
            assert caught.value.kind == "deadline"


async def test_a_slow_reader_pauses_the_engine() -> None:
    total = 32 * 1024 * 1024
    sent = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        piece = b"x" * 65536
        while sent < total:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)

    async with peer(script) as address:
        connection = await _ask(_pool(), address)
        before = -1
        while before != sent:  # until the engine makes no more progress
            before = sent
            await asyncio.sleep(0.2)
        assert sent < total / 2, "the engine was never paused"
        assert len(await connection.read()) < HIGH_WATER + 4 * 1024 * 1024
        assert len(await _body(connection)) > total / 2
        assert sent == total


async def test_bytes_nobody_asked_for_close_an_idle_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(answer)
        await reader.read()

    async with peer(script) as address:
        pool = _pool()
        connection = await _ask(pool, address)
        assert await _body(connection) == b"ok"
        pool.release(connection)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not connection.closed:
                await asyncio.sleep(0.01)
        assert pool.take_idle(address) is None


async def test_idle_connections_are_closed_after_their_time() -> None:
    now = 0.0
    async with peer(_answering(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")) as address:
        pool = UpstreamPool(lambda: now, idle_seconds=30)
        connection = await _ask(pool, address)
        await _body(connection)
        pool.release(connection)
        now = 29.0
        pool.close_idle()
        assert not connection.closed
        now = 31.0
        pool.close_idle()
        assert connection.closed


async def test_fetching_bounds_time_and_size() -> None:
    pool = _pool()
    async with peer(_answering(b"")) as silent:
        with pytest.raises(UpstreamFailure, match="did not answer within"):
            await pool.fetch(silent, "/metrics", seconds=0.1)
    async with peer(_answering(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + b"x" * 100)) as address:
        assert len(await pool.fetch(address, "/metrics", seconds=PATIENCE_SECONDS)) == 100
        with pytest.raises(UpstreamFailure, match="more than 50 bytes"):
            await pool.fetch(address, "/metrics", seconds=PATIENCE_SECONDS, limit=50)
    async with peer(_answering(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")) as absent:
        with pytest.raises(UpstreamFailure, match="answered 404"):
            await pool.fetch(absent, "/metrics", seconds=PATIENCE_SECONDS)


async def test_an_upload_waits_for_an_engine_that_is_slow_to_take_it_and_hears_of_its_loss() -> None:
    taking = asyncio.Event()
    total = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal total
        await reader.readuntil(b"\r\n\r\n")
        await taking.wait()
        while total < 16 * 1024 * 1024:
            total += len(await reader.read(65536))
        raise ConnectionResetError

    async with peer(script) as address:
        connection = await _pool().connect(address)
        connection.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"")
        sent = 0

        async def send_for(seconds: float) -> None:
            nonlocal sent
            async with asyncio.timeout(seconds):
                while True:
                    await connection.send_more(b"x" * 65536)
                    sent += 65536

        with pytest.raises(TimeoutError):
            await send_for(0.5)
        assert sent < 16 * 1024 * 1024, "nobody takes it, so nobody may go on sending"
        taking.set()
        with pytest.raises(UpstreamFailure) as caught:
            await send_for(PATIENCE_SECONDS)
        assert caught.value.kind == "lost"


async def test_an_upload_hears_of_the_loss_also_if_it_never_waits() -> None:
    async with peer(_answering(b"")) as address:
        connection = await _pool().connect(address)
        connection.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"")
        assert connection._transport is not None
        connection._transport.get_extra_info("socket").shutdown(socket.SHUT_WR)

        async def send_much() -> None:
            for _ in range(1000):
                await connection.send_more(b"x")

        with pytest.raises(UpstreamFailure) as caught:
            await send_much()
        assert caught.value.kind == "lost"


async def test_the_kernel_asks_a_silent_host_whether_it_lives_and_gives_it_up_within_twenty_seconds() -> None:
    async with peer(_answering(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")) as address:
        connection = await _ask(_pool(), address)
        assert connection._transport is not None
        options = connection._transport.get_extra_info("socket")
        assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, probes = (
            options.getsockopt(socket.IPPROTO_TCP, option) for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * probes <= 20
        assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 20_000
        connection.close()
