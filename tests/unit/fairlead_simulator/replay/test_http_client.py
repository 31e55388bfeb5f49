import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fairlead_simulator.replay.http_client import AnswerMalformed, AnswerReader, ConnectFailed, ConnectionBroke, HttpClient, Origin
from fairlead_testing.waiting import PATIENCE_SECONDS

HEAD = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nX-One: 1\r\ncontent-length: 2\r\n\r\nok"
Script = Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Answer(AnswerReader):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def on_piece(self, piece: bytes) -> None:
        self.pieces.append(piece)


async def serving(script: Script) -> tuple[asyncio.Server, Origin, list[int]]:
    """Return a server that runs `script` with the number of the connection, its origin, and the list of connections
    made.
    """
    made: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.append(len(made))
        try:
            await script(made[-1], reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, Origin.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), made


async def test_a_kept_connection_serves_many_requests() -> None:
    async def script(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(OK)

    server, origin, made = await serving(script)
    client = HttpClient()
    for _ in range(5):
        answer = Answer()
        await client.request(origin, HEAD, b"", answer)
        assert (answer.status, answer.headers[b"x-one"], b"".join(answer.pieces)) == (200, b"1", b"ok")
    assert made == [0]
    client.close()
    server.close()


async def test_a_kept_connection_that_was_closed_is_replaced_without_a_failure() -> None:
    async def script(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")  # and closes instead of answering

    server, origin, made = await serving(script)
    client = HttpClient()
    for _ in range(3):
        answer = Answer()
        await client.request(origin, HEAD, b"", answer)
        assert answer.status == 200
    assert made == [0, 1, 2]
    client.close()
    server.close()


async def test_a_new_connection_that_breaks_or_talks_nonsense_is_an_error() -> None:
    async def script(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf" if number == 0 else b"SSH-2.0-hello\r\n")
        await writer.drain()

    server, origin, _ = await serving(script)
    client = HttpClient()
    with pytest.raises(ConnectionBroke):
        await client.request(origin, HEAD, b"", Answer())
    with pytest.raises(AnswerMalformed, match="not HTTP"):
        await client.request(origin, HEAD, b"", Answer())
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectFailed, match=f"cannot connect to {origin.url}"):
        await client.request(origin, HEAD, b"", Answer())


async def test_a_cancelled_request_cuts_its_connection() -> None:
    asked, cut = asyncio.Event(), asyncio.Event()

    async def script(_: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(1000):
                asked.set()
        except ConnectionResetError:
            pass
        cut.set()

    server, origin, _ = await serving(script)
    task = asyncio.ensure_future(HttpClient().request(origin, HEAD, b"", Answer()))
    await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(cut.wait(), PATIENCE_SECONDS)
    server.close()


def test_urls_are_read_with_their_port_and_path() -> None:
    origin = Origin.parse("http://router.example/fairlead/")
    assert (origin.host, origin.port, origin.path, origin.authority) == ("router.example", 80, "/fairlead", "router.example:80")
    assert Origin.parse("https://[::1]:8443").authority == "[::1]:8443"
    for bad in ("router:8000", "ftp://x", "http://", "http://x:99999"):
        with pytest.raises(ValueError, match="cannot be used; write an address"):
            Origin.parse(bad)
