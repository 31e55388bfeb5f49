"""Measures the cost of changes: compares the router of this checkout with the router of another checkout.

    python -m benchmarks.gateway_before CHECKOUT [--policies fairlead] [--rounds 20] [--seconds 1]
        [--cases short-json,short-stream,long-json,long-stream,paced-stream]

CHECKOUT is a git worktree at the commit to compare with, in which `make .venv/ready` was run. Each router has mock
engines and a mock control API of its own commit. Both routers run all the time, pinned to core 0. The load generator is
the one of this checkout. It runs on the last core and loads one router at a time. The order of the routers changes with
each round, so that a slow phase of the machine affects both. Prints the median of the rounds' ratios, and the range in
which half of the ratios lie. Above 1, this checkout uses more CPU per request.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

from benchmarks.command_line import above_zero, count, end_everything_when_ended, names_of
from benchmarks.gateway import NotReady, check_free, process, wait_until
from benchmarks.gateway_load import CASES

from fairlead.routing.policies.catalogue import BUILT_IN

HERE = Path(__file__).resolve().parent.parent
CASES_HERE = [name for name in CASES if name != "few-streams"]
"""The cases compared here: all but `few-streams`, which measures latencies."""
_TABLE = (
    "import sys, msgspec; from benchmarks.mock_engines import routing_table;"
    "print(msgspec.json.encode(routing_table(sys.argv[1], range(int(sys.argv[2]), int(sys.argv[3])))).decode())"
)


def checkout(text: str) -> Path:
    """Return the path of a checkout that is set up. Raises argparse.ArgumentTypeError."""
    folder = Path(text).resolve()
    if not (folder / "benchmarks" / "mock_engines.py").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a checkout of Fairlead")
    if not python_of(folder).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not set up: run `make .venv/ready` there")
    return folder


def python_of(folder: Path) -> Path:
    """Return the interpreter of a checkout."""
    return folder / ".venv" / "bin" / "python"


class MeasuredRouter:
    """The router of a checkout with its mock engines and mock control API, on ports from `first_port` on.

    It runs until `stack` is closed.
    """

    def __init__(self, stack: ExitStack, folder: Path, policy: str, first_port: int, instances: int) -> None:
        python, self.port = str(python_of(folder)), first_port
        api_port, engines = first_port + 1, range(first_port + 2, first_port + 2 + instances)
        check_free((self.port, api_port, *engines))
        asked = [python, "-c", _TABLE, policy, str(engines.start), str(engines.stop)]
        table = subprocess.run(asked, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        mocks = [python, "-m", "benchmarks.mock_engines", str(api_port), str(engines.start), str(instances), table]
        wait_until(stack.enter_context(process(mocks, last_core(), folder=folder)), engines[-1], 60)
        environment = {
            "FAIRLEAD_API_URL": f"http://127.0.0.1:{api_port}",
            "FAIRLEAD_API_TOKEN": "bench",
            "FAIRLEAD_ROUTER_ID": "bench",
            "FAIRLEAD_SPOOL_DIR": stack.enter_context(tempfile.TemporaryDirectory()),
        }
        command = [python, "-m", "fairlead_router.main", "--port", str(self.port), "--admin-port", "0"]
        router = stack.enter_context(process(command, 0, environment, folder=folder))
        wait_until(router, self.port, 60, "/readyz")
        self._session = router.pid

    def microseconds(self, case: str, seconds: float) -> float:
        """Return the CPU microseconds per request under the load for this number of seconds. Raises NotReady if a
        request failed.
        """
        load = [sys.executable, "-m", "benchmarks.gateway_load", str(self.port), case, str(self._session), str(seconds)]
        command = ["taskset", "-c", str(last_core()), *load]
        said = json.loads(subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE).stdout)
        if said["bad"] or said["lost"] or not said["requests"]:
            raise NotReady(f"{case}: {said['bad']} requests failed, {said['lost']} connections were lost, {said['requests']} were served")
        return float(said["cpu_seconds"] / said["requests"] * 1e6)


def last_core() -> int:
    """Return the core from which the load comes."""
    return (os.cpu_count() or 1) - 1


def in_turns(before: MeasuredRouter, now: MeasuredRouter, case: str, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
    """Return, for each of both routers, the CPU microseconds per request in each round. The routers are measured
    alternately.
    """
    figures: dict[MeasuredRouter, list[float]] = {before: [], now: []}
    for router in figures:
        router.microseconds(case, seconds)  # a router is slower at first
    for number in range(rounds):
        for router in (before, now) if number % 2 else (now, before):
            figures[router].append(router.microseconds(case, seconds))
    return figures[before], figures[now]


def summary(before: list[float], now: list[float]) -> tuple[float, float, float]:
    """Return the median of the rounds' ratios, and their lower and upper quartile."""
    ratios = [mine / other for other, mine in zip(before, now, strict=True)]
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    low, _, high = quantiles(ratios, n=4, method="inclusive")
    return median(ratios), low, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=checkout, metavar="CHECKOUT")
    parser.add_argument("--policies", type=names_of(BUILT_IN.names), default="fairlead")
    parser.add_argument("--cases", type=names_of(CASES), default=",".join(CASES_HERE))
    parser.add_argument("--rounds", type=count, default=20)
    parser.add_argument("--seconds", type=above_zero, default=1.0, help="seconds of load on each router in each round")
    parser.add_argument("--instances", type=count, default=8)
    parser.add_argument("--first-port", type=count, default=29010)
    options = parser.parse_args()
    end_everything_when_ended()
    for policy in options.policies:
        with ExitStack() as stack:
            ports = options.first_port, options.first_port + options.instances + 2
            before, now = (
                MeasuredRouter(stack, folder, policy, port, options.instances)
                for folder, port in zip((options.before, HERE), ports, strict=True)
            )
            for case in options.cases:
                figures = in_turns(before, now, case, options.rounds, options.seconds)
                ratio, low, high = summary(*figures)
                middle = " → ".join(f"{median(each):.0f}" for each in figures)
                print(f"{policy:<14}{case:<14}{middle:>16} us{ratio:>8.3f}   ({low:.3f} to {high:.3f})", flush=True)


if __name__ == "__main__":
    main()
