"""Gives routers a wrong prefill speed, and compares policies and early rejection with those of the true speed."""

from dataclasses import dataclass

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, ideal_hits
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from reproductions.runs import percent, run, table, workload
from reproductions.sections import Context, Section

PRESET = preset("dualmap-910b4-qwen7b")
INSTANCES = 8
REQUESTS, WARMUP = 1500, 200
SETTINGS = ((0.5, "Load"), (0.75, "Disabled"))
"""Pairs of a load and a mode of early rejection.

At half load, a wrong speed shows in refusals. Near saturation it shows in queues.
"""
POLICIES = ("fairlead", "preble", "min-ttft", "ear", "dualmap", "mooncake", "lmetric", "heimdall", "cache-affinity", "least-loaded")
BELIEFS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Assumed speeds, as multiples of the true speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A policy at a load of the pool, with an assumed speed."""

    load: float
    mode: str
    policy: str
    belief: float


Runs = dict[Trial, CellResult]


def write(context: Context) -> str:
    """Run the trials and return the section's text."""
    policies, settings = (POLICIES[:1], SETTINGS[:1]) if context.quick else (context.policies or POLICIES, SETTINGS)
    trials = [
        Trial(load=load, mode=mode, policy=policy, belief=belief) for load, mode in settings for policy in policies for belief in BELIEFS
    ]
    requests, warmup = (60, 20) if context.quick else (REQUESTS, WARMUP)
    loaded = workload("conversation", requests=requests, max_input=PRESET.max_input_tokens, recorded=context.conversation)
    ideal, _ = ideal_hits(loaded)
    saturation = estimate_saturation(loaded, ideal, PRESET, INSTANCES, 0, 0).requests_per_second
    speed = believed_speed(loaded, ideal, PRESET)
    runs: Runs = dict(zip(trials, run(context, "beliefs", loaded, [_cell(one, saturation, speed, warmup) for one in trials]), strict=True))
    return "\n\n".join((_setting(context, saturation, speed), _table(runs), _verdict(runs)))


def _cell(trial: Trial, saturation: float, speed: float, warmup: int) -> Cell:
    targets = Targets(ttft_seconds=PRESET.slo_ttft_seconds, tpot_seconds=PRESET.slo_tpot_seconds)
    spec = SimulatedPool(
        preset=PRESET,
        instances=INSTANCES,
        policy=trial.policy,
        early_rejection=trial.mode,
        prefill_tokens_per_second=speed * trial.belief,
        slo_ttft_seconds=PRESET.slo_ttft_seconds,
        slo_tpot_seconds=PRESET.slo_tpot_seconds,
    )
    label = f"{trial.policy}, {trial.mode}, told {trial.belief:g}x"
    return Cell(label=label, spec=spec, plan=ArrivalPlan(rate=trial.load * saturation, warmup=warmup), targets=targets)


def _setting(context: Context, saturation: float, speed: float) -> str:
    trace = "The recorded trace" if context.conversation else "Generated conversations"
    return f"""A question of our own. A pool declares how fast its engines prefill, and most declare nothing or a number that is far off. What does that cost?

**What was run.** {trace}, {REQUESTS:,} requests of which the first {WARMUP} are not measured, {INSTANCES} instances of `{PRESET.name}` without
fetching, which learn decode times as a real pool does; saturation about {saturation:.2f} requests per second. The engines prefill {speed:,.0f} tokens/s,
and the router is told so many times as much. Each cell is the share of requests that met both targets, and in brackets what was refused. One seed."""


def _table(runs: Runs) -> str:
    lines = {(one.load, one.mode, one.policy): None for one in runs}
    rows = [
        (
            f"{load:g}x, {mode}, `{policy}`",
            *(_words(runs[Trial(load=load, mode=mode, policy=policy, belief=belief)]) for belief in BELIEFS),
        )
        for load, mode, policy in lines
    ]
    return table(["load, early rejection, policy", *(f"told {belief:g}x" for belief in BELIEFS)], rows)


def _words(result: CellResult) -> str:
    return f"{percent(result.figures.attainment)} ({percent(result.figures.rejected_share)})"


def _verdict(runs: Runs) -> str:
    lost = {
        trial: runs[Trial(load=trial.load, mode=trial.mode, policy=trial.policy, belief=1.0)].figures.attainment - result.figures.attainment
        for trial, result in runs.items()
    }
    worst = max(lost, key=lambda trial: lost[trial])
    beyond = sum(loss > 0.01 for loss in lost.values())
    return (
        f"Against being told the truth, {beyond} of {len(lost) - len(lost) // len(BELIEFS)} cells lose more than a point. "
        f"The most is {100 * lost[worst]:.1f} points (`{worst.policy}`, {worst.mode}, {worst.load:g}x, told {worst.belief:g}x)."
    )


SECTION = Section(name="beliefs", title="Told a wrong speed", write=write)
