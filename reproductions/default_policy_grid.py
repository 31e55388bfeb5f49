"""Where is `fairlead` not the best? By TTFT and by goodput, on long and impossible prompts, with three engines and
SLOs.

The whole grid has 144 settings and takes hours. `SPANNING`, which the page shows, takes minutes.
"""

from collections.abc import Iterator, Sequence

from reproductions.default_policy_grid_cells import (
    LONG_MEDIAN,
    POSSIBLE,
    REQUESTS,
    RIVALS,
    SPANNING,
    WHOLE,
    Setting,
    cells_of,
    measure,
    settings_of,
)
from reproductions.default_policy_grid_overview import by_axis, plot
from reproductions.default_policy_grid_verdicts import CALM, LONGEST_WAIT, Verdict, mean, verdicts
from reproductions.runs import GOODPUT_ATTAINMENT, percent, table
from reproductions.sections import IMAGES, Context, Section

PLOT = "default-policy-grid.png"
FAR = 0.05
"""The difference of goodput (0-1) from which on it counts as far ahead."""


def write(context: Context) -> str:
    """Run the requested cells and return the section's text."""
    settings = settings_of(context)
    found = verdicts(measure(context, cells_of(context, settings)))
    if len(settings) > len(SPANNING):
        plot(found).savefig(context.image(PLOT), dpi=80, metadata={"Software": None})
    return describe(context, settings, found)


def describe(context: Context, settings: Sequence[Setting], found: Sequence[Verdict]) -> str:
    """Return the section's text: each setting's table if there are few settings, otherwise an overview."""
    many = len(settings) > len(SPANNING)
    chosen = f"{len(settings)} of the {len(WHOLE)} settings" if len(settings) < len(WHOLE) else f"the {len(WHOLE)} settings"
    others = " (`--whole`,\nhours; `--only TEXT` runs some)" if context.whole else " (`--whole` runs them all,\n`--only TEXT` some)"
    return f"""
`fairlead` with its default parameters against {", ".join(f"`{name}`" for name in RIVALS)}, in {chosen} of the grid
two workloads × two mixes of prompts × SLO 2, 5, 10 s × three presets × 8 and 32 instances × early rejection off and predicted{others}.
Mix `long`: a median opening prompt of {LONG_MEDIAN:,.0f} tokens, but none that alone takes more than {POSSIBLE:g} of the SLO;
`impossible`: the generator's own prompts as long as the engine takes them, some of which cannot be in time on an idle instance.
{REQUESTS[8]:,} requests for 8 instances, {REQUESTS[32]:,} for 32; {_seeds(context)}.

*In time*: first token within the SLO, in % of all that arrived. *Goodput*: the same, and each further token within the preset's TPOT SLO in the mean.
The best other is that of each cell, by each target: no single policy has what stands there. *Ahead* is who has more than half a point more.

{_conclusion(found)}

{_at_a_glance(found) if many else _each(settings, found)}

{_why(found)}
"""


def _each(settings: Sequence[Setting], found: Sequence[Verdict]) -> str:
    heading = ["", "in time: `fairlead` / best other", "goodput: `fairlead` / best other", "P99 of served", "refused"]
    tables = [f"**{setting}**\n\n{table(heading, (_line(one) for one in found if one.setting == setting))}" for setting in settings]
    words = "P99 (of the TTFT of served requests) and refused: `fairlead` / the best other by goodput."
    return "\n\n".join(["\n".join(_lost(found)), words, *tables]).strip()


def _at_a_glance(found: Sequence[Verdict]) -> str:
    lost = list(_lost(found))
    named = "\n".join(["<details><summary>Each of them</summary>", "", *lost, "", "</details>"]) if lost else ""
    return f"""
{by_axis(found)}

Means over cells of the shares in %; then in how many cells nobody is ahead, and where up to {CALM:g}× the P99 is at most {LONGEST_WAIT:g} × the SLO.

![By how many points fairlead is ahead of the best other policy, in each cell]({IMAGES}/{PLOT})

{named}
""".strip()


def _seeds(context: Context) -> str:
    last = context.first_seed + context.seeds - 1
    return f"seed {last}" if context.seeds == 1 else f"seeds {context.first_seed} to {last}"


