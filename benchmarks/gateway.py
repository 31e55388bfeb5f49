"""Measures the router's CPU time per request on one core, against mock engines that answer at once.

    python -m benchmarks.gateway [--policies fairlead,round-robin] [--instances 8] [--seconds 4]
        [--cases short-json,short-stream,long-json,paced-stream,few-streams]
    python -m benchmarks.gateway --against 'sglang={command with {port} and {workers}}'
    python -m benchmarks.gateway --against-file peers.txt

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
import json
import os
import platform
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from benchmarks.gateway_load import CASES, Case
from benchmarks.mock_engines import routing_table

SLOW_START_SECONDS = 240.0
"""The slowest of the other routers imports for minutes on a slow machine."""


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
        load = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.gateway_load", str(port), case.name]
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
    with process(
        [sys.executable, "-m", "benchmarks.mock_engines", str(api_port), str(engines[0]), str(len(engines)), table], core
    ) as mocks:
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
