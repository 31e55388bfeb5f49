"""Effective request capacity and goodput over rates, in two settings: the same queue for every policy, and each policy
as DualMap's published code runs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from reproductions.dualmap_setup import (
    BASELINES,
    COLOURS,
    DUALMAP,
    INSTANCES,
    MARKERS,
    NEVER_SECONDS,
    Results,
    Study,
    Variant,
    best,
)
from reproductions.runs import percent, table
from reproductions.sections import IMAGES, Context

MULTIPLES = (0.5, 0.75, 0.85, 0.9, 0.95, 1.0, 1.25, 1.5)
CODE_MULTIPLES = (0.75, 0.85, 0.9, 0.95, 1.0, 1.25, 1.5)
CLOSE = (0.75, 0.9, 0.95)
"""The rates at which latencies, hits and balance are shown. They lie below, at and above the highest rate that most
policies can serve.
"""
FAIRLEAD = Variant(label="fairlead", policy="fairlead")
_WAITING: Mapping[str, float] = {"queue_timeout_seconds": NEVER_SECONDS}
CODE = Variant(label="dualmap", policy="dualmap", parameters={"preset": "dualmap-code", **_WAITING})
CODE_BASELINES = tuple(Variant(label=one.label, policy=one.policy, parameters=_WAITING, at_once=True) for one in BASELINES)
NAMES = tuple(one.label for one in BASELINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gains of `dualmap` over the best baseline.

    `capacity` is the largest relative gain of attainment over all rates, and `capacity_at` its rate (a multiple of the
    saturation).
    """

    capacity: float
    capacity_at: float
    shares: tuple[float, float]
    """The attainments of `dualmap` and of the best baseline at `capacity_at`."""
    goodput: float
    best_goodput: str
    """The name of the baseline with the best goodput."""


def gain(results: Results) -> Gain:
    """Return the gains of `dualmap` over the four baselines. Gains are relative: 0.25 is a quarter more; 0 if all are
    0.
    """
    gains: list[tuple[float, float, float, float]] = []
    for multiple in results.multiples("dualmap"):
        other = max(results.mean(name, multiple, "attainment") for name in NAMES)
        mine = results.mean("dualmap", multiple, "attainment")
        gains.append((relative(mine, other), multiple, mine, other))
    goodputs = {name: results.goodput(name) for name in NAMES}
    winner = best(NAMES, goodputs)
    capacity, at, mine, other = max(gains, key=lambda found: (found[0], -found[1]))
    return Gain(
        capacity=capacity,
        capacity_at=at,
        shares=(mine, other),
        goodput=relative(results.goodput("dualmap"), goodputs[winner]),
        best_goodput=winner,
    )


def relative(value: float, other: float) -> float:
    """Return `value / other - 1`; 0 if `other` is 0."""
    return value / other - 1 if other else 0.0


def same_queue(study: Study) -> Results:
    """Run every policy with Fairlead's defaults: a FIFO queue in the router, one prefill per instance in flight, and at
    most 60 s of waiting.
    """
    quick = study.context.quick
    return study.run((DUALMAP, *BASELINES, FAIRLEAD), (0.75, 0.9, 0.95) if quick else MULTIPLES, study.context.seeds)


def as_published(study: Study) -> Results:
    """Run `dualmap` with the published preset, queue order and late binding.

    The other policies send requests to the engines at once, because only DualMap has a queue there.
    """
    quick = study.context.quick
    return study.run((CODE, *CODE_BASELINES), (0.75, 0.9, 0.95) if quick else CODE_MULTIPLES, study.context.seeds)


def attainments(study: Study, results: Results, labels: Sequence[str]) -> str:
    """Return a table with the attainment at each rate, and the goodput."""
    multiples = results.multiples("dualmap")
    rows: list[list[str]] = []
    for label in labels:
        shares = [percent(results.mean(label, multiple, "attainment")) for multiple in multiples]
        rows.append([f"`{label}`", *shares, goodput(study, results, label)])
    return table([study.title, *(f"{multiple:g}×" for multiple in multiples), "goodput, req/s"], rows)


def goodput(study: Study, results: Results, label: str) -> str:
    """Return the goodput in requests per second as text, marked if it lies outside the tested rates."""
    multiple = results.goodput(label)
    tested = results.multiples(label)
    if multiple == 0:
        return f"< {tested[0] * study.saturation:.1f}"
    return f"{'≥ ' if multiple == tested[-1] else ''}{multiple * study.saturation:.2f}"


def details(study: Study, results: Results, labels: Sequence[str]) -> str:
    """Return a table with TTFT, hits as a share of an endless cache's hits, and balance at the rates `CLOSE`."""
    rows: list[list[str]] = []
    for multiple in (one for one in CLOSE if one in results.multiples("dualmap")):
        for label in labels:
            figures = {name: results.mean(label, multiple, name) for name in ("ttft_p50", "ttft_p90", "hit_rate", "load_cv", "moves")}
            rows.append(
                [
                    f"`{label}` {multiple:g}×",
                    f"{figures['ttft_p50']:.2f}",
                    f"{figures['ttft_p90']:.2f}",
                    percent(figures["hit_rate"]),
                    percent(figures["hit_rate"] / study.ideal_hit_rate),
                    f"{figures['load_cv']:.2f}",
                    f"{figures['moves']:.0f}",
                ]
            )
    return table([study.title, "P50 TTFT, s", "P90", "hit rate", "of the ideal", "CV of load", "moves"], rows)


def plot(context: Context, name: str, title: str, both: Sequence[tuple[Study, Results]]) -> str:
    """Plot attainment against rate, with a panel for each workload, and return the Markdown of the picture."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (study, results) in zip(panels, both, strict=True):
        for number, label in enumerate(dict.fromkeys(label for label, _ in results.cells)):
            multiples = results.multiples(label)
            axes.plot(
                [multiple * study.saturation for multiple in multiples],
                [100 * results.mean(label, multiple, "attainment") for multiple in multiples],
                color=COLOURS[number],
                marker=MARKERS[number],
                markersize=5,
                linewidth=2 if label == "dualmap" else 1.2,
                label=label,
            )
        axes.axhline(90, color="grey", linewidth=0.7, linestyle=":")
        axes.axvline(study.saturation, color="grey", linewidth=0.7, linestyle="--")
        axes.set(xlabel="requests per second", title=study.title, ylim=(-2, 102))
    panels[0].set_ylabel("first token within 5 s, % of all that arrived")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=6)
    figure.suptitle(f"{title}, {INSTANCES} instances (dashed: estimated saturation)")
    figure.savefig(context.image(name), dpi=110, metadata={"Software": None})
    return f"![{title}: attainment against rate]({IMAGES}/{name})"
