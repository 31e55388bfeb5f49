"""Reads the runs of the section on stale and wrong observations: means over seeds, losses, and the plot."""

from dataclasses import replace

import matplotlib
from matplotlib.figure import Figure

from reproductions.runs import mean
from reproductions.staleness_runs import DELAYS, KV_ALONE, LATE, LOADS, POLICIES, QUEUED, Runs, Trial

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999", "#882255", "#117733", "#332288")
MARKERS = "osD^vPX*<>h"


def plot(runs: Runs) -> Figure:
    """Return a picture of the lost attainment against the delay: left without queues in the router, right with
    queues.
    """
    left = [(policy, Trial(policy=policy)) for policy in POLICIES] + [("heimdall by KV use alone", KV_ALONE)]
    right = [(f"{one.label}, {one.in_flight or 'all'} in flight", one) for one in QUEUED]
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        for axes, lines, name in zip(
            figure.subplots(1, 2), (left, right), ("no queues in the router", "queues in the router"), strict=True
        ):
            for number, (label, one) in enumerate(lines):
                axes.plot(
                    range(len(DELAYS)),
                    [100 * lost(runs, one, delay) for delay in DELAYS],
                    color=COLOURS[number % len(COLOURS)],
                    marker=MARKERS[number % len(MARKERS)],
                    linestyle="--" if one.weights or one.policy == "round-robin" else "-",
                    linewidth=1.2,
                    markersize=4,
                    label=label,
                )
            axes.set_xticks(range(len(DELAYS)), [f"{delay:g}" for delay in DELAYS])
            axes.set(xlabel="news late by, s", title=f"{name}, {LOADS[0]:g}×")
            axes.grid(axis="y", linewidth=0.3)
            axes.legend(fontsize=7)
        figure.axes[0].set_ylabel("in time lost against no delay, points")
    return figure


def in_time(runs: Runs, trial: Trial) -> float:
    """Return the attainment of a trial, mean over seeds."""
    return mean(runs[trial], lambda one: one.attainment)


def ttft(runs: Runs, trial: Trial) -> float:
    """Return the P90 of TTFT of a trial in seconds, mean over seeds."""
    return mean(runs[trial], lambda one: one.ttft_p90)


def hits(runs: Runs, trial: Trial) -> float:
    """Return the hit rate of a trial, mean over seeds."""
    return mean(runs[trial], lambda one: one.hit_rate)


def lost(runs: Runs, trial: Trial, delay: float = LATE) -> float:
    """Return the attainment that a delay costs, compared with no delay; below 0 if it is better with the delay."""
    return in_time(runs, replace(trial, delay=0.0)) - in_time(runs, replace(trial, delay=delay))


def seed_range(runs: Runs, trial: Trial) -> float:
    """Return the difference between the seeds' highest and lowest attainment."""
    found = [one.figures.attainment for one in runs[trial]]
    return max(found) - min(found)


def points(share: float) -> str:
    """Return a difference of shares as text in percentage points."""
    rounded = round(100 * share, 1)
    return f"{rounded or 0.0:.1f} points"
