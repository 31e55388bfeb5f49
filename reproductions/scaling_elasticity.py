"""Checks whether a pool in mode SLO grows out of an overload in time, and shrinks without missing its targets."""

from dataclasses import replace

from fairlead.instances import Role
from fairlead.scaling.specs import ScalingMode, ScalingSpec
from fairlead_simulator.simulation.autoscaling import SimulatedScaling
from fairlead_simulator.workloads.phases import Phase
from reproductions.runs import percent, table
from reproductions.scaling_runs import WHOLE, WHOLE_TARGETS, Scaled, cell, phased, run
from reproductions.sections import Context

GOAL = 0.9
RECOVERY_SECONDS = 60.0


def describe(context: Context) -> str:
    """Run the pools and return the text about them."""
    startup = SimulatedScaling().startup_seconds
    calm = Phase(seconds=60.0 if context.quick else 300.0, requests_per_second=3.0, input_median=5000, output_median=200)
    rush, night = (
        replace(calm, seconds=2 * calm.seconds, requests_per_second=7.0),
        replace(calm, seconds=3 * calm.seconds, requests_per_second=2.0),
    )
    begun, over = calm.seconds, calm.seconds + rush.seconds
    rules = {"Fixed": SimulatedScaling(), "SLO": SimulatedScaling(scaling=ScalingSpec(mode=ScalingMode.SLO), max_replicas=16)}
    loads = [phased(calm, rush, night, seed=seed) for seed in range(context.seeds)]
    cells = [
        (one, cell(one, WHOLE, rules[mode], mode, WHOLE_TARGETS)) for mode, one in [("Fixed", loads[0]), *(("SLO", one) for one in loads)]
    ]
    rows, kept = [], []
    for one in run(context, cells):
        grown = [change.at + startup for change in one.sizes(Role.BOTH) if begun < change.at < over and change.replicas > WHOLE.instances]
        recovered = None if not grown else recovered_after(one, grown[0], over)
        at_night = [change.at for change in one.sizes(Role.BOTH) if change.at >= over]
        least = min((one.attainment(at, at + RECOVERY_SECONDS) for at in at_night), default=one.attainment(over))
        if one.label == "SLO":
            kept.append(recovered is not None and recovered <= RECOVERY_SECONDS and least >= GOAL)
        rows.append(
            [
                f"`{one.label}`",
                percent(one.attainment(begun, grown[0] if grown else over)),
                "–" if not grown else f"{grown[0] - begun:.0f} s",
                "–" if recovered is None else f"{recovered:.0f} s",
                percent(one.attainment(grown[0] + RECOVERY_SECONDS, over)) if grown else "–",
                str(max((change.replicas for change in one.sizes(Role.BOTH)), default=WHOLE.instances)),
                percent(least),
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

{table(heading, rows)}

The promise is {"**kept** for every seed" if all(kept) else f"**not kept** for {kept.count(False)} of {len(kept)} seeds"}."""


def recovered_after(one: Scaled, begin: float, end: float) -> float | None:
    """Return the seconds from `begin` until the pool meets the goal in every later bin of 10 s.

    Return None if it misses the goal in the last bin.
    """
    recovered: float | None = None
    at = begin
    while at < end:
        if one.attainment(at, min(at + 10, end)) < GOAL:
            recovered = None
        elif recovered is None:
            recovered = at - begin
        at += 10
    return recovered
