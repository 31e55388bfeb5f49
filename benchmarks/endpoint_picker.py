"""Measures the endpoint picker: CPU time and latency of a request that a proxy asks it about, on one core.

    python -m benchmarks.endpoint_picker [--policies fairlead,round-robin] [--cases short,4k,64k,stream] [--seconds 4]
        [--in-flight 16] [--servers picker,own,grpc-aio,grpc-sync]

A request is one stream as Envoy makes it: headers and body in, headers and body out, then the response's headers and
body in and out. `picker` is a whole router with its scheduler; `own`, `grpc-aio` and `grpc-sync` answer canned bytes,
to compare servers. The server is pinned to core 0, mock control API and load to the last core. CPU is that of the
server's process group per request: 1e6 / that = requests per second and core. `pick` is the time from the request's
first byte to its destination, body included. Compare figures of one run only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import msgspec
import uvloop
from benchmarks.gateway import process, session_cpu_seconds, wait_until
from benchmarks.mock_engines import routing_table
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from fairlead_router.picking import http2, wire
from fairlead_router.picking.grpc_connection import GrpcConnection, GrpcStream
from fairlead_router.picking.messages import PassBody, PassHeaders, Side

INSTANCES = 8
CONNECTIONS = 2
SERVERS = ("picker", "own", "grpc-aio", "grpc-sync")
METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load: bytes of the prompt, and pieces of the streamed response (0 = one JSON body)."""

    name: str
    prompt_bytes: int
    pieces: int = 0


CASES = {
    case.name: case
    for case in (
        Case(name="short", prompt_bytes=64),
        Case(name="4k", prompt_bytes=4096),
        Case(name="64k", prompt_bytes=65_536),
        Case(name="stream", prompt_bytes=64, pieces=16),
    )
}


# ── the load: a client of one connection, as cheap as can be ──


def _headers(side: str, fields: dict[str, str]) -> Any:
    message = ProcessingRequest()
    for name, value in fields.items():
        getattr(message, side).headers.headers.add(key=name, raw_value=value.encode())
    return message


def _body(side: str, piece: bytes, *, ended: bool) -> Any:
    message = ProcessingRequest()
    body = getattr(message, side)
    body.body, body.end_of_stream = piece, ended
    return message


def _framed(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return b"\x00" + len(data).to_bytes(4, "big") + data


class Script:
    """What is said on each stream, as gRPC messages: the request, then the response once that was picked for."""

    def __init__(self, case: Case, number: int) -> None:
        text = f"{number} " + ("hello world " * (case.prompt_bytes // 12 + 1))[: case.prompt_bytes]
        document = {"model": "mock", "messages": [{"role": "user", "content": text}], "max_tokens": 16, "stream": bool(case.pieces)}
        fields = {
            ":authority": "models.example", ":method": "POST", ":path": "/v1/chat/completions", ":scheme": "http", "accept": "*/*",
            "content-type": "application/json", "user-agent": "load", "x-forwarded-for": "10.0.0.9", "x-forwarded-proto": "http",
            "x-request-id": "0f3cdd5e-34f2-4a1e-9f7b-0a1b2c3d4e5f", "x-session-id": f"session-{number % 64}",
        }  # fmt: skip
        self.request = [_framed(_headers("request_headers", fields))]
        self.request += [_framed(_body("request_body", json.dumps(document).encode(), ended=True))]
        kind = "text/event-stream" if case.pieces else "application/json"
        self.response = [_framed(_headers("response_headers", {":status": "200", "content-type": kind, "server": "uvicorn"}))]
        if case.pieces:
            chunk = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"tok "}}]}\n\n'
            self.response += [_framed(_body("response_body", chunk, ended=False)) for _ in range(case.pieces)]
            self.response += [_framed(_body("response_body", b"data: [DONE]\n\n", ended=True))]
        else:
            usage = b'{"choices":[{"message":{"content":"' + b"tok " * 16 + b'"}}],"usage":{"prompt_tokens":12,"completion_tokens":16}}'
            self.response += [_framed(_body("response_body", usage, ended=True))]


_OPENING = b"".join(
    b"\x00%c%s%c%s" % (len(name), name, len(value), value)
    for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", METHOD.encode()), (b":authority", b"picker"),
        (b"te", b"trailers"), (b"content-type", b"application/grpc"),
    )
)  # fmt: skip


