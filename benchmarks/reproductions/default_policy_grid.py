"""Where is `fairlead` not the best? By TTFT and by goodput, on long and impossible prompts, three engines and SLOs.

The whole grid has 144 settings and takes hours; `SPANNING`, which the page shows, minutes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import fsum
from operator import attrgetter

from benchmarks.reproductions.default_policy_grid_cells import (
    LONG_MEDIAN,
    OURS,
    POSSIBLE,
    REQUESTS,
    RIVALS,
    WHOLE,
    GridRow,
    Rows,
    Setting,
    cells_of,
    measure,
    settings_of,
)
from benchmarks.reproductions.runs import GOODPUT_ATTAINMENT, percent, table
from benchmarks.reproductions.sections import Context, Section

TIE = 0.005
"""What another policy may be ahead."""
FAR = 0.05
"""What is called far ahead."""
LONGEST_WAIT = 3.0
"""What the P99 TTFT of served requests may be, as a multiple of the SLO, up to `CALM` times saturation."""
CALM = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`fairlead` in one setting at one rate against the best other, by each of the two targets; means over seeds.

    A lead has an entry for each seed that both policies have rows of: by how much (0-1) the other is ahead.
    """

    setting: Setting
    rate: float
    ours: GridRow
    first: str
    """The other policy with the most first tokens in time, and its row."""
    by_ttft: GridRow
    ttft_leads: tuple[float, ...]
    best: str
    """The other policy with the most goodput, and its row."""
    by_goodput: GridRow
    goodput_leads: tuple[float, ...]

    @property
    def most_in_time(self) -> bool:
        """Whether no other policy has half a point more first tokens in time."""
        return _mean(self.ttft_leads) <= TIE

    @property
    def most_goodput(self) -> bool:
        """Whether no other policy has half a point more goodput."""
        return _mean(self.goodput_leads) <= TIE

    @property
    def nobody_starves(self) -> bool:
        """Whether the longest waits are bounded; asked up to 0.9 of the saturation."""
        return self.rate > CALM or self.ours.ttft_p99 <= LONGEST_WAIT * self.setting.slo


def verdicts(rows: Rows) -> list[Verdict]:
    """One for each setting and rate of which rows are there, in the grid's order."""
    places = {setting: place for place, setting in enumerate(WHOLE)}
    seen = sorted({(places.get(cell.setting, len(WHOLE)), cell.setting, cell.rate) for cell in rows})
    found: list[Verdict] = []
    for _, setting, rate in seen:
        by_seed = {policy: _by_seed(rows, setting, rate, policy) for policy in (OURS, *RIVALS)}
        ours = by_seed.pop(OURS)
        others = {policy: theirs for policy, theirs in by_seed.items() if theirs.keys() & ours.keys()}
        if others:
            in_time = {policy: _leads(ours, theirs, attrgetter("in_time")) for policy, theirs in others.items()}
            goodput = {policy: _leads(ours, theirs, attrgetter("goodput")) for policy, theirs in others.items()}
            first = max(others, key=lambda policy: _mean(in_time[policy]))
            best = max(others, key=lambda policy: _mean(goodput[policy]))
            found.append(
                Verdict(
                    setting=setting,
                    rate=rate,
                    ours=_mean_row(ours),
                    first=first,
                    by_ttft=_mean_row(others[first]),
                    ttft_leads=in_time[first],
                    best=best,
                    by_goodput=_mean_row(others[best]),
                    goodput_leads=goodput[best],
                )
            )
    return found


def write(context: Context) -> str:
    """Run the cells asked for and describe them."""
    settings = settings_of(context)
    return describe(context, settings, verdicts(measure(context, cells_of(context, settings))))


