"""Checks whether remedies work: random pools are simulated, advised by the simulation, changed as advised, and
simulated again.

    .venv/bin/python -m benchmarks.remedies [--pools 200] [--first 0] [--requests 400] [--verbose]

Each pool has its own heavy-tailed traffic, engine speed, targets, number of instances, early rejection and policy.
Advice is made from a part of its requests, the recorded requests, as the control API makes it. Then the next requests
of the same traffic are simulated with another seed and with the advised change. Two kinds of remedies are advised: a
number of instances, and a TTFT target.

A remedy that claims to meet the goal is right if the goal is met. A remedy that claims to bring a share of requests in
time is right if it does so. The claim "No number of instances meets the goal" is right if four times the largest
allowed number does not meet the goal either. Each pool has as many recorded requests as a simulation for advice needs.
A pool that needs more than `--most` is left out, because its simulation would take too long.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from benchmarks.command_line import count

from fairlead.instances import Role
from fairlead.scaling.remedies import Confirmed, Simulated, enough_instances, enough_time, reach_of
from fairlead_api.simulations.expectations import LEAST_SECONDS
from fairlead_api.simulations.expected_figures import Recorded, Trialled
from fairlead_api.simulations.sizing import AS_IT_IS, Asked, first_runs, further_runs, simulated
from fairlead_client.resources.simulations import EngineModel, TraceRequest
from fairlead_client.simulation_jobs import JobLine, JobRun, PoolChange, RunFigures, SimulatedTarget, SimulationJob
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.what_if import run_job
from fairlead_simulator.workloads.conversations import ConversationShape, generate_conversations

ANOTHER_SEED = 7
SETTLED = 1000
"""The number of first generated requests that are left out. Their conversations have just begun, so their prompts are
shorter.
"""
MOST = 16
"""The maximum number of instances of a pool. Four times as many stand for an unlimited number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPool:
    """A pool with its settings, and two periods of its traffic: the recorded requests, from which advice is made, and
    the following requests, on which the advice is tested. The two periods overlap by half.
    """

    number: int
    target: SimulatedTarget
    policy: str
    goal: float
    recorded: list[TraceRequest]
    following: list[TraceRequest]

    @property
    def asked(self) -> Asked:
        """The question that the control API would answer by a simulation for this pool."""
        return Asked(
            role=Role.BOTH,
            present=self.target.instances,
            most=MOST,
            goal=self.goal,
            slo_ttft_seconds=self.target.slo_ttft_seconds,
            slo_tpot_seconds=self.target.slo_tpot_seconds,
            policy=self.policy,
            startup_seconds=0.0,
        )


