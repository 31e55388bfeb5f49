"""Summaries of results: means over seeds, and the goodput."""

from dataclasses import replace

import pytest
from rich.console import Console

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Figures, Targets, measure
from fairlead_simulator.experiments.result_tables import goodput, mean, result_tables
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.run_results import RunResult

NOTHING: Figures = measure(RunResult([]), [], 0, Targets(ttft_seconds=5.0))


def result(rate: float, attainment: float, *, seed: int = 0, label: str = "ear", mode: str = "Disabled") -> CellResult:
    spec = SimulatedPool(preset=preset("vllm-h100-8b"), instances=2, early_rejection=mode, prefill_tokens_per_second=1.0)
    cell = Cell(label=label, spec=spec, plan=ArrivalPlan(rate=rate, seed=seed), targets=Targets(ttft_seconds=5.0))
    figures = replace(NOTHING, attainment=attainment, rate_achieved=rate)
    return CellResult(cell=cell, figures=figures, refusals={}, wall_seconds=0.0, cpu_seconds=0.0, events=0)


def test_goodput_is_the_largest_tested_rate_with_90_percent_in_time() -> None:
    assert goodput([result(1.0, 1.0), result(2.0, 0.9), result(3.0, 0.899)]) == 2.0
    assert goodput([result(1.0, 0.8), result(2.0, 0.95)]) == 2.0, "a dip below is not a limit"
    assert goodput([result(1.0, 0.5)]) is None


def test_goodput_takes_the_mean_over_seeds() -> None:
    assert goodput([result(1.0, 0.8), result(1.0, 1.0, seed=1)]) == 1.0
    assert goodput([result(1.0, 0.79), result(1.0, 1.0, seed=1)]) is None


def test_a_mean_leaves_out_what_is_not_known() -> None:
    assert mean([1.0, None, 3.0]) == pytest.approx(2.0)
    assert mean([None]) is None


def test_there_is_a_table_per_mode_with_a_row_per_rate_and_policy_and_its_goodput() -> None:
    results = [
        result(rate, 0.95 if rate < 2 else 0.5, label=label, mode=mode)
        for mode in ("Disabled", "Load")
        for rate in (1.0, 2.0)
        for label in ("ear", "a")
    ]
    tables = list(result_tables(results))
    assert [table.row_count for table in tables] == [4, 2, 4, 2]
    console = Console(width=150, record=True, quiet=False, file=None)
    with console.capture() as printed:
        for table in tables:
            console.print(table)
    text = printed.get()
    assert "early rejection disabled" in text
    assert "early rejection load" in text
    assert text.count("1.00/s") == 4
