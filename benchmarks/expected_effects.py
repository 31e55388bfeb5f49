"""The accuracy of a plan's expected effect: compares the simulation that a plan is based on with a simulation of the
time after the plan.

    .venv/bin/python -m benchmarks.expected_effects [--trace FILE] [--requests 12000] [--instances 8] [--rate 1.0]

Two hours of Mooncake-like conversations made by our generator (or of a trace) go to a pool. Each plan's effect is
estimated from the first hour, as the control API does it: with two seeds, at two other rates, and with the change after
half of the requests. The time after the plan is simulated with another seed and other requests. The second half of the
first hour warms the pool up. Then the change is made, and the first half of the second hour is measured. Prints the
expected and the measured figures, and the error of the expectation. A figure is marked if the control API would report
it as unknown.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from benchmarks.command_line import a_file, above_zero, count
from benchmarks.what_if import SECONDS, recorded_rows

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_api.simulations.expected_figures import Recorded, Trialled, figures_of
from fairlead_api.simulations.plan_changes import RATES, SEEDS
from fairlead_client.resources.expectations import Quantity
from fairlead_client.resources.simulations import EngineModel, TraceRequest
from fairlead_client.simulation_jobs import JobLine, JobRun, PoolChange, RunFigures, SimulatedTarget, SimulationJob
from fairlead_simulator.traces.rows import read_trace
from fairlead_simulator.what_if import run_job
from fairlead_simulator.workloads.kinds import KINDS

ANOTHER_SEED = 7
STARTUP_SECONDS = 30.0
QUANTITIES = {
    Quantity.ATTAINMENT: "in time",
    Quantity.REFUSED_SHARE: "refused",
    Quantity.HIT_RATE: "hit rate",
    Quantity.SESSIONS_MOVED: "sessions moved",
}


def main() -> None:
    """Estimate, simulate the events after each plan, and print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=a_file, help="a trace in Mooncake's format, of two hours")
    parser.add_argument("--requests", type=count, default=12_000, help="in both hours")
    parser.add_argument("--instances", type=count, default=8, help="number of instances, 2 or more, because a plan removes one")
    parser.add_argument("--rate", type=above_zero, default=1.0, help="rate of the requests, as a multiple of their recorded rate")
    parser.add_argument("--policy", choices=BUILT_IN.names, default="fairlead")
    parser.add_argument("--early-rejection", choices=("Disabled", "Load", "Predicted"), default="Disabled")
    options = parser.parse_args()
    if options.instances < 2:
        parser.error("the plan that removes an instance needs a second one: give --instances 2 or more")
    rows = list(islice(read_trace(options.trace) if options.trace else KINDS["conversation"].rows(None, None, 0), options.requests))
    if len(rows) < 100:
        parser.error(f"{len(rows)} requests are too few for two hours; give 100 or more")
    requests = recorded_rows(rows, 2 * SECONDS / options.rate)
    half, quarter = len(requests) // 2, len(requests) // 4
    target = SimulatedTarget(
        engine=EngineModel.VLLM_8B,
        instances=options.instances,
        prefill_tokens_per_second=20_000.0,
        kv_cache_tokens=1_000_000,
        prefills_in_flight=2,
        anchors=160,
        session_ttl_seconds=1800.0,
        early_rejection=options.early_rejection,
        headroom=1.0,
        slo_ttft_seconds=5.0,
        slo_tpot_seconds=0.1,
    )
    plans = changes(options.instances, options.policy)
    as_it_is = figures(requests[:half], target, options.policy, [(seed, 1.0, PoolChange()) for seed in SEEDS])
    really = figures(requests[quarter : half + quarter], target, options.policy, [(ANOTHER_SEED, 1.0, PoolChange())])[0]
    measured = Recorded(
        attainment=really.attainment * really.requests / max(1, really.served),
        hit_rate=really.hit_rate,
        sessions_moved=really.sessions_moved,
    )
    print(f"{len(requests):,} requests in two hours, {options.instances} instances, policy {options.policy}", flush=True)
    print(f"{'plan':32} {'quantity':16} {'as it is':>9} {'expected':>9} {'happened':>9}  off by", flush=True)
    for name, change in plans.items():
        planned = [(seed, 1.0, change) for seed in SEEDS] + [(SEEDS[0], rate, change) for rate in RATES]
        expected = figures(requests[:half], target, options.policy, planned)
        happened = figures(requests[quarter : half + quarter], target, options.policy, [(ANOTHER_SEED, 1.0, change)])[0]
        mixed = [one for pair in zip(as_it_is, expected, strict=False) for one in pair] + expected[len(SEEDS) :]
        for one in figures_of(Trialled(figures=mixed, recorded=measured, measured_seconds=0.0)):
            then = value(happened, one.quantity)
            shown = "{:9.0f}" if one.quantity is Quantity.SESSIONS_MOVED else "{:9.1%}"
            off = "0 %" if then == one.after else f"{abs(one.after - then) / then:.0%}" if then else "-"
            words = "" if one.unknown is None else f"  told as unknown: {one.unknown}"
            print(
                f"{name:32} {QUANTITIES[one.quantity]:16} {shown.format(one.before)} {shown.format(one.after)} {shown.format(then)}  {off}{words}"
            )


def changes(instances: int, policy: str) -> dict[str, PoolChange]:
    """Return the plans to check: one of each kind that can be simulated for a pool whose instances both prefill and
    decode.
    """
    return {
        f"scale to {instances - 1}": PoolChange(replicas=instances - 1, startup_seconds=STARTUP_SECONDS),
        f"scale to {instances // 2}": PoolChange(replicas=instances // 2, startup_seconds=STARTUP_SECONDS),
        f"scale to {instances + 2}": PoolChange(replicas=instances + 2, startup_seconds=STARTUP_SECONDS),
        "drain the middle one": PoolChange(drained=instances // 2, startup_seconds=STARTUP_SECONDS),
        "policy least-loaded": PoolChange(policy="least-loaded", parameters={}, prefills_in_flight=2),
        "policy dualmap": PoolChange(policy="dualmap", parameters={}, prefills_in_flight=2),
        "one prefill in flight": PoolChange(policy=policy, parameters={}, prefills_in_flight=1),
        "early rejection Load": PoolChange(early_rejection="Load", headroom=1.0),
        "early rejection Load, headroom 0.5": PoolChange(early_rejection="Load", headroom=0.5),
    }


def figures(
    requests: Sequence[TraceRequest], target: SimulatedTarget, policy: str, runs: Sequence[tuple[int, float, PoolChange]]
) -> list[RunFigures]:
    """Return the figures of the runs, in the order of the runs."""
    begin = requests[0].timestamp
    job = SimulationJob(requests=[replace(one, timestamp=one.timestamp - begin) for one in requests], weight=1.0, target=target, seed=0)
    lines: list[JobLine] = []
    numbered = [
        JobRun(number=number, policy=policy, parameters={}, rate=rate, seed=seed, change=change)
        for number, (seed, rate, change) in enumerate(runs)
    ]
    run_job(job, numbered, lines.append)
    return [line.figures for line in lines if line.figures]


def value(found: RunFigures, quantity: Quantity) -> float:
    """Return the figure of a quantity."""
    match quantity:
        case Quantity.ATTAINMENT:
            return found.attainment
        case Quantity.REFUSED_SHARE:
            return found.refused_share
        case Quantity.HIT_RATE:
            return found.hit_rate
        case Quantity.SESSIONS_MOVED:
            return float(found.sessions_moved or 0)


if __name__ == "__main__":
    main()
