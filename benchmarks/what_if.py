"""Measures What-if simulations on an hour of recorded traffic of 32 instances: three policies at two rates.

    .venv/bin/python -m benchmarks.what_if [--trace FILE] [--requests 36000] [--processes 2] [--repeat] [--here]

The traffic is an hour of Mooncake-like conversations made by our generator (or of a trace), in the form in which
routers record it. It is simulated by the runner of the control API in its simulator processes, without the database.
Prints the seconds until the results are complete (target: 30 on 2 cores) and the CPU seconds of the processes. With
`--repeat`, the same request is simulated a second time, and it is printed whether it gave the same numbers. With
`--here`, only the CPU seconds of each run alone are printed.
"""

import argparse
import asyncio
import os
import resource
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from benchmarks.command_line import a_file, above_zero, count

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_api.simulations.processes import Simulating
from fairlead_api.simulations.running import Claimed, Traffic, runs_of
from fairlead_client.resources.simulations import EngineModel, SimulatedPolicy, SimulationResult, TraceRequest
from fairlead_client.simulation_jobs import RunFigures, SimulatedTarget, SimulationJob
from fairlead_host.app import SIMULATOR
from fairlead_simulator.traces.rows import TraceRow, read_trace
from fairlead_simulator.what_if import run_job
from fairlead_simulator.workloads.kinds import KINDS

INSTANCES = 32
SECONDS = 3600.0
POLICIES = ("least-loaded", "dualmap", "fairlead")
RATES = (1.0, 1.5)
TARGET_SECONDS = 30.0