class Load(asyncio.Protocol):
    """A closed loop of streams on one connection."""

    def __init__(self, scripts: list[Script], in_flight: int) -> None:
        self.scripts = scripts
        self.in_flight = in_flight
        self.picks: list[float] = []
        self.totals: list[float] = []
        self.bad = 0
        self.buffer = b""
        self.next_stream = 1
        self.window = http2.DEFAULT_WINDOW
        self.later: list[bytes] = []
        self.open: dict[int, tuple[Script, float, list[int]]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        settings = {http2.SETTING_WINDOW: http2.LARGEST_WINDOW, http2.SETTING_FRAME_SIZE: 1 << 20}
        opening = http2.PREFACE + http2.settings(settings) + http2.window_update(0, http2.LARGEST_WINDOW - http2.DEFAULT_WINDOW)
        transport.write(opening)  # type: ignore[attr-defined]  # uvloop's transports are not subclasses of asyncio.Transport
        for _ in range(self.in_flight):
            self.fire()

    def fire(self) -> None:
        number, self.next_stream = self.next_stream, self.next_stream + 2
        script = self.scripts[number // 2 % len(self.scripts)]
        self.open[number] = (script, time.perf_counter(), [0, 0, 0])
        self.transport.write(http2.frame(http2.HEADERS, http2.END_HEADERS, number, _OPENING))
        self.say(number, script.request)

    def say(self, number: int, messages: list[bytes]) -> None:
        for message in messages:
            for start in range(0, len(message), 16_384):
                self.later.append(http2.frame(http2.DATA, 0, number, message[start : start + 16_384]))
        self.flush()

    def flush(self) -> None:
        out = []
        while self.later and len(self.later[0]) - 9 <= self.window:
            self.window -= len(self.later[0]) - 9
            out.append(self.later.pop(0))
        if out:
            self.transport.write(b"".join(out))

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data if self.buffer else data
        start, end = 0, len(data)
        while end - start >= 9:
            high, low, kind, flags, number = http2.HEAD.unpack_from(data, start)
            stop = start + 9 + ((high << 8) | low)
            if stop > end:
                break
            self.take(kind, flags, number, data[start + 9 : stop])
            start = stop
        self.buffer = data[start:]

    def take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == http2.DATA and number in self.open:
            script, began, heard = self.open[number]
            heard[1] += len(payload)
            if not heard[0] and self.has_end(heard, script):
                heard[0] = 1
                self.picks.append(time.perf_counter() - began)
                self.say(number, script.response)
                self.later.append(http2.frame(http2.DATA, http2.END_STREAM, number))
                self.flush()
        elif kind == http2.HEADERS and flags & http2.END_STREAM and number in self.open:
            _, began, heard = self.open.pop(number)
            self.totals.append(time.perf_counter() - began)
            self.bad += not heard[0]
            self.fire()
        elif kind == http2.WINDOW_UPDATE and not number:
            self.window += int.from_bytes(payload, "big")
            self.flush()
        elif kind == http2.PING and not flags & http2.ACK:
            self.transport.write(http2.frame(http2.PING, http2.ACK, 0, payload))
        elif kind == http2.SETTINGS and not flags & http2.ACK:
            self.transport.write(http2.frame(http2.SETTINGS, http2.ACK, 0))

    @staticmethod
    def has_end(heard: list[int], script: Script) -> bool:
        """Whether headers and all of the body came back: more bytes than the body has."""
        return heard[1] > len(script.request[1])


async def generate_load(port: int, case: Case, seconds: float, in_flight: int) -> dict[str, float]:
    scripts = [Script(case, number) for number in range(256)]
    loads = [Load(scripts, in_flight // CONNECTIONS) for _ in range(CONNECTIONS)]
    for load in loads:
        await asyncio.get_running_loop().create_connection(lambda load=load: load, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.sleep(seconds)
    picks = sorted(time for load in loads for time in load.picks)
    totals = sorted(time for load in loads for time in load.totals)
    found: dict[str, float] = {"requests": len(totals), "bad": sum(load.bad for load in loads)}
    for name, times in (("pick", picks), ("total", totals)):
        if times:
            found[f"{name}_p50_ms"], found[f"{name}_p99_ms"] = times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000
    return found


# ── servers that answer canned bytes ──


def _canned(body_bytes: int) -> list[list[bytes]]:
    """What is said after so many messages."""
    headers = wire.encode(PassHeaders(Side.REQUEST, [(b"content-length", b"9")], [], "127.0.0.1:8000,127.0.0.1:8001"))
    body = wire.encode(PassBody(Side.REQUEST, b"x" * (body_bytes + 64), True))
    passed = wire.encode(PassHeaders(Side.RESPONSE, [(b"x-fairlead-instance", b"i0")]))
    return [[], [headers, body], [passed], [wire.encode(PassBody(Side.RESPONSE, b"x" * 128, True))]]


class _CannedStream:
    def __init__(self, stream: GrpcStream, canned: list[list[bytes]]) -> None:
        self.stream, self.canned, self.heard = stream, canned, 0

    def message(self, payload: bytes) -> None:
        for answer in self.canned[self.heard]:
            self.stream.send(answer)
        self.heard += 1

    def half_closed(self) -> None:
        self.stream.finish(0)

    def gone(self) -> None:
        pass


async def serve_own(port: int, canned: list[list[bytes]]) -> None:
    def connection() -> GrpcConnection:
        return GrpcConnection(lambda stream: _CannedStream(stream, canned), 1 << 24, lambda _: None)

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


# ── measuring ──


@contextmanager
def router(policy: str, first: int, core: int) -> Iterator[tuple[Any, int]]:
    """A router with a picker, and its port."""
    engines = range(first, first + INSTANCES)
    api, gateway, picker = (first - number for number in (1, 2, 3))
    table = msgspec.json.encode(routing_table(policy, engines)).decode()
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "FAIRLEAD_API_URL": f"http://127.0.0.1:{api}", "FAIRLEAD_API_TOKEN": "t", "FAIRLEAD_ROUTER_ID": "bench",
            "FAIRLEAD_SPOOL_DIR": folder, "FAIRLEAD_PICKER_PORT": str(picker), "FAIRLEAD_LOG_LEVEL": "WARNING",
        }  # fmt: skip
        mocks = [sys.executable, "-m", "benchmarks.mock_engines", str(api), str(first), str(INSTANCES), table]
        command = [sys.executable, "-m", "fairlead_router.main", "--port", str(gateway), "--admin-port", "0"]
        with process(mocks, core), process(command, 0, environment) as running:
            wait_until(gateway, 30, "/readyz")
            yield running, picker


@contextmanager
def canned_server(kind: str, body_bytes: int, port: int) -> Iterator[tuple[Any, int]]:
    command = [sys.executable, "-m", "benchmarks.endpoint_picker", "serve", kind, str(port), str(body_bytes)]
    with process(command, 0) as running:
        _wait_until_taken(port, 30.0)
        yield running, port


def _wait_until_taken(port: int, seconds: float) -> None:
    """Until somebody listens there. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0):
                return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nobody listens at port {port} after {seconds:g} s")


def measure(name: str, running: Any, port: int, case: Case, seconds: float, in_flight: int, core: int) -> None:
    """Warm up, measure, print a line."""
    load = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.endpoint_picker", "load", str(port), case.name, str(in_flight)]
    subprocess.run([*load, "1"], check=True, stdout=subprocess.DEVNULL)
    before, began = session_cpu_seconds(running.pid), time.monotonic()
    done = subprocess.run([*load, str(seconds)], check=True, stdout=subprocess.PIPE)
    cpu, wall = session_cpu_seconds(running.pid) - before, time.monotonic() - began
    found = json.loads(done.stdout)
    micros = cpu * 1e6 / max(1, found["requests"])
    print(
        f"{name:22} {case.name:7} {micros:8.0f} {1e6 / max(1.0, micros):10.0f} {found['requests'] / seconds:9.0f} {cpu / wall:6.0%} "
        f"{found.get('pick_p50_ms', 0):8.2f} {found.get('pick_p99_ms', 0):8.2f} {found.get('total_p50_ms', 0):9.2f} {found['bad']:4.0f}",
        flush=True,
    )


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["load"]:
        print(json.dumps(uvloop.run(generate_load(int(arguments[1]), CASES[arguments[2]], float(arguments[4]), int(arguments[3])))))
        return
    if arguments[:1] == ["serve"]:
        serve(arguments[1], int(arguments[2]), _canned(int(arguments[3])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default="fairlead,round-robin")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--servers", default=",".join(SERVERS))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--first-port", type=int, default=28_410)
    given = parser.parse_args()
    core = (os.cpu_count() or 1) - 1
    print(
        f"{'server':22} {'case':7} {'CPU us':>8} {'per core':>10} {'seen/s':>9} {'of core':>6} {'pick p50':>8} {'p99 ms':>8} {'whole p50':>9} {'bad':>4}"
    )
    wanted = [CASES[name] for name in given.cases.split(",")]
    for server in given.servers.split(","):
        if server == "picker":
            for policy in given.policies.split(","):
                with router(policy, given.first_port, core) as (running, port):
                    for case in wanted:
                        measure(f"picker {policy}", running, port, case, given.seconds, given.in_flight, core)
            continue
        case = CASES["4k"]
        with canned_server(server, case.prompt_bytes, given.first_port) as (running, port):
            measure(server, running, port, case, given.seconds, given.in_flight, core)


if __name__ == "__main__":
    main()