def a_pool(number: int, least: int) -> RandomPool:
    """Return the pool with this number; the same number always gives the same pool.

    At least `least` of its requests are recorded, and at least as many as a simulation needs.
    """
    rng = Random(f"remedies/{number}")
    median, sigma = math.exp(rng.uniform(math.log(400), math.log(12_000))), rng.uniform(0.6, 1.6)
    speed, instances = math.exp(rng.uniform(math.log(3_000), math.log(40_000))), rng.randint(1, 4)
    mean = median * math.exp(sigma**2 / 2)
    busy = math.exp(rng.uniform(math.log(0.3), math.log(3.0)))
    shape = ConversationShape(
        requests_per_second=busy * instances * speed / mean,
        continue_share=rng.uniform(0.0, 0.6),
        opening_median=median,
        opening_sigma=sigma,
        output_median=math.exp(rng.uniform(math.log(20), math.log(400))),
        shortest_input=32,
    )
    requests = max(least, math.ceil(1.1 * LEAST_SECONDS * shape.requests_per_second))
    rows = list(islice(generate_conversations(shape, number), SETTLED, SETTLED + requests * 3 // 2))
    target = SimulatedTarget(
        engine=EngineModel.VLLM_8B,
        instances=instances,
        prefill_tokens_per_second=speed,
        kv_cache_tokens=rng.choice((300_000, 1_000_000)),
        prefills_in_flight=rng.choice((1, 2, 4)),
        anchors=160,
        session_ttl_seconds=1800.0,
        early_rejection=rng.choice(("Disabled", "Load", "Load", "Predicted")),
        headroom=1.0,
        slo_ttft_seconds=math.exp(rng.uniform(math.log(0.5), math.log(10.0))),
        slo_tpot_seconds=rng.choice((0.05, 0.1, 0.2)),
    )
    policy = rng.choice(("fairlead", "dualmap", "least-loaded", "ear"))
    goal = rng.choice((0.8, 0.9, 0.9, 0.95, 0.99))
    return RandomPool(
        number=number,
        target=target,
        policy=policy,
        goal=goal,
        recorded=_requests(rows[:requests]),
        following=_requests(rows[requests // 2 :]),
    )


def _requests(rows: Sequence[TraceRow]) -> list[TraceRequest]:
    begin = rows[0].timestamp_ms
    return [
        TraceRequest(
            timestamp=row.timestamp_ms - begin,
            input_length=row.input_length,
            output_length=row.output_length,
            hash_ids=list(row.hash_ids),
            session_id=row.session,
        )
        for row in rows
    ]


def advised(pool: RandomPool) -> Simulated | None:
    """Return the result of the control API's simulation of the recorded requests; None if the pool needs no advice."""
    asked, target = pool.asked, pool.target
    runs = first_runs(asked)
    alone: list[float | None] = []
    figures = _figures(pool.recorded, target, [one for one in runs if one.change == AS_IT_IS], alone)
    if sum(one.attainment for one in figures) / len(figures) >= pool.goal:
        return None
    figures += _figures(pool.recorded, target, runs[len(figures) :])
    refused = [False] * len(alone)
    sessions = [one.session_id for one in pool.recorded]
    reach = reach_of(alone, refused, target.slo_ttft_seconds, pool.goal, target.prefill_tokens_per_second, sessions)
    more = further_runs(asked, runs, {one.number: one for one in figures}, reach)
    figures, runs = figures + _figures(pool.recorded, target, more), runs + more
    as_it_is = figures[0]
    recorded = Recorded(attainment=as_it_is.attainment * as_it_is.requests / max(1, as_it_is.served))
    found = Trialled(figures=figures, recorded=recorded, measured_seconds=1.0)
    return simulated(asked, "it", runs, found, reach, len(pool.recorded), pool.recorded[-1].timestamp / 1e3)


def after(pool: RandomPool, change: PoolChange) -> RunFigures:
    """Return the figures of the requests that follow, with the change."""
    run = JobRun(number=0, policy=pool.policy, parameters={}, rate=1.0, seed=ANOTHER_SEED, change=change)
    (figures,) = _figures(pool.following, pool.target, [run])
    return figures


def _figures(
    requests: list[TraceRequest], target: SimulatedTarget, runs: Sequence[JobRun], alone: list[float | None] | None = None
) -> list[RunFigures]:
    lines: list[JobLine] = []
    run_job(SimulationJob(requests=requests, weight=1.0, target=target, seed=0, tells_alone=alone is not None), runs, lines.append)
    if alone is not None:
        alone += [one for line in lines for one in line.alone]
    return [line.figures for line in lines if line.figures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A claim of a remedy about a pool, whether the claim was right, and the figures that show it, in words."""

    claim: str
    holds: bool
    words: str


def outcomes(pool: RandomPool) -> Iterator[Outcome]:
    """Yield the claims about a pool that misses its goal, and whether each was right."""
    found = advised(pool)
    if found is None:
        return
    scaled, slower = enough_instances(found), enough_time(found)
    if scaled is not None:
        yield _kept("a number of instances", pool, scaled, PoolChange(replicas=int(scaled.value)))
    if slower is not None:
        yield _kept("a TTFT target", pool, slower, PoolChange(slo_ttft_seconds=slower.value))
    if found.reach.exceeds(1 - pool.goal):
        many = after(pool, PoolChange(replicas=4 * MOST))
        words = f"now {found.before:.1%}, beyond {found.reach.share:.1%}, goal {pool.goal:.0%}, with very many {many.attainment:.1%}"
        yield Outcome(claim="no number of instances meets the goal", holds=many.attainment < pool.goal, words=words)


def _kept(claim: str, pool: RandomPool, promised: Confirmed, change: PoolChange) -> Outcome:
    then = after(pool, change).attainment
    least = pool.goal if promised.meets else promised.surely
    words = f"{promised.value:g} ({promised.least:g} to {promised.most or math.inf:g}) promises {promised.attainment:.1%} in time"
    words += f" ({promised.surely:.1%} or more){', meets' if promised.meets else ', misses'} {pool.goal:.0%}; measured {then:.1%}"
    return Outcome(claim=claim, holds=then >= least, words=words)


def main() -> None:
    """Simulate each pool and print how many claims were right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=count, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first pool")
    parser.add_argument("--requests", type=count, default=400, help="minimum number of recorded requests of each pool")
    parser.add_argument("--most", type=count, default=1600, help="maximum number of recorded requests; a pool that needs more is left out")
    parser.add_argument("--verbose", action="store_true", help="print each claim as soon as it is checked")
    options = parser.parse_args()
    made, held = Counter[str](), Counter[str]()
    pools = [a_pool(number, options.requests) for number in range(options.first, options.first + options.pools)]
    tried = [pool for pool in pools if len(pool.recorded) <= options.most]
    print(f"{len(tried)} of {len(pools)} pools are tried; the others are left out, because they get too many requests a second")
    for pool in tried:
        for one in outcomes(pool):
            made[one.claim] += 1
            held[one.claim] += one.holds
            if options.verbose or not one.holds:
                print(f"pool {pool.number}: {one.claim}: {one.words}{'' if one.holds else '  DOES NOT HOLD'}", flush=True)
    for claim in sorted(made):
        print(f"{claim:45} {held[claim]:4} of {made[claim]:4} hold, {held[claim] / made[claim]:.1%}")
    sys.exit(0)


if __name__ == "__main__":
    main()
