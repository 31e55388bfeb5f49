"""Is `fairlead` the best policy? All policies on conversation and tool-agent workloads, from half to one and
a half times saturation.
"""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.figure import Figure

from reproductions.default_policy_cells import (
    OURS,
    PRESET,
    SLOWER,
    TIE,
    Outcomes,
    Setting,
    Verdict,
    goodput,
    measure,
    policies,
    requests_of,
    verdict,
)
from reproductions.runs import percent, table
from reproductions.sections import IMAGES, Context, Section

SHOWN = {"min-ttft": "#d55e00", "ear": "#009e73", "mooncake": "#cc79a7", "dualmap": "#e69f00", "preble": "#56b4e9"}
"""The baselines that have their own colours in the plot; all others are grey."""
MARKERS = {"min-ttft": "s", "ear": "D", "mooncake": "^", "dualmap": "v", "preble": "P"}
PLOT = "default-policy.png"


def write(context: Context) -> str:
    """Run all cells and return the section's text."""
    found = measure(context)
    _plot(found).savefig(context.image(PLOT), dpi=110, metadata={"Software": None})
    return describe(context, found)


def describe(context: Context, found: Mapping[Setting, Outcomes]) -> str:
    """Return the section's text."""
    rates = sorted({rate for outcomes in found.values() for rate, _ in outcomes})
    verdicts = {setting: [verdict(outcomes, rate) for rate in rates] for setting, outcomes in found.items()}
    every = [one for of_setting in verdicts.values() for one in of_setting]
    eight, more = (requests_of(context, instances) for instances in sorted({setting.instances for setting in found}))
    heading = ["", *(f"{rate:g}×" for rate in rates), "goodput"]
    seeds = "one seed" if context.seeds == 1 else f"{context.seeds} seeds"
    full = "\n\n".join(f"**{str(setting).capitalize()}**\n\n{_full_table(outcomes, rates)}" for setting, outcomes in found.items())
    return f"""
Every policy with its default parameters, on Mooncake's conversation trace and on generated tool-agent workloads ({eight:,} requests for the
smaller pool, {more:,} for the larger; 500 of them warm-up; prompts of {PRESET.max_input_tokens:,} tokens and more dropped), preset
`{PRESET.name}`, TTFT SLO {PRESET.slo_ttft_seconds:g} s, {seeds}, rates as multiples of the estimated saturation. Engines fetch
nothing from each other, and the router finds out what decode steps take, as in a real pool.

Per rate: what `fairlead` serves in time, in % of all that arrived, against the best of the {len(policies()) - 1} others (which is named), and
the P90 TTFT of served requests of both. Goodput is the largest tested rate with 90 % in time.

{table(heading, _summary(found, verdicts))}

![Attainment against rate, per workload, pool size and early rejection]({IMAGES}/{PLOT})

{_conclusion(found, verdicts, every, rates)}

{_past_saturation(verdicts, rates)}

<details><summary>All policies</summary>

Attainment in %, P90 TTFT in seconds in brackets.

{full}

</details>
"""


def _summary(found: Mapping[Setting, Outcomes], verdicts: Mapping[Setting, Sequence[Verdict]]) -> Iterator[Sequence[str]]:
    for setting, outcomes in found.items():
        cells = [
            f"**{100 * one.ours.attainment:.1f}** / {100 * one.theirs.attainment:.1f} {one.best}<br>{one.ours.ttft_p90:.2f} s / {one.best_p90:.2f} s"
            for one in verdicts[setting]
        ]
        others = max(goodput(outcomes, policy) for policy in policies() if policy != OURS)
        yield [str(setting), *cells, f"**{goodput(outcomes, OURS):g}×** / {others:g}×"]


