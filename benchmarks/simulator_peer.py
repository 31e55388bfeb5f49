"""Replays a trace in NVIDIA Dynamo's offline mocker.

`simulator.py --peer-python` runs this file under a Python that has `ai-dynamo-runtime`:

    simulator_peer.py TRACE WORKERS REPEATS

Prints a JSON object: for each router mode the best CPU seconds of the repeats, and requests per CPU-second.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def main(trace: Path, workers: int, repeats: int) -> None:
    """Replay the trace with each router mode and print the figures."""
    from dynamo._core import run_mocker_trace_replay  # type: ignore[import-not-found] # the peer's own environment has it

    count = sum(1 for _ in trace.open())
    found: dict[str, Any] = {}
    for mode in ("round_robin", "kv_router"):
        cpu = float("inf")
        for _ in range(repeats):
            started = time.process_time()
            run_mocker_trace_replay([str(trace)], num_workers=workers, router_mode=mode, trace_block_size=512)
            cpu = min(cpu, time.process_time() - started)
        found[mode] = {"cpu": cpu, "rate": count / cpu}
    json.dump(found, sys.stdout)
    print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
