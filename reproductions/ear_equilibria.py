"""Measures equilibria of a closed loop and applies the coupling law to each.

Agent sessions begin at a given rate. Their concurrency, throughput and times are measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum

from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.workloads.agents import AgentShape, generate_agents
from reproductions.ear_law import concurrency, sensitivity, slope_at_last
from reproductions.ear_runs import PRESET, SLO_SECONDS, Variant, pool

VARIANTS = (Variant(label="ear", policy="ear"), Variant(label="least-loaded", policy="least-loaded"))
FACTORS = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)
"""Rates of sessions, as multiples of the base rate."""
FITTED = 4
"""The number of points of W(L) from which a slope is computed: a rate and the rates right below it."""
SHAPE = AgentShape(requests_per_second=3.0, giant_share=0.0, turns_median=8.0, turns_sigma=0.5)
"""Sessions of about nine turns, none of them with hundreds, so that they are in equilibrium after minutes."""
SECONDS = 2700.0
WARMUP_SECONDS = 600.0
LONGEST_SESSION_SECONDS = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Equilibrium:
    """The figures of a run in its window.

    `concurrency` L is the time average of turns in flight. `offered` Λ·N is the number of turns that arrived per
    second. `time` W is the mean over these turns of the seconds from a turn's arrival to its end.
    """

    variant: str
    factor: float
    concurrency: float
    offered: float
    time: float

    @property
    def beyond_littles_law(self) -> float:
        """The relative deviation from Little's law: L / (Λ·N·W) - 1."""
        return self.concurrency / (self.offered * self.time) - 1


@lru_cache(maxsize=2)
def sessions(seed: int, seconds: float) -> tuple[Workload, float]:
    """Return all turns of the sessions that begin within these seconds, and the prefill speed in tokens per second that
    a router would assume.
    """
    kept: set[str | None] = set()
    rows: list[TraceRow] = []
    for row in generate_agents(SHAPE, seed):
        at = row.timestamp_ms / 1e3
        if at > seconds + LONGEST_SESSION_SECONDS:
            break
        if row.pause_ms is None and at < seconds:
            kept.add(row.session)
        if row.session in kept:
            rows.append(row)
    workload = load_workload(rows, requests=None, max_input=None, infer_sessions=False)
    return workload, believed_speed(workload, ideal_hits(workload)[0], PRESET)


def measure_equilibrium(task: tuple[Variant, float, int, float]) -> Equilibrium:
    """Run a task (variant, factor, seed, seconds of sessions) and return its equilibrium.

    Only the times at which sessions begin are scaled by the factor. Tools take as long as recorded.
    """
    variant, factor, seed, seconds = task
    workload, speed = sessions(seed, seconds)
    plan = ArrivalPlan(rate=workload.native_rate * factor, seed=seed, closed_loop=True)
    cell = Cell(label=variant.label, spec=pool(variant, seed, speed), plan=plan, targets=Targets(ttft_seconds=SLO_SECONDS))
    _, result = simulate_cell(workload, [0] * len(workload.rows), cell)
    return in_window(result.jobs, min(WARMUP_SECONDS, seconds / 3), seconds / factor, variant.label, factor)


def in_window(jobs: Sequence[Job], begin: float, end: float, variant: str, factor: float) -> Equilibrium:
    """Return the equilibrium of a finished run's jobs within [begin, end)."""
    came = [job for job in jobs if begin <= job.arrives_at < end]
    overlap = fsum(max(0.0, min(end, job.finished_at) - max(begin, job.arrives_at)) for job in jobs)
    return Equilibrium(
        variant=variant,
        factor=factor,
        concurrency=overlap / (end - begin),
        offered=len(came) / (end - begin),
        time=fsum(job.finished_at - job.arrives_at for job in came) / max(1, len(came)),
    )


def mean_curve(found: Sequence[Equilibrium], variant: str) -> list[Equilibrium]:
    """Return the means over seeds for each factor. W is set to L / (Λ·N), so that Little's law holds."""
    curve: list[Equilibrium] = []
    for factor in sorted({one.factor for one in found}):
        same = [one for one in found if one.variant == variant and one.factor == factor]
        in_flight = fsum(one.concurrency for one in same) / len(same)
        offered = fsum(one.offered for one in same) / len(same)
        curve.append(Equilibrium(variant=variant, factor=factor, concurrency=in_flight, offered=offered, time=in_flight / offered))
    return curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The law at a measured equilibrium. Its slope is computed from this and lower rates only."""

    at: Equilibrium
    slope: float

    @staticmethod
    def of(points: Sequence[Equilibrium]) -> "Law":
        """Return the law at the last point, with the slope from all these points."""
        return Law(at=points[-1], slope=slope_at_last([one.concurrency for one in points], [one.time for one in points]))

    @property
    def coupling(self) -> float:
        """The coupling Λ·N·W'(L*)."""
        return self.at.offered * self.slope

    @property
    def per_load(self) -> float:
        """The sensitivity dL/dε of the concurrency to a relative increase of the load."""
        return sensitivity(self.at.offered, self.at.concurrency, self.slope)

    def predict(self, factor: float) -> float:
        """Return L at another rate, with W continued along its tangent; inf if that rate has no equilibrium."""
        alone = self.at.time - self.slope * self.at.concurrency
        return concurrency(self.at.offered * factor / self.at.factor, alone, self.slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The law at a rate of a curve, and the measured equilibria at the next lower and the next higher rate.

    The law was fitted without the higher one.
    """

    before: Equilibrium
    law: Law
    after: Equilibrium

    @property
    def measured_per_load(self) -> float:
        """The sensitivity dL/dε, from the difference between the two neighbours."""
        return self.law.at.factor * (self.after.concurrency - self.before.concurrency) / (self.after.factor - self.before.factor)

    @property
    def predicted(self) -> float:
        """The L at the higher rate that the law predicts."""
        return self.law.predict(self.after.factor)

    @property
    def off(self) -> float:
        """The relative error of the prediction: predicted over measured L, minus 1."""
        return self.predicted / self.after.concurrency - 1

    @property
    def uncoupled_off(self) -> float:
        """The relative error of a prediction with constant W, which makes L proportional to the rate."""
        return self.law.at.concurrency * self.after.factor / self.law.at.factor / self.after.concurrency - 1


def steps_of(curve: Sequence[Equilibrium], fitted: int) -> list[Step]:
    """Return a step for every point of the curve with `fitted` points up to it and a point after it."""
    return [Step(before=curve[end - 2], law=Law.of(curve[end - fitted : end]), after=curve[end]) for end in range(fitted, len(curve))]


def missing_turns(curve: Sequence[Equilibrium]) -> float:
    """Return the share of turns that are missing at the highest rate.

    The expected number is that of the lowest rate, scaled by the rate at which sessions begin.
    """
    low, high = curve[0], curve[-1]
    return 1 - high.offered / (low.offered * high.factor / low.factor)