def _conclusion(
    found: Mapping[Setting, Outcomes], verdicts: Mapping[Setting, Sequence[Verdict]], every: Sequence[Verdict], rates: Sequence[float]
) -> str:
    most = sum(one.most_in_time for one in every)
    fast = sum(one.fast_enough for one in every)
    ahead = sum(
        goodput(outcomes, OURS) >= max(goodput(outcomes, policy) for policy in policies() if policy != OURS) for outcomes in found.values()
    )
    ratios = [
        one.ours.attainment / max(one.theirs.attainment, 1e-9)
        for setting, of_setting in verdicts.items()
        for rate, one in zip(rates, of_setting, strict=True)
        if setting.mode == "Disabled" and rate == 1.25
    ]
    least = f"at least {min(ratios):.1f} times the best other's" if ratios else "not measured"
    lines = [
        f"- No other policy has more in time in {most} of {len(every)} cells (ties within {100 * TIE:.1g} points).",
        f"- The P90 TTFT of served requests is at most {100 * (SLOWER - 1):.0f} % above the best other's in {fast} of {len(every)} cells.",
        f"- Goodput is at least the best other's in {ahead} of {len(found)} settings.",
        f"- At 1.25× without early rejection, its attainment is {least}.",
    ]
    lost = [
        f"{setting} at {rate:g}×: {percent(one.ours.attainment)} ({one.ours.ttft_p90:.2f} s) against {percent(one.theirs.attainment)} of {one.best} "
        f"({one.best_p90:.2f} s)"
        for setting, of_setting in verdicts.items()
        for rate, one in zip(rates, of_setting, strict=True)
        if not (one.most_in_time and one.fast_enough)
    ]
    return "\n".join(lines + [f"- Not won: {line}." for line in lost])


def _past_saturation(verdicts: Mapping[Setting, Sequence[Verdict]], rates: Sequence[float]) -> str:
    """Return the text about the causes of `fairlead`'s lead past saturation, or a sentence that it leads in no cell."""
    past = [one for of_setting in verdicts.values() for rate, one in zip(rates, of_setting, strict=True) if rate > 1]
    led = sum(one.leads for one in past)
    if not led:
        return "The baselines send their queues by arrival, as their papers do. Past saturation `fairlead` leads in no cell."
    where = "" if led == len(past) else f" (in {led} of {len(past)} cells)"
    return f"""The baselines send their queues by arrival, as their papers do; `fairlead`'s lead past saturation{where}
comes from its queue discipline, and other policies gain most of it when given the same one ([experiments.md](experiments.md) has the figures). It is
paid for with long prompts: past saturation those that would cost others their deadline wait, and without early rejection may wait until they are refused."""


def _full_table(outcomes: Outcomes, rates: Sequence[float]) -> str:
    rows = [
        [
            policy,
            *(f"{100 * outcomes[rate, policy].attainment:.1f} ({outcomes[rate, policy].ttft_p90:.2f})" for rate in rates),
            f"{goodput(outcomes, policy):g}×",
        ]
        for policy in policies()
    ]
    return table(["policy", *(f"{rate:g}×" for rate in rates), "goodput"], rows)


def _plot(found: Mapping[Setting, Outcomes]) -> Figure:
    figure = Figure(figsize=(13, 6), layout="constrained")
    panels = figure.subplots(2, len(found) // 2, sharex=True, sharey=True)
    for axes, (setting, outcomes) in zip(panels.T.flat, found.items(), strict=True):
        for policy in reversed(policies()):
            points = sorted((rate, outcome.attainment) for (rate, one), outcome in outcomes.items() if one == policy)
            colour = "#0072b2" if policy == OURS else SHOWN.get(policy, "#bbbbbb")
            label = policy if policy == OURS or policy in SHOWN else ("others" if policy == policies()[1] else None)
            axes.plot(
                [rate for rate, _ in points],
                [100 * share for _, share in points],
                color=colour,
                marker="o" if policy == OURS else MARKERS.get(policy, ""),
                markersize=4,
                linewidth=2.4 if policy == OURS else 1.0,
                label=label,
            )
        axes.axhline(90, color="grey", linewidth=0.7, linestyle=":")
        axes.set_title(str(setting), fontsize=8)
        axes.set_ylim(-2, 102)
    for axes in panels[-1]:
        axes.set_xlabel("rate / saturation")
    for axes in panels[:, 0]:
        axes.set_ylabel("in time, % of all arrived")
    panels[0][0].legend(fontsize=7, loc="lower left")
    return figure


SECTION = Section(name="default_policy", title="The default policy against all others", write=write)
