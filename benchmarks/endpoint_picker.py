"""Measures the endpoint picker: CPU time and latency per request of a proxy, on one core.

    python -m benchmarks.endpoint_picker [--policies fairlead,round-robin] [--cases short,4k,64k,stream] [--seconds 4]
        [--in-flight 16] [--servers picker,own,grpc-aio,grpc-sync]

A request is one stream as Envoy makes it: headers and body in, headers and body out, then the response's headers and
body in and out. The server `picker` is a whole router with its scheduler. The servers `own`, `grpc-aio` and `grpc-sync`
answer canned bytes, to compare the cost of servers. The server is pinned to core 0; mock control API and load are
pinned to the last core. CPU is the CPU time of the server's process group per request, in microseconds. A million
divided by it is the number of requests per second and core. `pick` is the time from the request's first byte until its
destination is known, and includes the transfer of its body. Compare only figures of the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from benchmarks.command_line import above_zero, count, end_everything_when_ended, names_of
from benchmarks.gateway import NotReady, check_free, process, wait_until
from benchmarks.mock_engines import routing_table
from benchmarks.picker_load import CASES, CONNECTIONS, Case
from benchmarks.picker_servers import KINDS

from fairlead.routing.policies.catalogue import BUILT_IN

INSTANCES = 8
SERVERS = ("picker", *KINDS)


@contextmanager
def router(policy: str, first: int, core: int) -> Iterator[tuple[Any, int]]:
    """Yield a router with a picker, and its port."""
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
            wait_until(running, gateway, 30, "/readyz")
            yield running, picker


@contextmanager
def canned_server(kind: str, body_bytes: int, port: int) -> Iterator[tuple[Any, int]]:
    command = [sys.executable, "-m", "benchmarks.picker_servers", kind, str(port), str(body_bytes)]
    with process(command, 0) as running:
        _wait_until_taken(port, 30.0)
        yield running, port


def _wait_until_taken(port: int, seconds: float) -> None:
    """Wait until a process listens at the port. Raises NotReady."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0):
                return
        except OSError:
            time.sleep(0.05)
    raise NotReady(f"nobody listens at port {port} after {seconds:g} s")


def measure(name: str, running: Any, port: int, case: Case, seconds: float, in_flight: int, core: int) -> None:
    """Warm up, measure, and print a line."""
    load = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.picker_load"]
    load += [str(port), case.name, str(in_flight), str(running.pid)]
    subprocess.run([*load, "1"], check=True, stdout=subprocess.DEVNULL)
    found = json.loads(subprocess.run([*load, str(seconds)], check=True, stdout=subprocess.PIPE).stdout)
    cpu = found["cpu_seconds"]
    micros = cpu * 1e6 / max(1, found["requests"])
    print(
        f"{name:22} {case.name:7} {micros:8.0f} {1e6 / max(1.0, micros):10.0f} {found['requests'] / seconds:9.0f} {cpu / seconds:6.0%} "
        f"{found.get('pick_p50_ms', 0):8.2f} {found.get('pick_p99_ms', 0):8.2f} {found.get('total_p50_ms', 0):9.2f} {found['bad']:4.0f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=names_of(BUILT_IN.names), default="fairlead,round-robin", help="of the picker")
    parser.add_argument(
        "--cases",
        type=names_of(CASES),
        default=",".join(CASES),
        help="cases in which the picker is measured; the other servers are measured in the case 4k",
    )
    parser.add_argument("--servers", type=names_of(SERVERS), default=",".join(SERVERS))
    parser.add_argument(
        "--seconds", type=above_zero, default=4.0, help="seconds of load in each case, after one second that is not measured"
    )
    parser.add_argument(
        "--in-flight", type=count, default=16, help=f"number of streams at a time on all {CONNECTIONS} connections together"
    )
    parser.add_argument(
        "--first-port", type=count, default=28_410, help="first port of the engines; the router uses the three ports before it"
    )
    given = parser.parse_args()
    if given.in_flight % CONNECTIONS:
        parser.error(f"--in-flight {given.in_flight} is not a multiple of {CONNECTIONS}, the connections that share them")
    check_free(range(given.first_port - 3, given.first_port + INSTANCES))
    end_everything_when_ended()
    core = (os.cpu_count() or 1) - 1
    print(
        f"{'server':22} {'case':7} {'CPU us':>8} {'per core':>10} {'seen/s':>9} {'of core':>6} {'pick p50':>8} {'p99 ms':>8} {'whole p50':>9} {'bad':>4}"
    )
    wanted = [CASES[name] for name in given.cases]
    for server in given.servers:
        if server == "picker":
            for policy in given.policies:
                with router(policy, given.first_port, core) as (running, port):
                    for case in wanted:
                        measure(f"picker {policy}", running, port, case, given.seconds, given.in_flight, core)
            continue
        case = CASES["4k"]
        with canned_server(server, case.prompt_bytes, given.first_port) as (running, port):
            measure(server, running, port, case, given.seconds, given.in_flight, core)


if __name__ == "__main__":
    main()
