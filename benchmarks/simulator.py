"""Compares requests per CPU-second of `fairlead simulate` and of NVIDIA Dynamo's offline trace replay (the peer).

Both run the same requests in one run of this script.

    .venv/bin/python -m benchmarks.simulator [--trace FILE] [--instances 8 32]
        [--policies round-robin dualmap] [--peer-python PYTHON]

Without --trace, it generates 12,031 conversation requests as long as Mooncake's. The peer is the package
`ai-dynamo-runtime` (not a dependency of ours): install it into an environment of its own and give that environment's
Python. Both read one file with the same arrival times. The CPU time of all threads is counted. A run of the peer always
includes reading the trace. So the time in which our simulator reads the trace is shown separately, and the printed
ratios include it.

Our simulator is coarser than the peer. It computes all steps in which the batch stays the same together; the peer
computes each decode iteration. It keeps prefixes in the trace's blocks of 512 tokens; the peer has a block manager with
the engine's block size. It has no KV events as messages, and no worker threads and no sampling of the peer's router.
Both leave out networks.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from itertools import islice
from pathlib import Path

from benchmarks.command_line import a_file, above_zero, count

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.errors import SimulatorError
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.conversions import TraceChanges, convert
from fairlead_simulator.traces.rows import read_trace, write_trace
from fairlead_simulator.workloads.kinds import KINDS

PEER = "ai-dynamo-runtime"
PRESET = "vllm-h100-8b"


def main() -> None:
    """Run both simulators, and print a line per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=a_file, help="trace in Mooncake's format; without this option, one is generated")
    parser.add_argument("--instances", type=count, nargs="+", default=[8, 32])
    parser.add_argument("--policies", nargs="+", choices=BUILT_IN.names, default=["round-robin", "dualmap"])
    parser.add_argument("--rate", type=above_zero, help="requests per second; without this option, as recorded")
    parser.add_argument("--repeats", type=count, default=3, help="number of runs; the best run counts")
    parser.add_argument("--peer-python", type=a_file, help=f"a Python that has {PEER}")
    options = parser.parse_args()
    try:
        run(options)
    except SimulatorError as error:
        parser.error(str(error))


def run(options: argparse.Namespace) -> None:
    """Run both simulators with every number of instances. Raises SimulatorError for a trace or policy that cannot be
    simulated.
    """
    with tempfile.TemporaryDirectory() as folder:
        for instances in options.instances:
            trace = Path(folder) / f"trace-{instances}.jsonl"
            ours = run_ours(options, instances, trace)
            if options.peer_python:
                compare_peer(options.peer_python, trace, instances, ours, options.repeats)
    if not options.peer_python:
        print(f"peer not measured: give --peer-python, a Python that has {PEER}")


def run_ours(options: argparse.Namespace, instances: int, out: Path) -> dict[str, float]:
    """Simulate each policy, and return requests per CPU-second, the best of the repeats, including reading the trace.

    It also writes the trace at the used rate, for the peer to read.
    """
    engine = preset(PRESET)
    rows = read_trace(options.trace) if options.trace else islice(KINDS["conversation"].rows(None, None, 0), 12_031)
    spread = convert(rows, TraceChanges(spread="even"))
    workload = load_workload(spread, requests=None, max_input=None, infer_sessions=True)
    ideal, _ = ideal_hits(workload)
    rate = options.rate or workload.native_rate
    with out.open("w") as file:
        write_trace(convert(spread, TraceChanges(requests_per_second=rate)), file)
    started = time.process_time()
    workload = load_workload(read_trace(out), requests=None, max_input=None, infer_sessions=True)
    reading = time.process_time() - started
    print(f"{instances} instances, {len(spread)} requests at {rate:.2f}/s; reading the trace: {reading:.2f} s CPU")
    found: dict[str, float] = {}
    for policy in options.policies:
        spec = SimulatedPool(
            preset=engine,
            instances=instances,
            policy=policy,
            slo_ttft_seconds=engine.slo_ttft_seconds,
            prefill_tokens_per_second=believed_speed(workload, ideal, engine),
        )
        cell = Cell(
            label=policy, spec=spec, plan=ArrivalPlan(rate=rate, spread="even"), targets=Targets(ttft_seconds=engine.slo_ttft_seconds)
        )
        results = [simulate_cell(workload, ideal, cell)[0] for _ in range(options.repeats)]
        cpu = min(result.cpu_seconds for result in results)
        found[policy] = len(spread) / (cpu + reading)
        figures = results[0].figures
        print(
            f"  fairlead {policy:12} {cpu:6.2f} s CPU  {len(spread) / cpu:8,.0f} requests per CPU-second"
            f"   (served {figures.served}, hit rate {figures.hit_rate:.1%}, TTFT p50 {figures.ttft_p50 or 0:.2f} s)"
        )
    return found


def compare_peer(python: Path, trace: Path, workers: int, ours: dict[str, float], repeats: int) -> None:
    """Replay the trace under the peer's Python, and print the peer's figures beside ours.

    The peer's round robin is compared with our round robin, and its cache-aware router with our other policies.
    """
    command = [str(python), str(Path(__file__).with_name("simulator_peer.py")), str(trace), str(workers), str(repeats)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"DYN_LOG": "error"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        print(f"  peer failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
        return
    for mode, result in json.loads(done.stdout.strip().splitlines()[-1]).items():
        alike = {name: rate for name, rate in ours.items() if (name == "round-robin") == (mode == "round_robin")}
        ratios = ", ".join(f"{name} {rate / result['rate']:.1f}x" for name, rate in alike.items())
        print(
            f"  dynamo   {mode:12} {result['cpu']:6.2f} s CPU  {result['rate']:8,.0f} requests per CPU-second   ours: {ratios or 'not run'}"
        )


if __name__ == "__main__":
    main()