def _line(one: Verdict) -> Sequence[str]:
    ours, theirs = one.ours, one.by_goodput
    return [
        f"{one.rate:g}×",
        f"**{100 * ours.in_time:.1f}** / {100 * one.by_ttft.in_time:.1f} {one.first}",
        f"**{100 * ours.goodput:.1f}** / {100 * theirs.goodput:.1f} {one.best}",
        f"{ours.ttft_p99:.1f} / {theirs.ttft_p99:.1f} s",
        f"{100 * ours.refused:.1f} / {100 * theirs.refused:.1f} %",
    ]


def _conclusion(found: Sequence[Verdict]) -> str:
    calm = [one for one in found if one.rate <= CALM]
    behind = [mean(one.ttft_leads) for one in found if not one.most_in_time]
    far = f"; elsewhere it is behind by {100 * mean(behind):.1f} in the mean, {100 * max(behind):.1f} at most" if behind else ""
    return "\n".join(
        [
            f"- By TTFT no other policy is more than half a point ahead in {sum(one.most_in_time for one in found)} of {len(found)} cells{far}.",
            f"- By goodput in {sum(one.most_goodput for one in found)} of {len(found)}.",
            f"- Up to {CALM:g}× its P99 is at most {LONGEST_WAIT:g} × the SLO in {sum(one.nobody_starves for one in calm)} of {len(calm)}.",
        ]
    )


def _why(found: Sequence[Verdict]) -> str:
    """Return the reasons for lost cells that the figures show, such as the goodput gained for lost first tokens."""
    told: list[str] = []
    lost = [one for one in found if not one.most_in_time]
    if lost:
        paid = sum(one.ours.goodput - one.by_ttft.goodput > FAR for one in lost)
        told.append(f"""In {paid} of the {len(lost)} cells that are lost by first tokens it has over {100 * FAR:.0f} points more goodput than who leads there.
Where prefills and decodes together need more time than there is (below 1× too, if much decodes), no policy keeps both
targets of all: rests between prefills let some first tokens be late, so that answers keep their pace.""")
    starved = [one for one in found if not one.nobody_starves]
    if starved:
        alone = sum(one.setting.mix == "impossible" for one in starved)
        told.append(
            f"A long P99 is of late prompts, which wait for time to spare; in {alone} of these {len(starved)} cells some cannot be in time even alone."
        )
    beyond = sum(one.rate > 1 and max(one.ours.goodput, one.by_goodput.goodput) >= GOODPUT_ATTAINMENT for one in found)
    told.append(
        "The estimated saturation is that of all prompts served whole"
        + (
            f"; who lets long ones wait or refuses them has {100 * GOODPUT_ATTAINMENT:.0f} % of goodput beyond it in {beyond} of {len(found)} cells."
            if beyond
            else ", which no policy reaches here."
        )
    )
    return "\n".join(told)


def _lost(found: Sequence[Verdict]) -> Iterator[str]:
    for one in found:
        place = f"{one.setting}, {one.rate:g}×"
        if not one.most_in_time:
            figures = f"{percent(one.ours.in_time)} against {percent(one.by_ttft.in_time)} of `{one.first}`"
            goodputs = f"goodput {percent(one.ours.goodput)} against {percent(one.by_ttft.goodput)}"
            yield f"- Lost by TTFT: {place}: {figures}{_spread(one.ttft_leads)}; {goodputs}."
        if not one.most_goodput:
            figures = f"{percent(one.ours.goodput)} against {percent(one.by_goodput.goodput)} of `{one.best}`"
            yield f"- Lost by goodput: {place}: {figures}{_spread(one.goodput_leads)}."
        if not one.nobody_starves:
            yield f"- Longest waits: {place}: P99 {one.ours.ttft_p99:.1f} s (`{one.best}` {one.by_goodput.ttft_p99:.1f} s)."


def _spread(leads: Sequence[float]) -> str:
    return f", {100 * min(leads):.1f} to {100 * max(leads):.1f} points by seed" if len(leads) > 1 else ""


SECTION = Section(name="default_policy_grid", title="The default policy by both targets, and where it loses", write=write)
