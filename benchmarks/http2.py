"""Compares the CPU time of our HTTP/2 and of the library h2 under the endpoint picker: CPU per picked request, in one
process.

    python -m benchmarks.http2 [--cases short,4k,64k,stream] [--rounds 15] [--requests 300] [--policy fairlead]

A request is one stream as Envoy makes it. It passes through the whole picker of a router with a scheduler. Only the
sockets are left out, because they are the same for both. Rounds of the two alternate. The figures are medians of the
process's CPU time. The ratio is the median of the ratios of neighbouring rounds. In the rows `framing`, a picker
answers canned bytes, so that only the cost of HTTP/2 and gRPC remains.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.command_line import count, names_of
from benchmarks.mock_engines import routing_table
from benchmarks.picker_load import CASES, OPENING, Case, Script
from benchmarks.picker_on_h2 import PickerOnH2
from benchmarks.picker_servers import CannedStream, canned

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead_process.grpc_server import http2
from fairlead_process.grpc_server.grpc_connection import GrpcConnection
from fairlead_process.grpc_server.grpc_stream import Opener
from fairlead_router.main import Router
from fairlead_router.settings import RouterSettings

CONNECTIONS: dict[str, Callable[[Opener, int, Callable[[Any], None]], Any]] = {"ours": GrpcConnection, "h2": PickerOnH2}
LARGEST = 1 << 24
ENGINES = range(8000, 8008)


class Sink:
    """A transport that counts the bytes that are written to it."""

    def __init__(self) -> None:
        self.written = 0
        self.last = b""

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self.last = data

    def get_extra_info(self, _name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return False


def said(number: int, messages: list[bytes]) -> bytes:
    """Return the messages as data frames of the largest size that a server allows by default."""
    parts = [message[start : start + 16_384] for message in messages for start in range(0, len(message), 16_384)]
    return b"".join(http2.frame(http2.DATA, 0, number, part) for part in parts)


def dialogue(case: Case, requests: int) -> list[tuple[bytes, bytes]]:
    """Return, for each request, the bytes that a client sends before the pick and after it."""
    found = []
    for place in range(requests):
        number, script = 2 * place + 1, Script(case, place % 256)
        opening = http2.frame(http2.HEADERS, http2.END_HEADERS, number, OPENING)
        ending = http2.frame(http2.DATA, http2.END_STREAM, number)
        found.append((opening + said(number, script.request), said(number, script.response) + ending))
    return found


def has_end(frames: bytes) -> bool:
    """Return whether the last of these frames ends its stream."""
    start = flags = 0
    while start < len(frames):
        high, low, _, flags, _ = http2.HEAD.unpack_from(frames, start)
        start += 9 + ((high << 8) | low)
    return bool(flags & http2.END_STREAM)


async def a_round(connection: Any, steps: list[tuple[bytes, bytes]]) -> float:
    """Return the CPU seconds per request. Raises RuntimeError if a request was not picked or did not end."""
    sink = Sink()
    connection.connection_made(sink)
    settings = {http2.SETTING_WINDOW: http2.LARGEST_WINDOW, http2.SETTING_FRAME_SIZE: 1 << 20}
    opening = http2.PREFACE + http2.settings(settings) + http2.frame(http2.SETTINGS, http2.ACK, 0)
    connection.data_received(opening + http2.window_update(0, http2.LARGEST_WINDOW - http2.DEFAULT_WINDOW))
    began = time.process_time()
    for before, after in steps:
        for data in (before, after):
            sink.written = 0
            connection.data_received(data)
            for _ in range(20):
                if sink.written:
                    break
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        if not has_end(sink.last):
            raise RuntimeError("a request did not end")
    return (time.process_time() - began) / len(steps)


def a_router(policy: str, folder: str) -> Router:
    settings = RouterSettings(api_urls=("http://127.0.0.1:1",), api_token="t" * 20, router_id="bench", spool_dir=Path(folder))
    router = Router(settings, lambda facts: SharedScheduler(facts, "bench", 1, sample_rate=0.01), "start")
    router.pools.apply(routing_table(policy, ENGINES))
    return router


def canned_opener(case: Case) -> Opener:
    answers = canned(case.prompt_bytes, case.pieces)
    return lambda stream: CannedStream(stream, answers)


async def compare(name: str, case: Case, opener: Opener, rounds: int, requests: int) -> None:
    """Warm up, measure our HTTP/2 and h2 in alternate rounds, and print a line."""
    steps = dialogue(case, requests)
    found: dict[str, list[float]] = {kind: [] for kind in CONNECTIONS}
    for number in range(rounds + 1):
        for kind in sorted(CONNECTIONS, reverse=bool(number % 2)):
            gc.collect()
            cpu = await a_round(CONNECTIONS[kind](opener, LARGEST, lambda _: None), steps)
            if number:
                found[kind].append(cpu)
    ours, theirs = (statistics.median(found[kind]) * 1e6 for kind in ("ours", "h2"))
    ratio = statistics.median(h2 / own for own, h2 in zip(found["ours"], found["h2"], strict=True))
    print(f"{name:20} {case.name:7} {ours:9.0f} {theirs:9.0f} {ratio:7.2f}", flush=True)


async def measure(given: argparse.Namespace) -> None:
    print(f"{'':20} {'case':7} {'ours us':>9} {'h2 us':>9} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.cases:
            router = a_router(given.policy, folder)
            await compare(f"picker {given.policy}", CASES[name], router.picker.open, given.rounds, given.requests)
    for name in given.cases:
        await compare("framing", CASES[name], canned_opener(CASES[name]), given.rounds, given.requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=names_of(CASES), default=",".join(CASES))
    parser.add_argument("--policy", choices=BUILT_IN.names, default="fairlead")
    parser.add_argument("--rounds", type=count, default=15, help="number of rounds of each library, after one round that is not counted")
    parser.add_argument("--requests", type=count, default=300, help="number of requests in a round")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
