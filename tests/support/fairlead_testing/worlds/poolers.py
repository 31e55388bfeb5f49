"""A stand-in for a connection pooler in front of Postgres, with two restrictions of PgBouncer 1.18.

It refuses the start parameter `options`. In transaction mode it passes no notification on to a waiting client.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from fairlead_testing.running.postgres import plain

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104
_NOTICE = b"A"


@asynccontextmanager
async def pooler(url: str, *, transactions: bool = False) -> AsyncIterator[str]:
    """Yield the URL of a pooler in front of the database of `url`, in session mode unless `transactions` is set."""
    parts = conninfo_to_dict(plain(url))
    socket = Path(str(parts["host"])) / f".s.PGSQL.{parts.get('port') or 5432}"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _serve(reader, writer, socket, passes_notices=not transactions)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"postgresql+psycopg://{quote(str(parts['user']))}@127.0.0.1:{port}/{parts['dbname']}"
    finally:
        server.close()  # without waiting for connections that nobody ends


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: Path, *, passes_notices: bool) -> None:
    start = await _first(reader, writer)
    if b"\0options\0" in start:
        said = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
        writer.write(b"E" + struct.pack("!i", len(said) + 4) + said)
        await writer.drain()
        return
    answers, requests = await asyncio.open_unix_connection(str(socket))
    requests.write(start)
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_pass_requests(reader, requests))
            both.create_task(_pass_answers(answers, writer, passes_notices=passes_notices))
    except* (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        requests.close()


async def _first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the message that starts a session, after requests for encryption, which are declined."""
    while True:
        head = await reader.readexactly(8)
        length, code = struct.unpack("!ii", head)
        if code not in {_SSL_REQUEST, _GSS_REQUEST}:
            return head + await reader.readexactly(length - 8)
        writer.write(b"N")


async def _pass_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise asyncio.IncompleteReadError(b"", None)


async def _pass_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, passes_notices: bool) -> None:
    while True:
        head = await reader.readexactly(5)
        body = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
        if passes_notices or head[:1] != _NOTICE:
            writer.write(head + body)
            await writer.drain()
