"""Mock engines that answer at once or at a given pace, and a mock control API with one table: the environment in which
routers are measured.

python -m benchmarks.mock_engines API_PORT FIRST_ENGINE_PORT ENGINES TABLE_AS_JSON
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

import msgspec
import uvloop

from fairlead.instances import InstanceState
from fairlead.reports.batches import ReportReceipt
from fairlead.tables import (
    EarlyRejectionFacts,
    EngineFacts,
    InstanceEntry,
    PoolKey,
    RoutingFacts,
    RoutingTable,
    SessionFacts,
    SloFacts,
)
from fairlead_client.lines import HeartbeatLine, SyncedLine, TableLine, encode_line

CHUNKS = 16
"""The number of pieces of a streamed answer, and of tokens of every answer."""
_CHUNK = (
    b'data: {"id":"cmpl-0","object":"chat.completion.chunk","created":1700000000,"model":"mock","choices":'
    b'[{"index":0,"delta":{"content":"tok "},"finish_reason":null}]}\n\n'
)
_BODY = (
    b'{"id":"cmpl-0","object":"chat.completion","created":1700000000,"model":"mock","choices":[{"index":0,"message":{"role":"assistant","content":"'
    + b"tok " * CHUNKS
    + b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":16,"total_tokens":28}}'
)

_MODELS = b'{"object":"list","data":[{"id":"mock","object":"model","created":1700000000,"owned_by":"mock","root":"mock"}]}'


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _json_answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


_JSON_ANSWER = _json_answer(_BODY)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_STREAM_CHUNK = _framed(_CHUNK)
_STREAM_END = _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
_PAGE = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.1\n"


def routing_table(policy: str, ports: range) -> RoutingTable:
    return RoutingTable(
        pool=PoolKey(namespace="default", name="bench"),
        uid="bench",
        version=1,
        generation=1,
        model="mock",
        engine=EngineFacts(type="simulated", port=ports[0], prefill_tokens_per_second=10_000_000.0),
        routing=RoutingFacts(policy=policy, prefills_in_flight=0),
        session=SessionFacts(),
        slo=SloFacts(),
        early_rejection=EarlyRejectionFacts(),
        instances=tuple(InstanceEntry(id=f"bench-b{port}", address=f"127.0.0.1:{port}", state=InstanceState.SERVING) for port in ports),
    )


class MockEngine(asyncio.Protocol):
    """A mock engine. It answers every request at once or, if the prompt begins with a pace, at this pace.

    The pace `pace-20-5` is 20 ms to the first token and 5 ms between tokens.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.buffer = b""

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)  # type: ignore[attr-defined]  # uvloop's transports are not subclasses of asyncio.Transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            found = re.search(rb"content-length: *(\d+)", head)
            total = end + 4 + (int(found[1]) if found else 0)
            if len(self.buffer) < total:
                return
            body, self.buffer = self.buffer[end + 4 : total], self.buffer[total:]
            self.answer(head, body)

    def answer(self, head: bytes, body: bytes) -> None:
        if b"/completions" not in head[:60]:
            page = _PAGE if b"/metrics" in head[:40] else _MODELS if b"/v1/models" in head[:40] else b"{}"
            self.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page))
            return
        pace = re.search(rb"pace-(\d+)-(\d+) ", body)
        if b'"stream":true' not in body and b'"stream": true' not in body:
            self.write(_JSON_ANSWER)
        elif pace is None:
            self.write(_STREAM_HEAD + _STREAM_CHUNK)
            for _ in range(CHUNKS - 1):
                self.write(_STREAM_CHUNK)
            self.write(_STREAM_END)
        else:
            self.loop.call_later(int(pace[1]) / 1000, self.step, CHUNKS, int(pace[2]) / 1000, _STREAM_HEAD)

    def step(self, left: int, interval: float, before: bytes) -> None:
        if left == 0:
            self.write(_STREAM_END)
        else:
            self.write(before + _STREAM_CHUNK)
            self.loop.call_later(interval, self.step, left - 1, interval, b"")


class MockControlApi(MockEngine):
    """Sends the table stream (a table, `synced`, heartbeats), and answers reports with receipts."""

    table = b""

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get /internal/v1/stream"):
            self.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            table = msgspec.json.decode(self.table, type=RoutingTable)
            self.write(_framed(encode_line(TableLine(table=table)) + encode_line(SyncedLine())))
            self.beat()
        elif head.startswith(b"post /internal/v1/reports"):
            receipts = [ReportReceipt(id=report["id"], duplicate=False) for report in json.loads(body)]
            self.write(_json_answer(msgspec.json.encode(receipts)))
        else:
            self.write(_json_answer(b"{}"))

    def beat(self) -> None:
        if not self.transport.is_closing():
            self.write(_framed(encode_line(HeartbeatLine())))
            self.loop.call_later(2.0, self.beat)


async def serve_mocks(api_port: int, first_port: int, count: int, table: bytes) -> None:
    loop = asyncio.get_running_loop()
    for port in range(first_port, first_port + count):
        await loop.create_server(MockEngine, "127.0.0.1", port, backlog=1024)
    MockControlApi.table = table
    await loop.create_server(MockControlApi, "127.0.0.1", api_port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve_mocks(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()))