def describe(context: Context, settings: Sequence[Setting], found: Sequence[Verdict]) -> str:
    """The section's text."""
    heading = ["", "in time: `fairlead` / best other", "goodput: `fairlead` / best other", "P99 of served", "refused"]
    tables = "\n\n".join(
        f"**{setting}**\n\n{table(heading, (_line(one) for one in found if one.setting == setting))}" for setting in settings
    )
    return f"""
`fairlead` with its default parameters against {", ".join(f"`{name}`" for name in RIVALS)}, in {len(settings)} of the {len(WHOLE)} settings of the grid
two workloads × two mixes of prompts × SLO 2, 5, 10 s × three presets × 8 and 32 instances × early rejection off and predicted (`--whole` runs them all,
`--only TEXT` some). Mix `long`: a median opening prompt of {LONG_MEDIAN:,.0f} tokens, but none that alone takes more than {POSSIBLE:g} of the SLO;
`impossible`: the generator's own prompts as long as the engine takes them, some of which cannot be in time on an idle instance.
{REQUESTS[8]:,} requests for 8 instances, {REQUESTS[32]:,} for 32; {_seeds(context)}.

*In time*: first token within the SLO, in % of all that arrived. *Goodput*: the same, and each further token within the preset's TPOT SLO in the mean.
P99 (of the TTFT of served requests) and refused: `fairlead` / the best other by goodput.

{_conclusion(found)}

{tables}

{_why(found)}
"""


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
    lines = [
        f"- By TTFT no other policy is more than half a point ahead in {sum(one.most_in_time for one in found)} of {len(found)} cells.",
        f"- By goodput in {sum(one.most_goodput for one in found)} of {len(found)}.",
        f"- Up to {CALM:g}× its P99 is at most {LONGEST_WAIT:g} × the SLO in {sum(one.nobody_starves for one in calm)} of {len(calm)}.",
    ]
    return "\n".join([*lines, *_lost(found)])


def _why(found: Sequence[Verdict]) -> str:
    """Why cells are lost, as far as the figures bear it out: what goodput stands against first tokens that are lost."""
    told: list[str] = []
    lost = [one for one in found if not one.most_in_time]
    if lost:
        more = _mean([one.ours.goodput - one.by_ttft.goodput for one in lost])
        held = "far more" if more > FAR else "more" if more > TIE else "no more"
        told.append(f"""First tokens are lost to rests. Where prefills and decodes together need more time than there is (below 1× too, if much
decodes), no policy keeps both targets of all: `fairlead` lets some first tokens be late and holds the pace of {held}
answers.""")
    if not all(one.nobody_starves for one in found):
        told.append("A long P99 is of prompts that cannot be in time.")
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
            yield f"- Lost by TTFT: {place}: {figures}{_spread(one.ttft_leads)}."
        if not one.most_goodput:
            figures = f"{percent(one.ours.goodput)} against {percent(one.by_goodput.goodput)} of `{one.best}`"
            yield f"- Lost by goodput: {place}: {figures}{_spread(one.goodput_leads)}."
        if not one.nobody_starves:
            yield f"- Longest waits: {place}: P99 {one.ours.ttft_p99:.1f} s (`{one.best}` {one.by_goodput.ttft_p99:.1f} s)."


def _spread(leads: Sequence[float]) -> str:
    return f", {100 * min(leads):.1f} to {100 * max(leads):.1f} points by seed" if len(leads) > 1 else ""


def _by_seed(rows: Rows, setting: Setting, rate: float, policy: str) -> dict[int, GridRow]:
    return {cell.seed: row for cell, row in rows.items() if (cell.setting, cell.rate, cell.policy) == (setting, rate, policy)}


def _leads(ours: dict[int, GridRow], theirs: dict[int, GridRow], figure: Callable[[GridRow], float]) -> tuple[float, ...]:
    return tuple(round(figure(theirs[seed]) - figure(row), 9) for seed, row in sorted(ours.items()) if seed in theirs)


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _mean_row(by_seed: dict[int, GridRow]) -> GridRow:
    return GridRow(**{one.name: _mean([getattr(row, one.name) for row in by_seed.values()]) for one in fields(GridRow)})


SECTION = Section(name="default_policy_grid", title="The default policy by both targets, and where it loses", write=write)
