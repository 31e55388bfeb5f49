"""EAR's plots: policies against rate, and the P90 of TTFT of every instance.

A policy has the same colour and marker in all plots.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproductions.ear_runs import Outcome, mean_of

COLOURS = ("#999999", "#e69f00", "#d55e00", "#56b4e9", "#0072b2", "#009e73", "#000000")
MARKERS = "XDs^ovP"


def plot_rates(path: Path, outcomes: Sequence[Outcome], labels: Sequence[str]) -> None:
    """Plot P90 of TTFT and hit rate against rate, as means over seeds: open loop above, closed loop below."""
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    for row, closed in zip(figure.subplots(2, 2, sharex=True), (False, True), strict=True):
        found = [one for one in outcomes if one.setting.closed_loop == closed]
        _lines(row[0], found, labels, lambda one: one.figures.ttft_p90)
        _lines(row[1], found, labels, lambda one: 100 * one.figures.hit_rate)
        row[1].axhline(100 * mean_of([one.figures.ideal_hit_rate for one in found]), color="grey", linewidth=0.8, linestyle="--")
        row[0].set(yscale="log", ylabel="P90 of TTFT, s", title=f"{'closed' if closed else 'open'} loop")
        row[0].yaxis.set_major_formatter("{x:g}")
        row[1].set(ylabel="hit rate, % of prompt tokens", ylim=(0, 100), title="dashed: endless shared cache")
        if closed:
            for axes in row:
                axes.set_xlabel("requests per second (planned)")
        else:
            row[0].legend(fontsize=7)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _lines(axes: Axes, outcomes: Sequence[Outcome], labels: Sequence[str], figure: Callable[[Outcome], float | None]) -> None:
    rates = sorted({one.setting.rate for one in outcomes})
    for label, colour, marker in zip(labels, COLOURS, MARKERS, strict=True):
        of_label = [one for one in outcomes if one.setting.variant.label == label]
        means = [mean_of([figure(one) for one in of_label if one.setting.rate == rate]) for rate in rates]
        axes.plot(rates, means, color=colour, marker=marker, label=label, linewidth=1.2, markersize=5)
    axes.grid(alpha=0.3)


def plot_instances(path: Path, outcomes: Sequence[Outcome], labels: Sequence[str]) -> None:
    """Plot a dot for every instance of every seed: its P90 of TTFT."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, closed in zip(figure.subplots(1, 2, sharex=True, sharey=True), (False, True), strict=True):
        for place, (label, colour, marker) in enumerate(zip(labels, COLOURS, MARKERS, strict=True)):
            runs = [one for one in outcomes if one.setting.variant.label == label and one.setting.closed_loop == closed]
            for number, one in enumerate(runs):
                height = place + 0.22 * (number - (len(runs) - 1) / 2)
                axes.scatter(one.tails, [height] * len(one.tails), s=16, color=colour, marker=marker, linewidths=0)
        axes.set(xscale="log", xlabel="P90 of TTFT of one instance, s", title=f"{'closed' if closed else 'open'} loop")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_yticks(range(len(labels)), labels, fontsize=7)
        axes.invert_yaxis() if not closed else None
        axes.grid(alpha=0.3, axis="x")
    figure.savefig(path, dpi=110, metadata={"Software": None})
