"""Loads on an endpoint picker: cheap clients with one connection each, in a closed loop of streams.

    python -m benchmarks.picker_load PORT CASE IN_FLIGHT SESSION SECONDS

prints a line of JSON with counts, latencies, and the CPU seconds that the processes of the session used meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import uvloop
from benchmarks.costs import session_cpu_seconds
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from fairlead_process.grpc_server import http2

CONNECTIONS = 2
METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A load: the bytes of its prompt, and the pieces of the streamed response (0 = one JSON body)."""

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
    """The gRPC messages of a stream: the messages of the request, and the messages of the response, which are sent
    after the pick.
    """

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


OPENING = b"".join(
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
        self.lost = 0
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

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += len(self.open)

    def fire(self) -> None:
        number, self.next_stream = self.next_stream, self.next_stream + 2
        script = self.scripts[number // 2 % len(self.scripts)]
        self.open[number] = (script, time.perf_counter(), [0, 0, 0])
        self.transport.write(http2.frame(http2.HEADERS, http2.END_HEADERS, number, OPENING))
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
        """Return whether headers and the whole body have arrived, which is so when more bytes have arrived than the
        body has.
        """
        return heard[1] > len(script.request[1])


async def generate_load(port: int, case: Case, seconds: float, in_flight: int, session: int) -> dict[str, float]:
    scripts = [Script(case, number) for number in range(256)]
    loads = [Load(scripts, in_flight // CONNECTIONS) for _ in range(CONNECTIONS)]
    for load in loads:
        await asyncio.get_running_loop().create_connection(lambda load=load: load, "127.0.0.1", port)  # type: ignore[misc]
    before = session_cpu_seconds(session)
    await asyncio.sleep(seconds)
    used = session_cpu_seconds(session) - before
    picks = sorted(time for load in loads for time in load.picks)
    totals = sorted(time for load in loads for time in load.totals)
    found: dict[str, float] = {"cpu_seconds": used, "requests": len(totals), "bad": sum(load.bad + load.lost for load in loads)}
    for name, times in (("pick", picks), ("total", totals)):
        if times:
            found[f"{name}_p50_ms"], found[f"{name}_p99_ms"] = times[len(times) // 2] * 1000, times[int(len(times) * 0.99)] * 1000
    return found


if __name__ == "__main__":
    _, told_port, told_case, told_in_flight, told_session, told_seconds = sys.argv
    wanted = generate_load(int(told_port), CASES[told_case], float(told_seconds), int(told_in_flight), int(told_session))
    print(json.dumps(uvloop.run(wanted)))
