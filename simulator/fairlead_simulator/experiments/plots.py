"""Plots of an experiment, as PNG and SVG: attainment and TTFT by rate, load over time with migrations, and hit rate
against the balance of load.

Drawing needs no display. Each policy has the same colour and the same marker in all plots, so that readers can
distinguish policies without colour.
"""

from collections.abc import Sequence
from math import fsum, nan
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from fairlead_simulator.experiments.cells import CellResult
from fairlead_simulator.experiments.result_tables import mean

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_MARKERS = "osD^vPX*<>hd"
_HEAT_COLUMNS = 240


def write_plots(folder: Path, results: Sequence[CellResult]) -> list[Path]:
    """Write all plots to the folder, and create the folder if necessary. Return the paths of the PNG files.

    The same results give the same files. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with matplotlib.rc_context({"svg.hashsalt": "fairlead", "svg.fonttype": "none", "font.size": 9}):
        for mode in dict.fromkeys(result.cell.spec.early_rejection for result in results):
            of_mode = [result for result in results if result.cell.spec.early_rejection == mode]
            written.append(_save(_against_rate(of_mode, mode), folder / f"rates-{mode.lower()}"))
            written.append(_save(_balance(of_mode, mode), folder / f"balance-{mode.lower()}"))
            for result in _busiest(of_mode):
                name = f"load-{mode.lower()}-{_file_name(result.cell.label)}"
                written.append(_save(_heatmap(result), folder / name))
    return written


def _against_rate(results: Sequence[CellResult], mode: str) -> Figure:
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, label in enumerate(_labels(results)):
        points = _by_rate([result for result in results if result.cell.label == label])
        rates = [fsum(one.figures.rate_achieved for one in same) / len(same) for same in points]
        style = {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)], "label": label, "linewidth": 1.2}
        left.plot(rates, [100 * fsum(one.figures.attainment for one in same) / len(same) for same in points], **style)
        ttft = [mean([one.figures.ttft_p90 for one in same]) for same in points]
        right.plot(rates, [float("nan") if value is None else value for value in ttft], **style)
    left.axhline(90, color="grey", linewidth=0.7, linestyle=":")
    left.set(xlabel="requests per second", ylabel="served within the SLO, % of all that arrived", ylim=(-2, 102))
    slo = results[0].cell.targets.ttft_seconds
    right.axhline(slo, color="grey", linewidth=0.7, linestyle=":")
    right.set(xlabel="requests per second", ylabel="P90 TTFT of served requests, s", yscale="log")
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_formatter("{x:g}")
    left.legend(fontsize=7)
    figure.suptitle(f"{results[0].cell.spec.preset.origin}, early rejection {mode.lower()}, TTFT SLO {slo:g} s")
    return figure


def _balance(results: Sequence[CellResult], mode: str) -> Figure:
    """Return a plot of hit rate against the imbalance of load, with one point per policy and rate. A point is better
    the further up and the further left it is.
    """
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, label in enumerate(_labels(results)):
        points = _by_rate([result for result in results if result.cell.label == label])
        axes.plot(
            [fsum(one.figures.load_cv for one in same) / len(same) for same in points],
            [100 * fsum(one.figures.hit_rate for one in same) / len(same) for same in points],
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            linestyle=":",
            linewidth=0.8,
            label=label,
        )
    ideal = 100 * results[0].figures.ideal_hit_rate
    axes.axhline(ideal, color="grey", linewidth=0.7, linestyle="--")
    axes.annotate("endless shared cache", (0, ideal), fontsize=7, color="grey", va="bottom")
    axes.set(
        xlabel="coefficient of variation of pending prefill tokens", ylabel="hit rate, % of prompt tokens", xlim=(0, None), ylim=(0, None)
    )
    axes.legend(fontsize=7)
    figure.suptitle(f"Hit rate against balance, early rejection {mode.lower()} (one point per rate)")
    return figure


def _heatmap(result: CellResult) -> Figure:
    """Return a plot of the pending prefill tokens of each instance over time. A dot marks the target of a migration or
    of a re-route.
    """
    names = sorted({name for _, pending in result.loads for name in pending})
    step = max(1, len(result.loads) // _HEAT_COLUMNS)
    columns = [result.loads[begin : begin + step] for begin in range(0, len(result.loads), step)]
    cells = [[max(pending.get(name, nan) for _, pending in column) for column in columns] for name in names]
    end = result.loads[-1][0]
    figure = Figure(figsize=(11, 1.2 + 0.28 * len(names)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        cells, aspect="auto", interpolation="nearest", origin="lower", cmap="cividis", extent=(0, end, -0.5, len(names) - 0.5), vmin=0
    )
    axes.set_facecolor("#dddddd")  # no such instance at that time
    row = {name: number for number, name in enumerate(names)}
    moves = [move for move in result.moves if move[2] in row]
    axes.scatter([move[0] for move in moves], [row[move[2]] for move in moves], s=3, color="#d55e00", linewidths=0)
    axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.set(xlabel="seconds")
    figure.colorbar(image, label="pending prefill, tokens")
    figure.suptitle(f"{result.cell.label} at {result.figures.rate_achieved:.2f}/s: {len(moves)} moves (dots, at their target)")
    return figure


def _busiest(results: Sequence[CellResult]) -> list[CellResult]:
    """Return one run for each policy: among its runs with seed 0 and recorded loads, the run with the highest rate.
    Policies without such runs are left out.
    """
    chosen: list[CellResult] = []
    for label in _labels(results):
        of_label = [result for result in results if result.cell.label == label and result.cell.plan.seed == 0 and result.loads]
        if of_label:
            chosen.append(max(of_label, key=lambda result: result.cell.plan.rate))
    return chosen


def _by_rate(results: Sequence[CellResult]) -> list[list[CellResult]]:
    rates = sorted({result.cell.plan.rate for result in results})
    return [[result for result in results if result.cell.plan.rate == rate] for rate in rates]


def _labels(results: Sequence[CellResult]) -> list[str]:
    return list(dict.fromkeys(result.cell.label for result in results))


def _file_name(label: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in label)


def _save(figure: Figure, path: Path) -> Path:
    png = path.with_name(f"{path.name}.png")
    figure.savefig(png, dpi=130, metadata={"Software": None})
    figure.savefig(path.with_name(f"{path.name}.svg"), metadata={"Date": None})
    return png
