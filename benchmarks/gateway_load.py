"""Loads on a gateway: many connections, each of which sends its next request when the last one is answered.

    python -m benchmarks.gateway_load PORT CASE SESSION SECONDS

prints a line of JSON with counts, latencies, and the CPU seconds that the processes of the session used during the
load. A measurement from outside would also count their CPU while this program starts.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass

import uvloop
from benchmarks.costs import session_cpu_seconds
from benchmarks.mock_engines import CHUNKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A load: the bytes of its prompt, whether answers are streamed, the engine's pace, and its parallel connections.

    The pace is the time to the first token and the time between tokens, in ms; None for answers at once.
    """

    name: str
    prompt_bytes: int
    stream: bool
    pace: tuple[int, int] | None
    connections: int


CASES = {
    case.name: case
    for case in (
        Case(name="short-json", prompt_bytes=64, stream=False, pace=None, connections=32),
        Case(name="short-stream", prompt_bytes=64, stream=True, pace=None, connections=32),
        Case(name="long-json", prompt_bytes=65536, stream=False, pace=None, connections=16),
        Case(name="long-stream", prompt_bytes=65536, stream=True, pace=None, connections=16),
        Case(name="paced-stream", prompt_bytes=64, stream=True, pace=(20, 5), connections=256),
        Case(name="few-streams", prompt_bytes=64, stream=True, pace=(20, 5), connections=8),
    )
}


class LoadConnection(asyncio.Protocol):
    """A connection in a closed loop: it sends the same request again as soon as the last answer is complete."""

    def __init__(self, request: bytes, stream: bool, results: LoadResults) -> None:
        self.request = request
        self.stream = stream
        self.results = results
        self.buffer = b""
        self.started = 0.0
        self.first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.fire()

    def fire(self) -> None:
        self.buffer = b""
        self.first = 0.0
        self.started = time.perf_counter()
        self.transport.write(self.request)  # type: ignore[attr-defined]  # uvloop's transports are not subclasses of asyncio.Transport

    def data_received(self, data: bytes) -> None:
        if not self.first and (not self.stream or b"data:" in data):
            self.first = time.perf_counter()
        self.buffer += data
        # An error instead of a stream has a length: without it, the connection would wait for an end that never comes.
        streamed = self.stream and self.buffer.startswith(b"HTTP/1.1 200")
        head = -1 if streamed else self.buffer.find(b"\r\n\r\n")
        found = re.search(rb"content-length: *(\d+)", self.buffer[:head], re.IGNORECASE) if head >= 0 else None
        # Some send also what is not streamed in chunks.
        if len(self.buffer) >= head + 4 + int(found[1]) if found is not None else self.buffer.endswith(b"0\r\n\r\n"):
            self.results.add(self.buffer, self.first - self.started, time.perf_counter() - self.started)
            self.fire()

    def connection_lost(self, exc: Exception | None) -> None:
        self.results.lost += 1


class LoadResults:
    """The results of a load: for each answer with status 200, the seconds to its first byte and to its end.

    `bad` is the number of answers with another status, and `lost` the number of connections that were closed.
    """

    def __init__(self) -> None:
        self.first: list[float] = []
        self.total: list[float] = []
        self.bad = 0
        self.lost = 0

    def add(self, answer: bytes, first: float, total: float) -> None:
        if answer.startswith(b"HTTP/1.1 200"):
            self.first.append(first)
            self.total.append(total)
        else:
            self.bad += 1


async def generate_load(port: int, case: Case, session: int, seconds: float) -> dict[str, float]:
    prompt = ("hello world " * (case.prompt_bytes // 12 + 1))[: case.prompt_bytes]
    if case.pace:
        prompt = f"pace-{case.pace[0]}-{case.pace[1]} {prompt}"
    document = {"model": "mock", "messages": [{"role": "user", "content": prompt}], "max_tokens": CHUNKS, "stream": case.stream}
    body = json.dumps(document).encode()
    request = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nauthorization: Bearer k\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body
    results = LoadResults()
    loop = asyncio.get_running_loop()
    before = session_cpu_seconds(session)
    for _ in range(case.connections):
        await loop.create_connection(lambda: LoadConnection(request, case.stream, results), "127.0.0.1", port)
    await asyncio.sleep(seconds)
    used = session_cpu_seconds(session) - before
    first, total = sorted(results.first), sorted(results.total)
    if not total:
        return {"requests": 0, "bad": results.bad, "lost": results.lost, "cpu_seconds": used}
    return {
        "cpu_seconds": used,
        "requests": len(total),
        "bad": results.bad,
        "lost": results.lost,
        "first_p50_ms": first[len(first) // 2] * 1000,
        "first_p99_ms": first[int(len(first) * 0.99)] * 1000,
        "total_p50_ms": total[len(total) // 2] * 1000,
        "total_p99_ms": total[int(len(total) * 0.99)] * 1000,
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(generate_load(int(sys.argv[1]), CASES[sys.argv[2]], int(sys.argv[3]), float(sys.argv[4])))))
