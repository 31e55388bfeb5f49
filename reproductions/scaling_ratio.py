"""Checks whether instances follow work that shifts between prefill and decode, and stay if it does not shift."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fairlead.instances import Role
from fairlead_simulator.experiments.arrival_plans import Workload
from fairlead_simulator.experiments.cells import Cell
from fairlead_simulator.simulation.autoscaling import SimulatedScaling
from fairlead_simulator.workloads.phases import DECODE_HEAVY, PREFILL_HEAVY, Phase
from reproductions.mooncake_rejection import BOTH
from reproductions.mooncake_runs import PREFILL_INSTANCES, requests_of
from reproductions.runs import percent, table
from reproductions.scaling_runs import AUTO, SPLIT, SPLIT_TARGETS, Scaled, cell, phased, run
from reproductions.sections import Context

ALLOWED_LOSS = 0.01
SETTLED_SECONDS = 60.0
DAY_SECONDS = 86_400.0

Split = tuple[int, int]
"""The numbers of instances that prefill and that decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A kind of work, the fixed splits that serve it, and the splits with which `Auto` begins."""

    name: str
    loaded: Workload
    rate: float
    fixed: Sequence[Split]
    begun: Sequence[Split]
    shifts: bool = False
    """Whether the work changes for so long that instances should follow it, and then return."""


def patterns(context: Context) -> list[Pattern]:
    """Return three kinds of work: shifting slowly, swinging fast, and Mooncake's trace."""
    seconds, cycles = (120.0, 1) if context.quick else (1200.0, 2)
    shifting = [replace(phase, seconds=seconds) for phase in (PREFILL_HEAVY, DECODE_HEAVY)]
    shift = phased(*shifting, cycles=cycles)
    swing = phased(*(replace(phase, seconds=60.0) for phase in shifting), cycles=2 if context.quick else 20)
    bursts = requests_of(context, 12_000)
    halves = [(prefill, 8 - prefill) for prefill in ((3, 4) if context.quick else (2, 3, 4, 5, 6))]
    whole = PREFILL_INSTANCES + BOTH.decode_instances
    near = [(prefill, whole - prefill) for prefill in ((7, 8) if context.quick else (6, 7, 8, 9))]
    return [
        Pattern(
            name=f"shifts every {seconds / 60:.0f} min", loaded=shift, rate=shift.native_rate, fixed=halves, begun=[(4, 4)], shifts=True
        ),
        Pattern(name="swings every minute", loaded=swing, rate=swing.native_rate, fixed=halves[1:4], begun=[(4, 4)]),
        Pattern(name=f"Mooncake's, {BOTH.rates[1]:g}/s", loaded=bursts, rate=BOTH.rates[1], fixed=near, begun=near[:3]),
    ]


def describe(context: Context) -> str:
    """Run the kinds of work and return the text about them."""
    of = patterns(context)
    cells = [
        (one.loaded, _cell(one, split, rules))
        for one in of
        for rules, splits in ((SimulatedScaling(), one.fixed), (AUTO, one.begun))
        for split in splits
    ]
    results = iter(run(context, cells))
    rows, broken = [], []
    for one in of:
        fixed = {split: next(results) for split in one.fixed}
        best = max(fixed, key=lambda split: fixed[split].attainment())
        told = ", ".join(f"{_words(split)}: {percent(ran.attainment())}" for split, ran in fixed.items())
        for begun in one.begun:
            auto = next(results)
            rows.append(_row(one, told, begun, auto))
            if auto.attainment() < fixed[best].attainment() - ALLOWED_LOSS or (moves_taken_back(auto, begun) and not one.shifts):
                broken.append(_broken(one, begun, auto, best, fixed[best]))
            told = "as above"
    heading = [
        "work",
        "attainment of fixed ratios (P+D)",
        "`Auto`, from",
        "moves",
        "least time between two",
        "failed requests",
    ]
    limits = f"{SPLIT_TARGETS.ttft_seconds:g} s and {1e3 * (SPLIT_TARGETS.tpot_seconds or 0):g} ms a token"
    verdict = "**kept** in every run" if not broken else f"**not kept** in {len(broken)} of {len(rows)} runs: {'; '.join(broken)}"
    return f"""### Instances that follow the work

**Promise**: with `ratio.mode: Auto` attainment over the whole run is at least that of the best fixed ratio less one point; at most one instance moves in a
cooldown ({AUTO.ratio.cooldown_seconds:.0f} s); loads that swing against each other, as Mooncake's do under early rejection, move nothing to and fro.

**Run.** Instances of `{SPLIT.preset.name}`, policy `{SPLIT.policy}`, early rejection `{SPLIT.early_rejection}`, in time within {limits}.
Work for prefill ({_work(PREFILL_HEAVY)}) and work for decode ({_work(DECODE_HEAVY)}) in turn, tokens in the median; and
the conversations of the section on Mooncake at a rate that overloads both sides. Moves are role flips: the instance
drains first.

{table(heading, rows)}

The promise is {verdict}."""


