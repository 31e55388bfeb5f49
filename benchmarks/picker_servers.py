"""Servers that answer the load of an endpoint picker with canned bytes, to compare the cost of servers.

python -m benchmarks.picker_servers KIND PORT BODY_BYTES
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import uvloop
from benchmarks.picker_load import METHOD

from fairlead_process.grpc_server.grpc_connection import GrpcConnection
from fairlead_process.grpc_server.grpc_stream import GrpcStream
from fairlead_router.picking import wire
from fairlead_router.picking.messages import PassBody, PassHeaders, Side

KINDS = ("own", "grpc-aio", "grpc-sync")


def canned(body_bytes: int, pieces: int = 0) -> list[list[bytes]]:
    """Return the bytes to send after each number of received messages. Each piece of a streamed response is passed
    on.
    """
    headers = wire.encode(PassHeaders(Side.REQUEST, [(b"content-length", b"9")], [], "127.0.0.1:8000,127.0.0.1:8001"))
    body = wire.encode(PassBody(Side.REQUEST, b"x" * (body_bytes + 64), True))
    passed = wire.encode(PassHeaders(Side.RESPONSE, [(b"x-fairlead-instance", b"i0")]))
    streamed = [[wire.encode(PassBody(Side.RESPONSE, b"x" * 96, False))]] * pieces
    return [[], [headers, body], [passed], *streamed, [wire.encode(PassBody(Side.RESPONSE, b"x" * 128, True))]]


class CannedStream:
    def __init__(self, stream: GrpcStream, canned: list[list[bytes]]) -> None:
        self.stream, self.canned, self.heard = stream, canned, 0

    def message(self, payload: bytes) -> None:
        for answer in self.canned[self.heard]:
            self.stream.send(answer)
        self.heard += 1

    def keeps(self, size: int) -> bool:
        return True

    def half_closed(self) -> None:
        self.stream.finish(0)

    def gone(self) -> None:
        pass


async def serve_own(port: int, canned: list[list[bytes]]) -> None:
    def connection() -> GrpcConnection:
        return GrpcConnection(lambda stream: CannedStream(stream, canned), 1 << 24, lambda _: None)

    await asyncio.get_running_loop().create_server(connection, "127.0.0.1", port)
    await asyncio.Event().wait()


async def serve_aio(port: int, canned: list[list[bytes]]) -> None:
    async def handle(requests: Any, context: Any) -> Any:
        heard = 0
        async for _ in requests:
            for answer in canned[heard]:
                yield answer
            heard += 1

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handler(handle),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def serve_sync(port: int, canned: list[list[bytes]]) -> None:
    def handle(requests: Any, context: Any) -> Iterator[bytes]:
        for heard, _ in enumerate(requests):
            yield from canned[heard]

    server = grpc.server(ThreadPoolExecutor(64))
    server.add_generic_rpc_handlers((_handler(handle),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def serve(kind: str, port: int, canned: list[list[bytes]]) -> None:
    if kind == "own":
        uvloop.run(serve_own(port, canned))
    elif kind == "grpc-aio":
        asyncio.run(serve_aio(port, canned))
    else:
        serve_sync(port, canned)


def _handler(handle: Any) -> Any:
    service, method = METHOD[1:].split("/")
    return grpc.method_handlers_generic_handler(service, {method: grpc.stream_stream_rpc_method_handler(handle)})


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), canned(int(sys.argv[3])))
