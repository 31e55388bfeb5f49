"""Measures the router's CPU time per request on one core, against mock engines that answer at once.

    python -m benchmarks.gateway [--policies fairlead,round-robin] [--instances 8] [--seconds 4]
        [--cases short-json,short-stream,long-json,long-stream,paced-stream,few-streams]
    python -m benchmarks.gateway --against 'NAME=COMMAND with {port} and {workers}'
    python -m benchmarks.gateway --against-file peers.txt

The file has a line `NAME=COMMAND` for each other router; `#` begins a comment. A router that ends, or does not answer
within four minutes, is left out with a message.

One router process is pinned to core 0; mock engines, a mock control API and the load generator share the last core. The
figures are CPU microseconds of the router's process group per request, requests per second, and client latencies under
that load. A million divided by the CPU microseconds is the number of requests per second and core. Compare only figures
of the same run, because they depend on the machine and on the Python, which is named first. A Python without
profile-guided optimization, as pyenv builds by default, is slower than the Python of a distribution or of the images.
In the case `few-streams` the core is idle most of the time. The difference between its latencies and the latencies of
an engine that is called directly is the latency that a router adds.
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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from benchmarks.command_line import a_file, above_zero, count, end_everything_when_ended, names_of
from benchmarks.gateway_load import CASES, Case
from benchmarks.mock_engines import routing_table

from fairlead.routing.policies.catalogue import BUILT_IN

SLOW_START_SECONDS = 240.0
"""Maximum start time of other routers in seconds. On a slow machine the slowest of them imports for minutes."""


@contextmanager
def process(
    command: list[str], core: int, environment: dict[str, str] | None = None, *, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command on a core, in its own session. Variables of this shell whose names begin with FAIRLEAD_ are not
    passed on.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
    command = ["taskset", "-c", str(core), *command]
    running = subprocess.Popen(command, start_new_session=True, cwd=folder, env=plain | (environment or {}), stdout=subprocess.DEVNULL)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):  # it has ended already, with all that it started
            os.killpg(running.pid, signal.SIGTERM)
        try:
            running.wait(6)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def check_free(ports: Iterable[int]) -> None:
    """Raise NotReady if a process already listens at one of the ports. Such a process is left over from an earlier run
    and would be measured instead of the new process.
    """
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise NotReady(f"port {port} cannot be had ({error.strerror}); give another --first-port") from None


class NotReady(SystemExit):
    """Raised when a process does not answer in time, or ends."""


def wait_until(running: subprocess.Popen[bytes], port: int, seconds: float, path: str = "/v1/models") -> None:
    """Wait until this process answers a GET at the port with 200. Raises NotReady."""
    end = time.monotonic() + seconds
    while True:
        if running.poll() is not None:
            raise NotReady(f"the server on port {port} ended with exit code {running.returncode}")
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
        load = ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.gateway_load", str(port), case.name, str(router.pid)]
        subprocess.run([*load, "1"], check=True, stdout=subprocess.DEVNULL)
        result = json.loads(subprocess.run([*load, str(seconds)], check=True, stdout=subprocess.PIPE).stdout)
        used = result.pop("cpu_seconds")
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
    """Run mock engines on these ports, and a mock control API whose routing table has the policy."""
    table = msgspec.json.encode(routing_table(policy, engines)).decode()
    with process(
        [sys.executable, "-m", "benchmarks.mock_engines", str(api_port), str(engines[0]), str(len(engines)), table], core
    ) as mocks:
        wait_until(mocks, engines[-1], 60)
        yield mocks


def others(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return names and commands of the routers to compare with."""
    if options.against_file is None:
        return list(options.against)
    read = options.against_file.read_text().splitlines()
    return [*options.against, *(other(line) for line in read if line.strip() and not line.lstrip().startswith("#"))]


def other(line: str) -> tuple[str, str]:
    """Return name and command of `NAME=COMMAND`. Raises argparse.ArgumentTypeError if the command cannot be filled
    in.
    """
    name, _, command = (part.strip() for part in line.partition("="))
    try:
        filled = shlex.split(command.format(port=0, workers="", workers_commas=""))
    except (KeyError, IndexError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"{line!r}: {error!r} in the command; it may have {{port}}, {{workers}}, {{workers_commas}}"
        ) from None
    if not name or not filled:
        raise argparse.ArgumentTypeError(f"{line!r} is not NAME=COMMAND")
    return name, command


def run(options: argparse.Namespace) -> None:
    print(f"{platform.python_implementation()} {sys.version}", flush=True)
    load_core = (os.cpu_count() or 1) - 1
    engines = range(options.first_port, options.first_port + options.instances)
    api_port, router_port = options.first_port - 1, options.first_port - 2
    cases = [CASES[name] for name in options.cases]
    compared = others(options)
    check_free((router_port, api_port, *engines))
    rows: list[dict[str, object]] = []
    for policy in options.policies:
        with mock_engines(policy, engines, api_port, load_core), tempfile.TemporaryDirectory() as spool:
            environment = {
                "FAIRLEAD_API_URL": f"http://127.0.0.1:{api_port}",
                "FAIRLEAD_API_TOKEN": "bench",
                "FAIRLEAD_ROUTER_ID": "bench",
                "FAIRLEAD_SPOOL_DIR": spool,
            }
            command = [sys.executable, "-m", "fairlead_router.main", "--port", str(router_port), "--admin-port", "0"]
            with process([*options.wrap, *command], 0, environment) as router:
                wait_until(router, router_port, 20, "/readyz")
                rows += measure(f"fairlead {policy}", router, router_port, cases, options.seconds, load_core)
    with mock_engines("round-robin", engines, api_port, load_core) as mocks:
        rows += measure("an engine directly", mocks, engines[0], [case for case in cases if case.pace], options.seconds, load_core)
        for name, line in compared:
            workers = [f"http://127.0.0.1:{port}" for port in engines]
            line = line.format(port=router_port, workers=" ".join(workers), workers_commas=",".join(workers))
            with process(shlex.split(line), 0) as router:
                try:
                    wait_until(router, router_port, SLOW_START_SECONDS)
                except NotReady as problem:
                    print(f"{name:<24}left out: {problem}", flush=True)
                    continue
                time.sleep(2)
                rows += measure(name, router, router_port, cases, options.seconds, load_core)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    policies = names_of(BUILT_IN.names)
    parser.add_argument(
        "--policies", type=policies, default="fairlead,round-robin", help="policies; Fairlead is measured with each of them"
    )
    parser.add_argument("--instances", type=count, default=8)
    parser.add_argument(
        "--seconds", type=above_zero, default=4.0, help="seconds of load in each case, after one second that is not measured"
    )
    parser.add_argument("--cases", type=names_of(CASES), default=",".join(CASES))
    parser.add_argument(
        "--first-port", type=count, default=29010, help="first port of the engines; router and control API use the two ports before it"
    )
    parser.add_argument(
        "--against", type=other, action="append", default=[], help="NAME=COMMAND of another router; {port}, {workers}, {workers_commas}"
    )
    parser.add_argument("--against-file", type=a_file, help="a file with a line NAME=COMMAND for each other router")
    parser.add_argument("--wrap", type=shlex.split, default=[], help="a profiler's command, which is put before the router's command")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    end_everything_when_ended()
    try:
        run(options)
    except argparse.ArgumentTypeError as error:
        parser.error(f"--against-file: {error}")


if __name__ == "__main__":
    main()