def _cell(one: Pattern, split: Split, rules: SimulatedScaling) -> Cell:
    made = cell(
        one.loaded,
        replace(SPLIT, prefill_instances=split[0], decode_instances=split[1]),
        rules,
        f"{one.name}, {_words(split)}",
        SPLIT_TARGETS,
    )
    return replace(made, plan=replace(made.plan, rate=one.rate))


def _row(one: Pattern, told: str, begun: Split, auto: Scaled) -> list[str]:
    gap = auto.least_gap
    return [
        one.name,
        told,
        f"{_words(begun)}: {percent(auto.attainment())}",
        str(len(auto.sizes(Role.PREFILL))),
        "–" if gap is None else f"{gap:.0f} s",
        str(auto.failed),
    ]


def _broken(one: Pattern, begun: Split, auto: Scaled, best: Split, fixed: Scaled) -> str:
    """Return the text about the attainment that a run lost against the best fixed ratio, and the loss after its last
    move.
    """
    settled = max((change.at + SETTLED_SECONDS for change in auto.sizes(Role.PREFILL)), default=0.0)
    lost, late = _points(fixed.attainment(), auto.attainment()), _points(fixed.attainment(settled), auto.attainment(settled))
    return (
        f"{one.name} from {_words(begun)}, {abs(lost):.1f} points {'less' if lost > 0 else 'more'} than {_words(best)} "
        f"over {auto.last_arrival / 60:.0f} min, "
        f"{abs(late):.1f} points {'less' if late > 0 else 'more'} from {settled:.0f} s on"
        f"{'' if one.shifts else _to_and_fro(auto, begun)}"
    )


def moves_taken_back(auto: Scaled, begun: Split) -> int:
    """Return the number of moves whose direction is opposite to that of the move before."""
    numbers = [begun[0], *(change.replicas for change in auto.sizes(Role.PREFILL))]
    steps = [later - earlier for earlier, later in pairwise(numbers)]
    return sum(one * other < 0 for one, other in pairwise(steps))


def _to_and_fro(auto: Scaled, begun: Split) -> str:
    back = moves_taken_back(auto, begun)
    numbers = (begun[0], *(change.replicas for change in auto.sizes(Role.PREFILL)))
    return f", {back} move{'s' if back > 1 else ''} taken back (prefill instances: {', '.join(map(str, numbers))})" if back else ""


def _points(this: float, that: float) -> float:
    """Return the difference of two shares in points, after each is rounded as it is printed."""
    return round(100 * this, 1) - round(100 * that, 1)


def _words(split: Split) -> str:
    return f"{split[0]}+{split[1]}"


def _work(phase: Phase) -> str:
    return f"{phase.input_median:,.0f} + {phase.output_median:,.0f} tokens, {phase.requests_per_second:g}/s"


def describe_rest(context: Context) -> str:
    """Run a constant load and return the text about it."""
    seconds = 200.0 if context.quick else DAY_SECONDS
    rows = []
    loads = {"about two thirds of what four can do": 0.35, "more than four can do": 0.65}
    cells = []
    for name, rate in loads.items():
        loaded = phased(Phase(seconds=seconds, requests_per_second=rate, input_median=24_000, output_median=3000))
        pool = replace(SPLIT, prefill_instances=2, decode_instances=2)
        cells.append((loaded, cell(loaded, pool, AUTO, f"{name}, from 2+2", SPLIT_TARGETS)))
    for one in run(context, cells):
        moves = one.sizes(Role.PREFILL)
        rows.append([one.label, percent(one.attainment()), str(len(moves)), "–" if not moves else f"{moves[-1].at:,.0f} s"])
    return f"""### At rest under constant load

**Promise**: nothing moves to and fro while the load is the same. **Run.** Four instances as above under {seconds / 3600:.2g} simulated hours
of Poisson arrivals at one rate (24,000 + 3,000 tokens in the median).

{table(["load", "in time", "moves", "the last at"], rows)}"""
