"""The claims of the DualMap paper beside the measured figures: the table that opens the section."""

from collections.abc import Mapping
from dataclasses import dataclass

from reproductions.dualmap_rates import Gain, gain
from reproductions.dualmap_setup import Results, Study
from reproductions.runs import percent, table

CAPACITY: Mapping[str, tuple[str, float]] = {"conversation": ("+40.6 to +80 %", 0.406), "tool-agent": ("up to +125 %", 1.25)}
GOODPUT = ("+14.3 to +48 %", 0.143)
HITS: Mapping[str, float] = {"conversation": 0.625, "tool-agent": 0.964}
SAME_HITS = 0.02
"""The difference of two hit rates (0-1) up to which they count as comparable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The figures of one workload in both settings."""

    study: Study
    same: Results
    published: Results


def verdict(same: float, published: float, least: float) -> str:
    """Return the words that say which of the two settings reaches at least the claimed gain."""
    if same >= least:
        return "reproduces" if published >= least else "only with one queue for all"
    return "only with the code's queue" if published >= least else "does not reproduce"


def claims(both: tuple[Measured, Measured], knees: Mapping[str, bool], minimal: bool) -> str:
    """Return a table: claim, paper, measured, verdict.

    `knees` says for each workload whether two candidates gain most. `minimal` says whether the rings moved the fewest
    keys.
    """
    rows: list[list[str]] = []
    for one in both:
        claimed, least = CAPACITY[one.study.name]
        same, published = gain(one.same), gain(one.published)
        rows.append(
            [
                f"effective capacity over the best baseline, {one.study.title}",
                claimed,
                f"up to {_capacity(same)}; with the code's queue {_capacity(published)}",
                verdict(same.capacity, published.capacity, least),
            ]
        )
    for one in both:
        same, published = gain(one.same), gain(one.published)
        rows.append(
            [
                f"goodput over the best baseline, {one.study.title}",
                GOODPUT[0],
                f"{_over(same)}; with the code's queue {_over(published)}",
                verdict(same.goodput, published.goodput, GOODPUT[1]),
            ]
        )
    for one in both:
        highest = one.same.multiples("dualmap")[-1]
        usual, crowded = (one.same.mean("dualmap", multiple, "hit_rate") / one.study.ideal_hit_rate for multiple in (0.9, highest))
        rows.append(
            [
                f"hits as a part of the ideal, {one.study.title}",
                percent(HITS[one.study.name]),
                f"{percent(usual)} at 0.9×, {percent(crowded)} at {highest:g}×",
                "at least as many" if usual >= HITS[one.study.name] else "does not reproduce",
            ]
        )
    gap = max(one.same.mean("cache-affinity", 0.9, "hit_rate") - one.same.mean("dualmap", 0.9, "hit_rate") for one in both)
    comparable = "reproduces" if gap <= SAME_HITS else "does not reproduce"
    rows.append(["hits comparable to `cache-affinity`", "yes", f"at most {100 * max(0.0, gap):.1f} points fewer at 0.9×", comparable])
    named = ", ".join(f"{name}: {'yes' if found else 'no'}" for name, found in knees.items())
    rows.append(["two candidates gain most of what any number does", "yes", named, _all(knees)])
    rows.append(
        ["scaling moves no more keys than it must", "yes", "yes" if minimal else "no", "reproduces" if minimal else "does not reproduce"]
    )
    lines = table(["claim", "paper", "measured", "verdict"], rows).split("\n")
    return "\n".join([lines[0], "| --- | --- | --- | --- |", *lines[2:]])


def signed(share: float) -> str:
    """Return a relative gain as text, in per cent with its sign."""
    return f"{100 * share:+.0f} %"


def _over(found: Gain) -> str:
    return f"{signed(found.goodput)} (`{found.best_goodput}`)"


def _capacity(found: Gain) -> str:
    mine, other = found.shares
    return f"{signed(found.capacity)} at {found.capacity_at:g}× ({percent(mine)} against {percent(other)})"


def _all(found: Mapping[str, bool]) -> str:
    values = list(found.values())
    return "reproduces" if all(values) else "in part" if any(values) else "does not reproduce"
