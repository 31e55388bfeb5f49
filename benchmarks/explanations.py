"""Checks from outside that the records of a live sandbox explain themselves.

It checks many decisions under several policies, and the migrations that the policies make.

    PYTHONPATH=tests/support .venv/bin/python -m benchmarks.explanations [--requests 450]
        [--policies fairlead dualmap ear mooncake heimdall]

A whole sandbox runs with every decision recorded (`FAIRLEAD_DECISION_SAMPLE_RATE=1`). For each policy in turn, a pool
of four simulated engines gets a generated trace of `--requests` requests. Meanwhile it loses an instance and gets a new
one, so that sessions migrate and requests are re-routed. Then `fairlead verify` reads the public API. Ends with the
exit code of `fairlead verify`, which is 1 if two records contradict each other.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.command_line import above_zero, count, end_everything_when_ended

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_testing.builders.sandbox_pools import pool, replay_arguments
from fairlead_testing.running.sandbox import RunningSandbox, fairlead, result_of, running_sandbox


def under(sandbox: RunningSandbox, policy: str, requests: int, speed: float, directory: Path) -> None:
    """Run a pool with this policy under load. Meanwhile, scale the pool down and up."""
    name = f"why-{policy}"
    sandbox.apply_pool(pool(name, policy=policy, replicas=4)).raise_for_status()
    sandbox.until_ready(name, 4)
    output = directory / f"{policy}.json"
    replay = sandbox.replay(*replay_arguments(name, requests, speed), "--json", str(output))
    time.sleep(5.0)
    sandbox.scale_pool(name, 3).raise_for_status()
    time.sleep(10.0)
    sandbox.scale_pool(name, 4).raise_for_status()
    result = result_of(replay, output)
    time.sleep(3.0)
    print(f"{policy}: {result['served']:,} of {result['sent']:,} served, {result['rejected']:,} refused", flush=True)
    sandbox.scale_pool(name, 1).raise_for_status()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--requests", type=count, default=450)
    arguments.add_argument(
        "--speed", type=above_zero, default=14.0, help="speed of the trace, as a multiple of the speed of its timestamps"
    )
    arguments.add_argument("--policies", nargs="+", choices=BUILT_IN.names, default=["fairlead", "dualmap", "ear", "mooncake", "heimdall"])
    given = arguments.parse_args()
    end_everything_when_ended()
    os.environ["FAIRLEAD_DECISION_SAMPLE_RATE"] = "1"
    with tempfile.TemporaryDirectory() as folder, running_sandbox(Path(folder) / "sandbox") as sandbox:
        for policy in given.policies:
            under(sandbox, policy, given.requests, given.speed, Path(folder))
        token = load_or_create(sandbox.state.secrets).admin
        verified = fairlead(
            "verify", "--url", sandbox.url("api"), "--decisions", "5000", "--moves", "2000", environment={"FAIRLEAD_TOKEN": token}
        )
        print(verified.stdout, verified.stderr, flush=True)
        return verified.returncode


if __name__ == "__main__":
    sys.exit(main())
