"""Measures the router's CPU time per request on one core, against mock engines that answer at once.

    python benchmarks/gateway.py [--policies fairlead,round-robin] [--instances 8] [--seconds 4]
        [--cases short-json,short-stream,long-json,paced-stream,few-streams]
    python benchmarks/gateway.py --against 'sglang={command with {port} and {workers}}'
    python benchmarks/gateway.py --against-file peers.txt

The file has a line `NAME=COMMAND` for each other router; `#` begins a comment. One that does not answer within four
minutes is left out, and said so.

One router process is pinned to core 0; mock engines, a mock control API and the load generator share the last core.
Figures are CPU microseconds of the router's process group per request (1e6 / that = requests per second and core),
requests per second, and client latencies under that load. Compare figures of one run only: they depend on the machine,
and on this Python, which is named first. A Python without profile-guided optimization, as pyenv builds by default, is
slower than a distribution's or the images'. `few-streams` leaves the core idle most of the time: its latencies, less
those of an engine that is asked directly, are what a router adds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
SLOW_START_SECONDS = 240.0
"""The slowest of the other routers imports for minutes on a slow machine."""
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


class MockEngine(asyncio.Protocol):
    """Answers every generation: at once, or at the pace its prompt begins with (`pace-20-5`: ms to the first
    token, ms between tokens).
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
    """The table stream (a table, `synced`, heartbeats) and receipts for reports."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load: prompt bytes, streamed or not, pace of the engine in ms (prefill, interval),
    connections in parallel.
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
    """Closed loop: sends the same request again as soon as the last answer is complete."""

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
        head = -1 if self.stream else self.buffer.find(b"\r\n\r\n")
        found = re.search(rb"content-length: *(\d+)", self.buffer[:head], re.IGNORECASE) if head >= 0 else None
        # Some send also what is not streamed in chunks.
        if len(self.buffer) >= head + 4 + int(found[1]) if found is not None else self.buffer.endswith(b"0\r\n\r\n"):
            self.results.add(self.buffer, self.first - self.started, time.perf_counter() - self.started)
            self.fire()

    def connection_lost(self, exc: Exception | None) -> None:
        self.results.lost += 1


class LoadResults:
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


async def generate_load(port: int, case: Case, seconds: float) -> dict[str, float]:
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
    for _ in range(case.connections):
        await loop.create_connection(lambda: LoadConnection(request, case.stream, results), "127.0.0.1", port)
    await asyncio.sleep(seconds)
    first, total = sorted(results.first), sorted(results.total)
    if not total:
        return {"requests": 0, "bad": results.bad, "lost": results.lost}
    return {
        "requests": len(total),
        "bad": results.bad,
        "lost": results.lost,
        "first_p50_ms": first[len(first) // 2] * 1000,
        "first_p99_ms": first[int(len(first) * 0.99)] * 1000,
        "total_p50_ms": total[len(total) // 2] * 1000,
        "total_p99_ms": total[int(len(total) * 0.99)] * 1000,
    }


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


def session_cpu_seconds(session: int) -> float:
    """User and system time of all processes of a session."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def process(command: list[str], core: int, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(
        ["taskset", "-c", str(core), *command], start_new_session=True, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL
    )
    try:
        yield running
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        try:
            running.wait(6)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


class NotReady(SystemExit):
    """A process did not answer in time."""


def wait_until(port: int, seconds: float, path: str = "/v1/models") -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\nconnection: close\r\n\r\n".encode())
                if b"200" in connection.recv(64):
                    return
        except OSError:
            pass
        if time.monotonic() > end:
            raise NotReady(f"nothing ready on port {port} after {seconds:g} s")
        time.sleep(0.2)


