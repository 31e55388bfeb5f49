"""Pools that scale themselves: out of an overload, along with shifting work, and at rest when nothing changes."""

from dataclasses import replace

from benchmarks.reproductions.mooncake_rejection import BOTH
from benchmarks.reproductions.mooncake_runs import PREFILL_INSTANCES, requests_of
from benchmarks.reproductions.runs import percent, table, workload
from benchmarks.reproductions.scaling_runs import SPLIT, SPLIT_TARGETS, WHOLE, Scaled, cell, phased, run
from benchmarks.reproductions.sections import Context, Section

from fairlead.instances import Role
from fairlead.scaling.specs import RatioMode, RatioSpec, ScalingMode, ScalingSpec
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.simulation.autoscaling import SimulatedScaling
from fairlead_simulator.simulation.timeline import ScaleTo, Victims
from fairlead_simulator.workloads.phases import DECODE_HEAVY, PREFILL_HEAVY, Phase

GOAL = 0.9
RECOVERY_SECONDS = 60.0
WHOLE_TARGETS = Targets(ttft_seconds=5.0)
AUTO = SimulatedScaling(ratio=RatioSpec(mode=RatioMode.AUTO))
DAY_SECONDS = 86_400.0


def write(context: Context) -> str:
    """Run and describe."""
    return "\n\n".join((INTRODUCTION, _elasticity(context), _ratio(context), _rest(context), _victims(context)))


INTRODUCTION = """Not a paper's figures but Fairlead's own promises: `spec.scaling` and `spec.ratio`, decided by `fairlead.scaling` as in the operator
and asked every 5 s, on simulated pools whose instances start late and drain before they go ([simulator.md](simulator.md))."""


def _elasticity(context: Context) -> str:
    startup = SimulatedScaling().startup_seconds
    calm = Phase(seconds=60.0 if context.quick else 300.0, requests_per_second=3.0, input_median=5000, output_median=200)
    rush, night = (
        replace(calm, seconds=2 * calm.seconds, requests_per_second=7.0),
        replace(calm, seconds=3 * calm.seconds, requests_per_second=2.0),
    )
    begun, over = calm.seconds, calm.seconds + rush.seconds
    rules = {"Fixed": SimulatedScaling(), "SLO": SimulatedScaling(scaling=ScalingSpec(mode=ScalingMode.SLO), max_replicas=16)}
    loads = [phased(calm, rush, night, seed=seed) for seed in range(context.seeds)]
    cells = [(one, cell(one, WHOLE, rule, mode, WHOLE_TARGETS)) for mode, rule in rules.items() for one in loads]
    rows = []
    for one in run(context, cells):
        grown = [change.at + startup for change in one.sizes(Role.BOTH) if begun < change.at < over and change.replicas > WHOLE.instances]
        recovered = None if not grown else _recovered_after(one, grown[0], over)
        shrunk = [change.at for change in one.sizes(Role.BOTH) if change.at >= over]
        rows.append(
            [
                f"`{one.label}`",
                percent(one.attainment(begun, grown[0] if grown else over)),
                "–" if not grown else f"{grown[0] - begun:.0f} s",
                "–" if recovered is None else f"{recovered:.0f} s",
                percent(one.attainment(grown[0] + RECOVERY_SECONDS, over)) if grown else "–",
                str(max((change.replicas for change in one.sizes(Role.BOTH)), default=WHOLE.instances)),
                percent(min((one.attainment(at, at + RECOVERY_SECONDS) for at in shrunk), default=one.attainment(over))),
                str(one.changes[-1].replicas if one.changes else WHOLE.instances),
            ]
        )
    heading = [
        "mode",
        "overload, until new instances serve",
        "these serve after",
        f"above {GOAL:.0%} again after",
        f"in time from {RECOVERY_SECONDS:.0f} s after",
        "most",
        "least in a minute after shrinking",
        "at the end",
    ]
    ttft, rates = (
        f"{WHOLE_TARGETS.ttft_seconds:g} s",
        [f"{one.seconds:.0f} s at {one.requests_per_second:g}/s" for one in (calm, rush, night)],
    )
    return f"""### Out of an overload, and back

**Promise** (as DualMap, A.2.3, for a pool scaled by hand): attainment is above {percent(GOAL)} again within {RECOVERY_SECONDS:.0f} s after scaling out of an
overload, and stays at {GOAL:.0%} or more while a falling load scales the pool in.

**Run.** {WHOLE.instances} instances of `{WHOLE.preset.name}`, policy `{WHOLE.policy}`, TTFT below {ttft}; prompts of 5,000 tokens in the median
with nothing shared. {rates[0]}, {rates[1]} (near twice what {WHOLE.instances} instances can do), {rates[2]}.
New instances serve {startup:.0f} s after they are made. A row per seed; recovery is counted in bins of 10 s, from when the first new instance
serves to the first bin after which none of the rush is below {GOAL:.0%}.

{table(heading, rows)}"""


