"""Pools that scale themselves, for the section on scaling: the pools, their requests, and the results."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from multiprocessing import get_context

from fairlead.instances import Role
from fairlead.scaling.specs import RatioMode, RatioSpec
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Targets, in_time
from fairlead_simulator.experiments.saturation import believed_speed
from fairlead_simulator.simulation.autoscaling import SimulatedScaling, SizeChange
from fairlead_simulator.simulation.jobs import Job, Phase
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.workloads import phases
from fairlead_simulator.workloads.phases import PhaseShape, generate_phases
from reproductions.sections import Context

WHOLE = SimulatedPool(preset=preset("dualmap-910b4-qwen7b"), instances=4, policy="fairlead", prefill_tokens_per_second=1.0)
SPLIT = SimulatedPool(
    preset=preset("mooncake-a800-llama70b"),
    instances=0,
    prefill_instances=4,
    decode_instances=4,
    policy="mooncake",
    early_rejection="Load",
    slo_ttft_seconds=30.0,
    slo_tpot_seconds=0.045,
    prefill_tokens_per_second=1.0,
    fetching=True,
    knows_decode_times=True,
)
WHOLE_TARGETS = Targets(ttft_seconds=5.0)
SPLIT_TARGETS = Targets(ttft_seconds=30.0, tpot_seconds=0.05)
"""The targets of pools of prefill and decode.

These pools admit up to nine tenths of the TPOT, so that a request admitted at the limit is still in time.
"""
AUTO = SimulatedScaling(ratio=RatioSpec(mode=RatioMode.AUTO))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request: when it arrived, whether it was served in time, its prompt tokens and how many of them were cached."""

    at: float
    in_time: bool
    prompt_tokens: int
    hit_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The result of a run."""

    label: str
    asked: tuple[Asked, ...]
    changes: tuple[SizeChange, ...]
    failed: int

    def attainment(self, begin: float = 0.0, end: float = float("inf")) -> float:
        """Return the share in time of the requests that arrived in [begin, end); 1 if none arrived."""
        found = [one.in_time for one in self.asked if begin <= one.at < end]
        return sum(found) / len(found) if found else 1.0

    def hit_rate(self, begin: float, end: float) -> float:
        """Return the cached share of the prompt tokens of the requests that arrived in [begin, end); 0 if none
        arrived.
        """
        found = [one for one in self.asked if begin <= one.at < end]
        return sum(one.hit_tokens for one in found) / max(1, sum(one.prompt_tokens for one in found))

    @property
    def last_arrival(self) -> float:
        """Return the time of the last arrival in seconds."""
        return self.asked[-1].at

    def sizes(self, role: Role) -> list[SizeChange]:
        """Return the changes of a role's number of instances until the last arrival."""
        return [change for change in self.changes if change.role is role and change.at <= self.last_arrival]

    @property
    def least_gap(self) -> float | None:
        """Return the least seconds between two moves from role to role; None if there were fewer than two."""
        times = [change.at for change in self.sizes(Role.PREFILL)]
        return min((later - earlier for earlier, later in pairwise(times)), default=None)


def phased(*of: phases.Phase, cycles: int = 1, seed: int = 0) -> Workload:
    """Return a workload of `cycles` cycles of these phases, with the times of their requests."""
    shape = PhaseShape(phases=of)
    end = 1e3 * cycles * shape.seconds
    return load_workload(
        takewhile(lambda row: row.timestamp_ms < end, generate_phases(shape, seed)), requests=None, max_input=None, infer_sessions=False
    )


def cell(loaded: Workload, pool: SimulatedPool, scaling: SimulatedScaling | None, label: str, targets: Targets, **changes: object) -> Cell:
    """Return a run at the workload's own rate. The pool's router knows the prefill speed."""
    ideal, _ = ideal_hits(loaded)
    spec = replace(pool, prefill_tokens_per_second=believed_speed(loaded, ideal, pool.preset))
    plain = Cell(label=label, spec=spec, plan=ArrivalPlan(rate=loaded.native_rate, spread="even"), scaling=scaling, targets=targets)
    return replace(plain, **changes)  # type: ignore[arg-type]  # named fields of a cell


def run(context: Context, cells: Sequence[tuple[Workload, Cell]]) -> list[Scaled]:
    """Return the results of all runs in order."""
    found: list[Scaled] = []
    if context.jobs == 1:
        results = (_run(*one) for one in cells)
        for one in results:
            found.append(_said(context, one, len(cells), len(found)))
        return found
    with ProcessPoolExecutor(max_workers=context.jobs, mp_context=get_context("spawn")) as pool:
        for future in [pool.submit(_run, *one) for one in cells]:
            found.append(_said(context, future.result(), len(cells), len(found)))
    return found


def _said(context: Context, one: Scaled, count: int, before: int) -> Scaled:
    context.say(f"scaling: {before + 1}/{count}  {one.label}: {one.attainment():.1%} in time")
    return one


def _run(loaded: Workload, one: Cell) -> Scaled:
    ideal, _ = ideal_hits(loaded)
    result, finished = simulate_cell(loaded, ideal, one)
    return Scaled(
        label=one.label,
        asked=tuple(sorted((_asked(job, one.targets) for job in finished.jobs), key=lambda asked: asked.at)),
        changes=result.sizes,
        failed=result.figures.failed,
    )


def _asked(job: Job, targets: Targets) -> Asked:
    served = job.phase is Phase.FINISHED
    return Asked(
        at=job.arrives_at,
        in_time=served and in_time(job, targets),
        prompt_tokens=job.input_tokens if served else 0,
        hit_tokens=job.hit_tokens if served else 0,
    )