def measure(name: str, router: subprocess.Popen[bytes], port: int, cases: list[Case], seconds: float, core: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for case in cases:
        load = ["taskset", "-c", str(core), sys.executable, __file__, "load", str(port), case.name]
        subprocess.run([*load, "1"], check=True, stdout=subprocess.DEVNULL)
        before = session_cpu_seconds(router.pid)
        output = subprocess.run([*load, str(seconds)], check=True, capture_output=True, text=True).stdout
        used = session_cpu_seconds(router.pid) - before
        result = json.loads(output)
        requests = max(result["requests"], 1)
        row: dict[str, object] = {"router": name, "case": case.name, "cpu_us": used / requests * 1e6, "rps": requests / seconds, **result}
        rows.append(row)
        print(
            f"{name:<24}{case.name:<14}{row['cpu_us']:>9.1f} us{row['rps']:>10.0f} rps"
            f"{result.get('first_p50_ms', 0):>9.2f}{result.get('first_p99_ms', 0):>9.2f} ms first"
            f"{result.get('total_p50_ms', 0):>9.2f}{result.get('total_p99_ms', 0):>9.2f} ms total   bad {result['bad']} lost {result['lost']}",
            flush=True,
        )
    return rows


@contextmanager
def mock_engines(policy: str, engines: range, api_port: int, core: int) -> Iterator[subprocess.Popen[bytes]]:
    """Engines on these ports, and a control API whose table asks for the policy."""
    table = msgspec.json.encode(routing_table(policy, engines)).decode()
    with process([sys.executable, __file__, "mocks", str(api_port), str(engines[0]), str(len(engines)), table], core) as mocks:
        wait_until(engines[-1], 60)
        yield mocks


def others(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Names and commands of the routers to compare with."""
    lines: list[str] = [*options.against]
    if options.against_file is not None:
        read = Path(options.against_file).read_text().splitlines()
        lines += [line for line in read if line.strip() and not line.lstrip().startswith("#")]
    return [(name.strip(), command) for name, _, command in (line.partition("=") for line in lines)]


def run(options: argparse.Namespace) -> None:
    print(f"{platform.python_implementation()} {sys.version}", flush=True)
    load_core = (os.cpu_count() or 1) - 1
    engines = range(options.first_port, options.first_port + options.instances)
    api_port, router_port = options.first_port - 1, options.first_port - 2
    cases = [CASES[name] for name in options.cases.split(",")]
    rows: list[dict[str, object]] = []
    for policy in options.policies.split(","):
        with mock_engines(policy, engines, api_port, load_core), tempfile.TemporaryDirectory() as spool:
            environment = {
                "FAIRLEAD_API_URL": f"http://127.0.0.1:{api_port}",
                "FAIRLEAD_API_TOKEN": "bench",
                "FAIRLEAD_ROUTER_ID": "bench",
                "FAIRLEAD_SPOOL_DIR": spool,
            }
            command = [sys.executable, "-m", "fairlead_router.main", "--port", str(router_port), "--admin-port", "0"]
            with process([*options.wrap, *command], 0, environment) as router:
                wait_until(router_port, 20, "/readyz")
                rows += measure(f"fairlead {policy}", router, router_port, cases, options.seconds, load_core)
    with mock_engines("round-robin", engines, api_port, load_core) as mocks:
        rows += measure("an engine directly", mocks, engines[0], [case for case in cases if case.pace], options.seconds, load_core)
        for name, line in others(options):
            workers = [f"http://127.0.0.1:{port}" for port in engines]
            line = line.format(port=router_port, workers=" ".join(workers), workers_commas=",".join(workers))
            with process(shlex.split(line), 0) as router:
                try:
                    wait_until(router_port, SLOW_START_SECONDS)
                except NotReady as problem:
                    print(f"{name:<24}left out: {problem}", flush=True)
                    continue
                time.sleep(2)
                rows += measure(name, router, router_port, cases, options.seconds, load_core)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


def main() -> None:
    if sys.argv[1:2] == ["mocks"]:
        uvloop.run(serve_mocks(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5].encode()))
    elif sys.argv[1:2] == ["load"]:
        print(json.dumps(uvloop.run(generate_load(int(sys.argv[2]), CASES[sys.argv[3]], float(sys.argv[4])))))
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--policies", default="fairlead,round-robin", help="Fairlead is measured with each of them")
        parser.add_argument("--instances", type=int, default=8)
        parser.add_argument("--seconds", type=float, default=4.0)
        parser.add_argument("--cases", default="short-json,short-stream,long-json,long-stream,paced-stream,few-streams")
        parser.add_argument("--first-port", type=int, default=29010)
        parser.add_argument(
            "--against", action="append", default=[], help="NAME=COMMAND of another router; {port}, {workers}, {workers_commas}"
        )
        parser.add_argument("--against-file", help="a file with a line NAME=COMMAND for each")
        parser.add_argument("--wrap", type=shlex.split, default=[], help="a profiler's command to put before the router's")
        parser.add_argument("--json", help="also write the figures to this file")
        run(parser.parse_args())


if __name__ == "__main__":
    main()
