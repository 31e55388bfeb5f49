"""Runs many simulations for a section and reads their figures: means over seeds, Markdown tables."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import fsum
from pathlib import Path

from fairlead_simulator.experiments.arrival_plans import Workload, load_workload
from fairlead_simulator.experiments.cells import Cell, CellResult, run_cells
from fairlead_simulator.experiments.measuring import Figures
from fairlead_simulator.traces.rows import TraceRow, read_trace
from fairlead_simulator.workloads.kinds import KINDS
from reproductions.sections import Context

GOODPUT_ATTAINMENT = 0.9


def workload(
    kind: str, *, requests: int, max_input: int | None, recorded: Path | None = None, seed: int = 0, infer_sessions: bool = True
) -> Workload:
    """Return the first `requests` rows shorter than `max_input`, of a recorded trace if given, otherwise of the
    generator `kind`.
    """
    rows: Iterable[TraceRow] = read_trace(recorded) if recorded is not None else islice(KINDS[kind].rows(None, None, seed), 3 * requests)
    return load_workload(rows, requests=requests, max_input=max_input, infer_sessions=infer_sessions)


def run(context: Context, name: str, loaded: Workload, cells: Sequence[Cell], *, keep_loads: bool = False) -> list[CellResult]:
    """Return the results of all cells in order, and print the progress."""
    found: list[CellResult] = []
    for result in run_cells(loaded, cells, processes=context.jobs, keep_loads=keep_loads, on_progress=lambda _: None):
        found.append(result)
        figures = result.figures
        context.say(
            f"{name}: {len(found)}/{len(cells)}  {result.cell.label}, {result.cell.plan.rate:.2f}/s, seed {result.cell.plan.seed}: "
            f"{figures.attainment:.1%} in time"
        )
    return sorted(found, key=lambda result: cells.index(result.cell))


def mean(results: Iterable[CellResult], figure: Callable[[Figures], float | None]) -> float:
    """Return the mean of a figure over runs. Runs in which it is None (no request served) do not count; 0 if all are
    None.
    """
    values = [value for result in results if (value := figure(result.figures)) is not None]
    return fsum(values) / len(values) if values else 0.0


def goodput(results: Iterable[CellResult]) -> float:
    """Return the largest planned rate in requests per second at which the mean attainment is at least 90 %; 0 if there
    is none.
    """
    by_rate: dict[float, list[CellResult]] = {}
    for result in results:
        by_rate.setdefault(result.cell.plan.rate, []).append(result)
    return max((rate for rate, same in by_rate.items() if mean(same, lambda one: one.attainment) >= GOODPUT_ATTAINMENT), default=0.0)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. All columns except the first are aligned to the right."""
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(share: float) -> str:
    """Return a share as text in per cent, with one digit after the point."""
    return f"{100 * share:.1f} %"