def main() -> None:
    """Simulate, and print the time that it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--trace", type=a_file, help="a trace in Mooncake's format; its first requests, at most --requests, are spread over the hour"
    )
    parser.add_argument("--requests", type=count, default=36_000)
    parser.add_argument("--processes", type=count, default=os.cpu_count() or 1)
    parser.add_argument("--policies", nargs="+", choices=BUILT_IN.names, default=list(POLICIES))
    parser.add_argument("--rates", type=above_zero, nargs="+", default=list(RATES))
    parser.add_argument("--tokens-per-second", type=above_zero, default=20_000.0, help="prompt tokens that an instance computes")
    parser.add_argument("--repeat", action="store_true", help="run a second time and compare the numbers")
    parser.add_argument("--here", action="store_true", help="each run alone in this process, to profile it")
    options = parser.parse_args()
    traffic = Traffic(requests=traffic_of(options.trace, options.requests), weight=1.0, notes=[])
    claimed = claim(options.policies, options.rates, options.tokens_per_second)
    blocks = sum(len(one.hash_ids) for one in traffic.requests)
    print(
        f"{len(traffic.requests):,} requests in an hour, {blocks:,} blocks, {INSTANCES} instances, {len(claimed.rates)} rates", flush=True
    )
    if options.here:
        runs_alone(claimed, traffic)
        return
    results, seconds, cpu = asyncio.run(simulated(claimed, traffic, options.processes))
    for one in results:
        ttft = "-" if one.ttft_p90 is None else f"{one.ttft_p90:.2f} s"
        print(f"  {one.rate:g}x {one.policy:14} in time {one.attainment:6.1%}  TTFT p90 {ttft:>8}  hits {one.hit_rate:.1%}")
    print(f"{seconds:.1f} s until the results (target {TARGET_SECONDS:g}), {cpu:.1f} CPU seconds in {options.processes} processes")
    if options.repeat:
        again, seconds, _ = asyncio.run(simulated(claimed, traffic, options.processes))
        print(f"a second time {seconds:.1f} s; {'the same numbers' if again == results else 'OTHER NUMBERS'}")
        sys.exit(again != results)


def traffic_of(trace: Path | None, most: int) -> list[TraceRequest]:
    """Return an hour of requests in their recorded form."""
    return recorded_rows(list(islice(read_trace(trace) if trace else KINDS["conversation"].rows(None, None, 0), most)), SECONDS)


def recorded_rows(rows: Sequence[TraceRow], seconds: float) -> list[TraceRequest]:
    """Return the rows of a trace in their recorded form. Their times are stretched so that they last `seconds`.

    The partial last block of each prompt is left out.
    """
    scale = seconds * 1e3 / max(1.0, rows[-1].timestamp_ms - rows[0].timestamp_ms)
    return [
        TraceRequest(
            timestamp=(row.timestamp_ms - rows[0].timestamp_ms) * scale,
            input_length=row.input_length,
            output_length=row.output_length,
            hash_ids=list(row.hash_ids[: row.input_length // 512]),
            session_id=None if row.session is None else str(row.session),
        )
        for row in rows
    ]


def claim(policies: Sequence[str], rates: Sequence[float], tokens_per_second: float) -> Claimed:
    """Return a claimed simulation of a pool of 32 instances."""
    target = SimulatedTarget(
        engine=EngineModel.VLLM_8B,
        instances=INSTANCES,
        prefill_tokens_per_second=tokens_per_second,
        kv_cache_tokens=1_000_000,
        prefills_in_flight=2,
        anchors=160,
        session_ttl_seconds=1800.0,
        early_rejection="Disabled",
        headroom=1.0,
        slo_ttft_seconds=5.0,
        slo_tpot_seconds=0.1,
    )
    asked = [SimulatedPolicy(policy=name) for name in policies]
    return Claimed(id="benchmark", pool_id=1, policies=asked, rates=list(rates), seed=0, target=target, window=None)


class OneSimulation:
    """A database that has a single simulation, for the runner."""

    def __init__(self, claimed: Claimed, traffic: Traffic) -> None:
        self._claimed: Claimed | None = claimed
        self._traffic = traffic
        self.ended = asyncio.Event()
        self.results: list[SimulationResult] = []
        self.error: str | None = None

    async def claim(self, runner: str) -> Claimed | None:
        claimed, self._claimed = self._claimed, None
        return claimed

    async def traffic(self, claimed: Claimed) -> Traffic:
        return self._traffic

    async def go_on(self, claimed: Claimed, runner: str, done: int, total: int | None = None) -> bool:
        return True

    async def finish(
        self, claimed: Claimed, runner: str, results: Sequence[SimulationResult], winner: int, notes: Sequence[str], done: int
    ) -> None:
        self.results = list(results)
        self.ended.set()

    async def finish_trial(
        self, claimed: Claimed, runner: str, figures: Sequence[RunFigures], traffic: Traffic, notes: Sequence[str]
    ) -> None:
        raise AssertionError("no plan is simulated here")

    async def finish_sizing(self, claimed: Claimed, runner: str, *found: object) -> None:
        raise AssertionError("nothing is simulated for advice here")

    async def fail(self, claimed: Claimed, runner: str, why: str) -> None:
        self.error = why
        self.ended.set()


async def simulated(claimed: Claimed, traffic: Traffic, processes: int) -> tuple[list[SimulationResult], float, float]:
    """Return the results, the seconds until they were available, and the CPU seconds of the processes."""
    store = OneSimulation(claimed, traffic)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    runner = asyncio.create_task(Simulating(store, "benchmark", processes, SIMULATOR).run())
    ended = asyncio.create_task(store.ended.wait())
    await asyncio.wait({runner, ended}, return_when=asyncio.FIRST_COMPLETED)
    seconds = time.monotonic() - started
    if not ended.done():
        await runner  # it ended before the simulation, and says why
        sys.exit("the runner ended before the simulation")
    runner.cancel()
    await asyncio.gather(runner, return_exceptions=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if store.error is not None:
        sys.exit(f"it failed: {store.error}")
    return store.results, seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def runs_alone(claimed: Claimed, traffic: Traffic) -> None:
    """Run each run alone, and print its CPU seconds. They include reading and preparing the requests."""
    job = SimulationJob(requests=traffic.requests, weight=1.0, target=claimed.target, seed=claimed.seed)
    for run in runs_of(claimed.policies, claimed.rates):
        started = time.process_time()
        run_job(job, [run], lambda _: None)
        print(f"  {run.rate:g}x {run.policy:14} {time.process_time() - started:6.2f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
