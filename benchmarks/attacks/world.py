"""Eight pools of two mock engines, and a control API that lists them.

    python -m benchmarks.attacks.world SWITCH_PORT FIRST_ENGINE_PORT hostile
    python -m benchmarks.attacks.world API_PORT FIRST_ENGINE_PORT honest
    python -m benchmarks.attacks.world PORT FIRST_ENGINE_PORT somebody

The engines of the first pool are hostile. They run in a separate process, so that they do not slow the other engines.

The process `somebody` is a program that takes the place of the router. It sends the same requests to the hostile
engines as a router, so that the engines send the same bytes to it.

`GET /attack/NAME` at the port SWITCH_PORT begins an attack of the hostile engines, and `GET /attack/none` ends it.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import replace

import uvloop
from benchmarks.mock_engines import MockControlApi, MockEngine, routing_table

from fairlead.tables import PoolKey, RoutingTable
from fairlead_client.lines import SyncedLine, TableLine, encode_line

POOLS = 8
ENGINES = 2
"""Number of engines of each pool."""
_PIECE = b"x" * 65536
_VALUES = b'{"choices":[' + b"{}," * 2_500_000 + b"{}]}"
_HEAD_BYTES = 65_536
_PAUSE_SECONDS = 0.01
"""Seconds between two pieces of a flood. They give 6 MB/s per connection, so that the flood does not use the whole
machine.
"""
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def tables(first_port: int) -> list[RoutingTable]:
    """Return the tables of the pools `pool-0` (attacked) to `pool-7`; each serves the model of its name."""
    found: list[RoutingTable] = []
    for number in range(POOLS):
        start, name = first_port + number * ENGINES, f"pool-{number}"
        table = routing_table("fairlead", range(start, start + ENGINES))
        found.append(replace(table, pool=PoolKey(namespace="default", name=name), uid=name, model=name))
    return found


class HostileEngine(MockEngine):
    """An engine that makes the current attack. Without an attack it behaves like a mock engine."""

    attack = "none"

    def answer(self, head: bytes, body: bytes) -> None:
        is_prompt, is_page = b"/completions" in head[:60], b"/metrics" in head[:40]
        match self.attack:
            case "endless-head" if is_prompt:
                self.flood(b"HTTP/1.1 200 OK\r\nx: ", _PIECE)
            case "endless-103" if is_prompt:
                self.flood(b"", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 500)
            case "endless-extension" if is_prompt:
                self.flood(_STREAM + b"1;", _PIECE)
            case "endless-answer" if is_prompt:
                self.flood(_STREAM, b"10000\r\n" + _PIECE + b"\r\n")
            case "blank-lines" if is_prompt:
                self.flood(_STREAM, b"10000\r\n" + b"\n" * len(_PIECE) + b"\r\n")
            case "tiny-events" if is_prompt:
                self.flood(_STREAM, b"fffc\r\n" + b"data:{}\n\n" * 7281 + b"\n\n\n\r\n")
            case "tiny-chunks" if is_prompt:
                self.flood(_STREAM, b"1\r\n:\r\n" * 10_000)
            case "many-values" if is_prompt:
                self.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_VALUES), _VALUES))
            case "one-line-metrics" if is_page:
                page = b"vllm:kv_cache_usage_perc " * (1024 * 1024 // 25)
                self.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page))
            case "huge-figures" if is_page:
                page = b'vllm:cache_config_info{block_size="999999999999999",num_gpu_blocks="999999999999999"} 1e308\n'
                page += b"vllm:num_requests_running 1e400\nvllm:num_requests_waiting -5\nvllm:kv_cache_usage_perc NaN\n"
                self.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page))
            case "many-sources" if b"/kv_event_sources" in head[:60]:
                sources = b",".join([b'{"endpoint":"tcp://*:9","replay_endpoint":null}'] * 30_000)
                self.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n[%s]" % (len(sources) + 2, sources)
                )
            case "resets" if is_prompt:
                self.transport.abort()  # type: ignore[attr-defined]  # uvloop's transports are not subclasses of asyncio.Transport
            case "silence":
                pass
            case _:
                super().answer(head, body)

    def flood(self, before: bytes, piece: bytes) -> None:
        """Send `before`, and then `piece` repeatedly until the router closes the connection."""
        self.write(before)
        self.pour(piece)

    def pour(self, piece: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() < len(_PIECE):  # type: ignore[attr-defined]  # as above
            self.write(piece)
        self.loop.call_later(_PAUSE_SECONDS, self.pour, piece)


class Switch(MockEngine):
    """The server that sets the hostile engines' attack."""

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get /attack/"):
            HostileEngine.attack = head[12:].partition(b" ")[0].decode()
        self.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


class ManyPools(MockControlApi):
    """A control API whose stream has all tables."""

    all_tables: tuple[RoutingTable, ...] = ()

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get /internal/v1/stream"):
            lines = b"".join(encode_line(TableLine(table=table)) for table in self.all_tables) + encode_line(SyncedLine())
            self.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(lines), lines))
            self.beat()
        else:
            super().answer(head, body)


class Somebody:
    """Takes the place of the router: accepts clients' requests, sends them to both hostile engines, and reads as much
    of the answers as a router does.
    """

    def __init__(self, engines: range) -> None:
        self._engines = engines

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, RuntimeError):  # uvloop's, of a client that has gone
            request = await reader.read(_HEAD_BYTES)
            if request.startswith(b"GET "):  # asks whether this process is ready
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            else:
                for port in self._engines:
                    async with asyncio.timeout(20):
                        await self._ask(port, request, writer)
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async def _ask(self, port: int, request: bytes, client: asyncio.StreamWriter) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        taken, passes = 0, False
        try:
            while (piece := await reader.read(_HEAD_BYTES)) and (passes or taken <= _HEAD_BYTES) and not client.is_closing():
                passes = passes or (not taken and piece.startswith((_STREAM + b"1", _STREAM + b"f")) and b";" not in piece[:200])
                taken += len(piece)
                if passes:
                    client.write(piece)
                    await client.drain()
        finally:
            writer.transport.abort()

    async def read_pages(self) -> None:
        """Read the hostile engines' metrics every second, as a router does."""
        while True:
            for port in self._engines:
                with suppress(OSError, TimeoutError, EOFError):
                    async with asyncio.timeout(0.9):
                        reader, writer = await asyncio.open_connection("127.0.0.1", port)
                        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
                        head = await reader.readuntil(b"\r\n\r\n")
                        await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
                        writer.transport.abort()
            await asyncio.sleep(1.0)


async def serve_somebody(port: int, first_port: int) -> None:
    somebody = Somebody(range(first_port, first_port + ENGINES))
    await asyncio.start_server(somebody.serve, "127.0.0.1", port)
    await somebody.read_pages()


async def serve_world(port: int, first_port: int, part: str) -> None:
    loop, hostile = asyncio.get_running_loop(), part == "hostile"
    ManyPools.all_tables = tuple(tables(first_port))
    for number in range(ENGINES) if hostile else range(ENGINES, POOLS * ENGINES):
        await loop.create_server(HostileEngine if hostile else MockEngine, "127.0.0.1", first_port + number, backlog=1024)
    await loop.create_server(Switch if hostile else ManyPools, "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    own_port, engines_port, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    uvloop.run(serve_somebody(own_port, engines_port) if kind == "somebody" else serve_world(own_port, engines_port, kind))
