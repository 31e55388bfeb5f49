"""An overview of many settings of the grid: a picture of the leader and its lead in each cell, and a table by the axes
in which settings differ.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure

from reproductions.default_policy_grid_cells import RATES, Setting
from reproductions.default_policy_grid_verdicts import CALM, TIE, Verdict, mean
from reproductions.runs import table

EDGES = (-100.0, -5.0, -2.0, -100 * TIE, 100 * TIE, 5.0, 20.0, 100.0)
"""The bounds, in points of lead, of the ranges that have the same colour."""
COLOURS = ("#8f1d14", "#d7301f", "#fc8d59", "#f4f4f2", "#c6dbef", "#6baed6", "#08519c")
NAMES = {"Disabled": "off", "Predicted": "predicted"}
HEADING = (
    "",
    "cells",
    "first tokens in time: `fairlead` / best other",
    "nobody ahead",
    "goodput: `fairlead` / best other",
    "nobody ahead",
    "P99 bounded",
)


def by_axis(found: Sequence[Verdict]) -> str:
    """Return a table with a line for each value of each axis, and a line for all settings."""
    axes: dict[str, Callable[[Verdict], object]] = {
        "": lambda one: one.setting.preset,
        "SLO {:g} s": lambda one: one.setting.slo,
        "{} ": lambda one: one.setting.kind,
        "prompts: {}": lambda one: one.setting.mix,
        "{} instances": lambda one: one.setting.instances,
        "rejection {}": lambda one: NAMES[one.setting.mode],
        "{:g}×": lambda one: one.rate,
    }
    return table(HEADING, _lines(axes, found))


def plot(found: Sequence[Verdict]) -> Figure:
    """Return a picture with a panel for each preset, a row for each setting and a column for each rate.

    The upper panels show first tokens, the lower panels goodput.
    """
    presets = list(dict.fromkeys(one.setting.preset for one in found))
    figure = Figure(figsize=(13, 15), layout="constrained")
    panels = figure.subplots(2, len(presets), sharex=True, squeeze=False)
    colours, norm = ListedColormap(COLOURS), BoundaryNorm(EDGES, len(COLOURS))
    image = None
    for column, preset in enumerate(presets):
        here = [one for one in found if one.setting.preset == preset]
        settings = list(dict.fromkeys(one.setting for one in here))
        for axes, target in zip(panels[:, column], ("first tokens in time", "goodput"), strict=True):
            leads = np.full((len(settings), len(RATES)), np.nan)
            for one in here:
                theirs = one.ttft_leads if target == "first tokens in time" else one.goodput_leads
                leads[settings.index(one.setting), RATES.index(one.rate)] = -100 * mean(theirs)
            image = axes.imshow(leads, aspect="auto", cmap=colours, norm=norm, interpolation="none")
            axes.set_title(f"{preset}: {target}", fontsize=9)
            axes.set_xticks(range(len(RATES)), [f"{rate:g}×" for rate in RATES], fontsize=8)
            axes.set_yticks(range(len(settings)), [_label(setting) for setting in settings] if column == 0 else [], fontsize=6)
    if image is not None:
        figure.colorbar(image, ax=panels, location="bottom", shrink=0.5, aspect=50, ticks=EDGES[1:-1]).set_label(
            "points that fairlead is ahead of the best other, or behind it"
        )
    return figure


def _label(setting: Setting) -> str:
    return f"{setting.slo:g} s, {setting.kind}, {setting.mix}, {setting.instances}, {NAMES[setting.mode]}"


def _lines(axes: dict[str, Callable[[Verdict], object]], found: Sequence[Verdict]) -> Iterator[Sequence[str]]:
    for words, axis in axes.items():
        for value in dict.fromkeys(sorted(map(axis, found), key=_order)):
            yield _line((words or "{}").format(value).strip(), [one for one in found if axis(one) == value])
    yield _line("**all**", found)


def _order(value: object) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, int | float) else (0.0, str(value))


def _line(name: str, found: Sequence[Verdict]) -> Sequence[str]:
    calm = [one for one in found if one.rate <= CALM]
    return [
        name,
        f"{len(found)}",
        f"{100 * mean([one.ours.in_time for one in found]):.1f} / {100 * mean([one.by_ttft.in_time for one in found]):.1f}",
        f"{sum(one.most_in_time for one in found)}",
        f"{100 * mean([one.ours.goodput for one in found]):.1f} / {100 * mean([one.by_goodput.goodput for one in found]):.1f}",
        f"{sum(one.most_goodput for one in found)}",
        f"{sum(one.nobody_starves for one in calm)} of {len(calm)}" if calm else "–",
    ]
