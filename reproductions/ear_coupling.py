"""Tests the coupling law with agent sessions in a closed loop at rising rates.

The concurrency that the law predicts from lower rates is compared with the measured one.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from math import fsum, inf, isfinite
from multiprocessing import get_context
from pathlib import Path

from matplotlib.figure import Figure

from reproductions.ear_equilibria import (
    FACTORS,
    FITTED,
    SECONDS,
    VARIANTS,
    WARMUP_SECONDS,
    Equilibrium,
    Step,
    mean_curve,
    measure_equilibrium,
    missing_turns,
    steps_of,
)
from reproductions.ear_runs import Variant
from reproductions.runs import percent, table
from reproductions.sections import IMAGES, Context


def write_coupling(context: Context) -> str:
    """Return the text about the measured curves, the law's predictions from lower rates, and their errors."""
    factors, seconds = (FACTORS[1:6], 120.0) if context.quick else (FACTORS, SECONDS)
    tasks = [(variant, factor, seed, seconds) for seed in range(context.seeds) for variant in VARIANTS for factor in factors]
    found: list[Equilibrium] = []
    for one in _measured(context.jobs, tasks):
        found.append(one)
        context.say(f"ear coupling: {len(found)}/{len(tasks)}  {one.variant} x {one.factor:g}: {one.concurrency:.1f} in flight")
    curves = {variant.label: mean_curve(found, variant.label) for variant in VARIANTS}
    steps = {label: steps_of(curve, FITTED) for label, curve in curves.items()}
    plot_coupling(context.image("ear-coupling.png"), curves, steps)
    return f"""In a closed loop, sessions that begin at rate Λ with N turns each keep L = Λ·N·W(L) turns in flight, W being a turn's time in the system.
So ε more load adds ε·L / (1 - Λ·N·W'), without bound as Λ·N·W' nears 1. The draft's worked example (ΛN = 5, W = 1 + 0.1 L: L = 10, derivative 20,
12.2 at ε = 0.1) is a unit test (`test_the_worked_example_of_the_coupling_law`).

Measured: sessions of about nine turns (the generator without its giants, so that minutes are enough for equilibrium) on the same pool, closed
loop, the rate of sessions scaled by a factor and nothing else; {SECONDS / 60:g} minutes of sessions, the first {WARMUP_SECONDS / 60:g} not measured.
Every line takes Λ·N, W and L at one rate, W' there from the parabola through {FITTED} rates up to it, and predicts L at the next rate, which it has
not seen, by the fixed point with W along its tangent. The measured derivative is the difference over the rates beside it.

{_step_table(steps)}

![Turns in flight against the rate of sessions, and measured against predicted]({IMAGES}/ear-coupling.png)

{coupling_verdict(found, curves, steps)}"""


def _step_table(steps: dict[str, list[Step]]) -> str:
    heading = ("", "rate ×", "L", "W", "Λ·N·W'", "dL/dε", "measured", "L predicted at the next rate", "measured", "off")
    rows = [
        (
            f"`{label}`",
            f"{step.law.at.factor:g}",
            f"{step.law.at.concurrency:.1f}",
            f"{step.law.at.time:.2f} s",
            f"{step.law.coupling:.2f}",
            f"{step.law.per_load:.0f}",
            f"{step.measured_per_load:.0f}",
            f"{step.predicted:.1f}",
            f"{step.after.concurrency:.1f}",
            f"{100 * step.off:+.1f} %",
        )
        for label, same in steps.items()
        for step in same
    ]
    return table(heading, rows)


def coupling_verdict(found: Sequence[Equilibrium], curves: dict[str, list[Equilibrium]], steps: dict[str, list[Step]]) -> str:
    """Return the text about the errors of the law's predictions, and the verdict on the law."""
    every = [step for same in steps.values() for step in same]
    off = [abs(step.off) for step in every if isfinite(step.predicted)]
    error, blind = fsum(off) / max(1, len(off)), fsum(abs(step.uncoupled_off) for step in every) / len(every)
    without = len(every) - len(off)
    verdict = "does not hold" if error >= blind else "holds only roughly" if error >= 0.05 or without else "holds"
    endless = f" ({without} of {len(every)}, which foresee no equilibrium, not counted)" if without else ""
    strongest = {label: max(step.law.coupling for step in same) for label, same in steps.items()}
    missing = {label: missing_turns(curve) for label, curve in curves.items()}
    little = max(abs(one.beyond_littles_law) for one in found)
    late = ", so that what was measured lies below what would be reached" if min(missing.values()) > 0 else ""
    return f"""The law {verdict}: predictions are {percent(error)} off in the mean and {percent(max(off, default=0.0))} at most{endless}; with W taken as
constant (L in proportion to the rate) they would be {percent(blind)} off in the mean. A tangent knows of no bend ahead of it.
Coupling reaches Λ·N·W' = {strongest["ear"]:.2f} with `ear` and {strongest["least-loaded"]:.2f} with `least-loaded`, which
computes most contexts again. The law is of equilibria, and the nearer coupling is to 1, the longer one takes to form: at the highest rate
{percent(missing["least-loaded"])} of the turns that Λ·N promises had not come yet with `least-loaded` ({percent(missing["ear"])} with `ear`), as
their sessions were still waiting{late}. Little's law, L against Λ·N·W counted apart in the same
window, is met within {percent(little)} in every run."""


def _measured(jobs: int, tasks: Sequence[tuple[Variant, float, int, float]]) -> "list[Equilibrium] | map[Equilibrium]":
    if jobs == 1:
        return map(measure_equilibrium, tasks)
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as processes:
        return list(processes.map(measure_equilibrium, tasks, chunksize=len(FACTORS)))


def plot_coupling(path: Path, curves: dict[str, list[Equilibrium]], steps: dict[str, list[Step]]) -> None:
    """Plot the measured L against the rate with the law's tangents (left), and measured against predicted L (right)."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    most = max(one.concurrency for curve in curves.values() for one in curve)
    for (label, curve), colour, marker in zip(curves.items(), ("#0072b2", "#e69f00"), "oD", strict=True):
        left.plot([one.offered for one in curve], [one.concurrency for one in curve], color=colour, marker=marker, label=label)
        for step in steps[label]:
            at = step.law.at
            left.plot(
                [at.offered, at.offered * step.after.factor / at.factor],
                [at.concurrency, step.predicted],
                color=colour,
                linestyle=":",
                linewidth=1.2,
            )
        shown = [(step.predicted, step.after.concurrency) for step in steps[label] if step.predicted < inf]
        right.scatter([pair[0] for pair in shown], [pair[1] for pair in shown], color=colour, marker=marker, s=28, label=label)
    right.plot([0, most], [0, most], color="grey", linewidth=0.8, linestyle="--")
    left.set(xlabel="turns per second (Λ·N)", ylabel="turns in flight (L)", title="dotted: predicted from the rates below")
    right.set(xlabel="L predicted from lower rates", ylabel="L measured", title="dashed: equal")
    left.legend(fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110, metadata={"Software": None})
