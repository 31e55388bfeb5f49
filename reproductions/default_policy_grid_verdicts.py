"""Verdicts on whether `fairlead` is ahead: its row of a setting and a rate beside the best others' rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import fsum
from operator import attrgetter

from reproductions.default_policy_grid_cells import OURS, RIVALS, WHOLE, GridRow, Rows, Setting

TIE = 0.005
"""The lead (0-1) of another policy up to which it counts as a tie."""
LONGEST_WAIT = 3.0
"""The maximum P99 TTFT of served requests, as a multiple of the SLO. It is required up to `CALM` times the saturation.
"""
CALM = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`fairlead` in a setting at a rate, compared with the best other policy by each of the two targets; means over
    seeds.

    A lead has an entry for each seed with rows of both policies: the share (0-1) by which the other policy is ahead.
    """

    setting: Setting
    rate: float
    ours: GridRow
    first: str
    """The name of the other policy with the most first tokens in time."""
    by_ttft: GridRow
    ttft_leads: tuple[float, ...]
    best: str
    """The name of the other policy with the most goodput."""
    by_goodput: GridRow
    goodput_leads: tuple[float, ...]

    @property
    def most_in_time(self) -> bool:
        """Whether no other policy has more than half a point more first tokens in time."""
        return mean(self.ttft_leads) <= TIE

    @property
    def most_goodput(self) -> bool:
        """Whether no other policy has more than half a point more goodput."""
        return mean(self.goodput_leads) <= TIE

    @property
    def nobody_starves(self) -> bool:
        """Whether the P99 TTFT is within `LONGEST_WAIT`; always true above `CALM` times the saturation."""
        return self.rate > CALM or self.ours.ttft_p99 <= LONGEST_WAIT * self.setting.slo


def verdicts(rows: Rows) -> list[Verdict]:
    """Return a verdict for each setting and rate that has rows, in the grid's order."""
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
            first = max(others, key=lambda policy: mean(in_time[policy]))
            best = max(others, key=lambda policy: mean(goodput[policy]))
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


def _by_seed(rows: Rows, setting: Setting, rate: float, policy: str) -> dict[int, GridRow]:
    return {cell.seed: row for cell, row in rows.items() if (cell.setting, cell.rate, cell.policy) == (setting, rate, policy)}


def _leads(ours: dict[int, GridRow], theirs: dict[int, GridRow], figure: Callable[[GridRow], float]) -> tuple[float, ...]:
    return tuple(round(figure(theirs[seed]) - figure(row), 9) for seed, row in sorted(ours.items()) if seed in theirs)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; an empty sequence is an error."""
    return fsum(values) / len(values)


def _mean_row(by_seed: dict[int, GridRow]) -> GridRow:
    return GridRow(**{one.name: mean([getattr(row, one.name) for row in by_seed.values()]) for one in fields(GridRow)})