def _recovered_after(one: Scaled, begin: float, end: float) -> float | None:
    """Seconds from `begin` until every later bin of 10 s meets the goal; None when the last one does not."""
    recovered: float | None = None
    at = begin
    while at < end:
        if one.attainment(at, min(at + 10, end)) < GOAL:
            recovered = None
        elif recovered is None:
            recovered = at - begin
        at += 10
    return recovered


def _ratio(context: Context) -> str:
    seconds, cycles = (120.0, 1) if context.quick else (1200.0, 2)
    shifting = [replace(phase, seconds=seconds) for phase in (PREFILL_HEAVY, DECODE_HEAVY)]
    swinging = [replace(phase, seconds=60.0) for phase in shifting]
    shift, swing = phased(*shifting, cycles=cycles), phased(*swinging, cycles=2 if context.quick else 20)
    bursts = requests_of(context, 12_000)
    splits = [(prefill, 8 - prefill) for prefill in ((3, 4) if context.quick else (2, 3, 4, 5, 6))]
    near = [(PREFILL_INSTANCES + more, BOTH.decode_instances - more) for more in (-1, 0, 1)]
    patterns = [
        (f"shifts every {seconds / 60:.0f} min", shift, shift.native_rate, splits, (4, 4)),
        ("swings every minute", swing, swing.native_rate, splits, (4, 4)),
        (f"Mooncake's, {BOTH.rates[1]:g}/s", bursts, BOTH.rates[1], near, (PREFILL_INSTANCES, BOTH.decode_instances)),
    ]
    cells = []
    for name, loaded, rate, fixed, begin in patterns:
        for rules, pools in ((SimulatedScaling(), fixed), (AUTO, [begin])):
            for prefill, decode in pools:
                made = cell(
                    loaded,
                    replace(SPLIT, prefill_instances=prefill, decode_instances=decode),
                    rules,
                    f"{name}, {prefill}P+{decode}D",
                    SPLIT_TARGETS,
                )
                cells.append((loaded, replace(made, plan=replace(made.plan, rate=rate))))
    results = run(context, cells)
    rows, verdicts, position = [], [], 0
    for name, _, _, fixed, (prefill, decode) in patterns:
        found, auto = results[position : position + len(fixed)], results[position + len(fixed)]
        position += len(fixed) + 1
        best = max(range(len(fixed)), key=lambda index: found[index].attainment())
        gap = auto.least_gap
        rows.append(
            [
                name,
                ", ".join(f"{one[0]}+{one[1]}: {percent(ran.attainment())}" for one, ran in zip(fixed, found, strict=True)),
                f"{prefill}+{decode}: {percent(auto.attainment())}",
                str(len(auto.sizes(Role.PREFILL))),
                "–" if gap is None else f"{gap:.0f} s",
                str(auto.failed),
            ]
        )
        verdicts.append(auto.attainment() >= found[best].attainment() - 0.01)
    held = (
        "**kept** in every pattern"
        if all(verdicts)
        else f"**not kept** in {', '.join(row[0] for row, kept in zip(rows, verdicts, strict=True) if not kept)}"
    )
    heading = ["work", "attainment of fixed ratios (P+D)", "`Auto`, from", "moves", "least time between two", "failed requests"]
    limits = f"{SPLIT_TARGETS.ttft_seconds:g} s and {1e3 * (SPLIT_TARGETS.tpot_seconds or 0):g} ms a token"
    return f"""### Instances that follow the work

**Promise**: with `ratio.mode: Auto` attainment over the whole run is at least that of the best fixed ratio less one point; at most one instance moves in a
cooldown ({AUTO.ratio.cooldown_seconds:.0f} s); loads that swing against each other, as Mooncake's do under early rejection, move nothing to and fro.

**Run.** Instances of `{SPLIT.preset.name}`, policy `{SPLIT.policy}`, early rejection `{SPLIT.early_rejection}`, in time within {limits}.
Work for prefill ({_work(PREFILL_HEAVY)}) and work for decode ({_work(DECODE_HEAVY)}) in turn,
tokens in the median; and the conversations of the section on Mooncake at a rate that overloads both sides, where admission makes the loads
swing. Moves are role flips: the instance drains first.

{table(heading, rows)}

The promise is {held}. No fixed ratio suits both halves of work that shifts; `Auto` is late by its three periods and a
cooldown for each further instance.{"" if all(verdicts) else NOT_KEPT}"""


