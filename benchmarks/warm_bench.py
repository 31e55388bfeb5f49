"""The value of sleeping instances: peaks are met by cold starts, by sleeping instances, or by a pool that is always
large.

    .venv/bin/python -m benchmarks.warm_bench [--cold 240] [--wake 5] [--asleep 4] [--peaks 4] [--calm 900] [--rush 600]
        [--seeds 3]

It runs in virtual time, with the router's own scheduler and the operator's own scaling (mode SLO). Calms and rushes
alternate; a rush has about three times as many requests per second as a calm. Three ways are compared. In `cold`, each
instance that a rush needs starts for `--cold` seconds. In `sleepers`, up to `--asleep` of the surplus instances sleep
(`roles[].warm`) and wake within `--wake` seconds. In the first rush no instance sleeps yet, as in a new pool. `large`
always has the greatest number of instances that `cold` ever had.

An hour asleep costs no GPU hour if another pool computes on the GPU meanwhile, and a whole GPU hour if the GPU stays
reserved for the sleeping instance. Both costs are given, in hours of an instance's GPUs. A request counts as late if it
was not served within the TTFT target, or was refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path

from benchmarks.command_line import above_zero, count
from reproductions.scaling_runs import WHOLE, WHOLE_TARGETS, Scaled, cell, phased, run
from reproductions.sections import Context

from fairlead.instances import Role
from fairlead.scaling.specs import ScalingMode, ScalingSpec
from fairlead_simulator.experiments.arrival_plans import Workload
from fairlead_simulator.simulation.autoscaling import SimulatedScaling, SizeChange
from fairlead_simulator.workloads.phases import Phase

CALM, RUSH = 2.5, 8.0
"""Requests per second in a calm and in a rush."""
HOUR = 3600.0
LOW = ScalingSpec(mode=ScalingMode.SLO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The arguments of a comparison; times are in seconds."""

    cold: float
    wake: float
    asleep: int
    peaks: int
    calm: float
    rush: float

    def load(self, seed: int) -> Workload:
        """Return the requests, which are the same for each way of meeting the peaks."""
        calm = Phase(seconds=self.calm, requests_per_second=CALM, input_median=5000, output_median=200)
        return phased(calm, replace(calm, seconds=self.rush, requests_per_second=RUSH), cycles=self.peaks, seed=seed)

    def rules(self, asleep: int) -> SimulatedScaling:
        """Return the rules of scaling by SLO with up to `asleep` sleeping instances."""
        return SimulatedScaling(
            scaling=LOW, min_replicas=2, max_replicas=16, startup_seconds=self.cold, asleep=asleep, wake_seconds=self.wake
        )

    def begins(self) -> list[float]:
        """Return the times at which the rushes begin."""
        return [number * (self.calm + self.rush) + self.calm for number in range(self.peaks)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The figures of one way of meeting the peaks with one seed. Shares are 0 to 1; times are hours of instances."""

    way: str
    attainment: float
    in_rushes: float
    first_minutes: float
    """Share in time of the requests in the first five minutes of every rush except the first."""
    late: int
    awake_hours: float
    asleep_hours: float


def held(changes: Sequence[SizeChange], start: int, end: float, asleep: int) -> tuple[float, float]:
    """Return two numbers of instance hours from the start until `end` (in seconds): of instances that are awake or
    starting, and of instances that sleep.

    They are computed from the changes of the number of instances.
    """
    steps = [SizeChange(at=0.0, role=Role.BOTH, replicas=start), *(one for one in changes if one.at < end)]
    sleeping, before, awake_seconds, asleep_seconds = 0, start, 0.0, 0.0
    for one, following in pairwise(chain(steps, [SizeChange(at=end, role=Role.BOTH, replicas=0)])):
        surplus = before - one.replicas
        sleeping = min(asleep, sleeping + surplus) if surplus > 0 else max(0, sleeping + surplus)
        awake_seconds += one.replicas * (following.at - one.at)
        asleep_seconds += sleeping * (following.at - one.at)
        before = one.replicas
    return awake_seconds / HOUR, asleep_seconds / HOUR


def row(one: Scaled, terms: Terms, start: int, asleep: int) -> Row:
    """Return the figures of a run."""
    begins = terms.begins()
    rushes = [ask.in_time for ask in one.asked if any(begin <= ask.at < begin + terms.rush for begin in begins)]
    first = [ask.in_time for ask in one.asked if any(begin <= ask.at < begin + min(300.0, terms.rush) for begin in begins[1:])]
    awake, sleeping = held(one.sizes(Role.BOTH), start, one.last_arrival, asleep)
    return Row(
        way=one.label,
        attainment=one.attainment(),
        in_rushes=sum(rushes) / max(1, len(rushes)),
        first_minutes=sum(first) / max(1, len(first)),
        late=sum(not ask.in_time for ask in one.asked),
        awake_hours=awake,
        asleep_hours=sleeping,
    )


def compare(terms: Terms, seed: int) -> Iterator[Row]:
    """Yield the figures of the three ways with one seed."""
    load, quiet = terms.load(seed), Context(docs=Path(), say=lambda _: None)
    cells = [
        (load, cell(load, WHOLE, terms.rules(asleep), way, WHOLE_TARGETS)) for way, asleep in (("cold", 0), ("sleepers", terms.asleep))
    ]
    cold, sleepers = run(quiet, cells)
    yield row(cold, terms, WHOLE.instances, 0)
    yield row(sleepers, terms, WHOLE.instances, terms.asleep)
    most = max((change.replicas for change in cold.sizes(Role.BOTH)), default=WHOLE.instances)
    (large,) = run(quiet, [(load, cell(load, replace(WHOLE, instances=most), None, "large", WHOLE_TARGETS))])
    yield row(large, terms, most, 0)


def line(seed: int, found: Row) -> str:
    """Return a row of the printed table."""
    return (
        f"{seed:4}  {found.way:8}  {found.attainment:8.1%}  {found.in_rushes:9.1%}  {found.first_minutes:10.1%}  {found.late:6}"
        f"  {found.awake_hours:6.2f}  {found.asleep_hours:6.2f}  {found.awake_hours + found.asleep_hours:8.2f}"
    )


def main() -> None:
    """Print a row for each seed and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cold", type=above_zero, default=240.0, help="seconds that a cold start takes")
    parser.add_argument("--wake", type=above_zero, default=5.0, help="seconds that waking takes")
    parser.add_argument("--asleep", type=count, default=4, help="maximum number of sleeping instances")
    parser.add_argument("--peaks", type=count, default=4, help="number of rushes")
    parser.add_argument("--calm", type=above_zero, default=900.0, help="seconds of a calm")
    parser.add_argument("--rush", type=above_zero, default=600.0, help="seconds of a rush")
    parser.add_argument("--seeds", type=count, default=3)
    asked = parser.parse_args()
    terms = Terms(cold=asked.cold, wake=asked.wake, asleep=asked.asleep, peaks=asked.peaks, calm=asked.calm, rush=asked.rush)
    print("seed  way       in time   in rushes  after begin    late   awake  asleep  reserved")
    for seed in range(asked.seeds):
        for found in compare(terms, seed):
            print(line(seed, found))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