NOT_KEPT = """ Where more work arrives than all instances together can do and early rejection holds prefill load down, `Auto` finds no
move worth it: it judges by the work that arrives, not by what was admitted, and so keeps the ratio it was given."""


def _work(phase: Phase) -> str:
    return f"{phase.input_median:,.0f} + {phase.output_median:,.0f} tokens, {phase.requests_per_second:g}/s"


def _rest(context: Context) -> str:
    seconds = 200.0 if context.quick else DAY_SECONDS
    rows = []
    loads = {"about two thirds of what four can do": 0.35, "more than four can do": 0.65}
    cells = []
    for name, rate in loads.items():
        loaded = phased(Phase(seconds=seconds, requests_per_second=rate, input_median=24_000, output_median=3000))
        for prefill in (2, 3):
            pool = replace(SPLIT, prefill_instances=prefill, decode_instances=4 - prefill)
            cells.append((loaded, cell(loaded, pool, AUTO, f"{name}, from {prefill}+{4 - prefill}", SPLIT_TARGETS)))
    for one in run(context, cells):
        moves = one.sizes(Role.PREFILL)
        rows.append([one.label, percent(one.attainment()), str(len(moves)), "–" if not moves else f"{moves[-1].at:,.0f} s"])
    return f"""### At rest under constant load

**Promise**: nothing moves to and fro while the load is the same. **Run.** Four instances as above under {seconds / 3600:.2g} simulated hours
of Poisson arrivals at one rate (24,000 + 3,000 tokens in the median), begun with two ratios.

{table(["load", "in time", "moves", "the last at"], rows)}"""


def _victims(context: Context) -> str:
    count = 300 if context.quick else 6000
    loaded = workload("conversation", requests=count, max_input=WHOLE.preset.max_input_tokens, recorded=context.conversation)
    middle = loaded.seconds[len(loaded.seconds) // 2]
    rows = []
    chosen: tuple[Victims, ...] = ("cheapest", "newest")
    cells = [
        (
            loaded,
            cell(
                loaded,
                replace(WHOLE, instances=8),
                None,
                victims,
                WHOLE_TARGETS,
                timeline=(ScaleTo(at=middle, instances=6, victims=victims),),
            ),
        )
        for victims in chosen
    ]
    for one in run(context, cells):
        before, after = one.hit_rate(middle - 300, middle), one.hit_rate(middle, middle + 300)
        rows.append(
            [
                one.label,
                percent(before),
                percent(after),
                f"{after / before:.0%}" if before else "–",
                percent(one.attainment(middle, middle + 300)),
            ]
        )
    return f"""### Which instances go

**Run.** Conversations on 8 instances of `{WHOLE.preset.name}` (policy `{WHOLE.policy}`) that become 6 halfway: those whose sessions, caches and requests
are worth least, as the operator chooses, or the newest, as a ReplicaSet would. Hit rates of the prompts of five minutes.

{table(["goes", "hit rate before", "after", "of before", "in time after"], rows)}"""


SECTION = Section(name="scaling", title="Scaling: replicas by the SLO, and the ratio of prefill to decode", write=write)
