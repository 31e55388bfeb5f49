"""The same seed gives the same numbers: a small experiment against recorded and reviewed figures.

To change them on purpose: FAIRLEAD_WRITE_GOLDEN=1 pytest tests/simulation/pools/test_golden.py, then read the
difference.
"""

import os
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest

from fairlead_simulator.engine_model.presets import PRESETS, preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.workloads.kinds import KINDS

GOLDEN = Path(__file__).parent.parent / "golden" / "small-experiment.json"
WRITING = os.environ.get("FAIRLEAD_WRITE_GOLDEN") == "1"


def experiment() -> list[dict[str, Any]]:
    """Return the results of round robin, whose rules will not change, on each preset.

    Rates are the estimated saturation and above.
    """
    rows: list[dict[str, Any]] = []
    for name in PRESETS:
        one = preset(name)
        workload = load_workload(
            islice(KINDS["tool-agent"].rows(None, None, 1), 500), requests=None, max_input=one.max_input_tokens, infer_sessions=True
        )
        ideal, _ = ideal_hits(workload)
        rate = estimate_saturation(workload, ideal, one, 4, 0, 0).requests_per_second
        for factor in (1.0, 1.5):
            spec = SimulatedPool(
                preset=one,
                instances=4,
                policy="round-robin",
                slo_ttft_seconds=one.slo_ttft_seconds,
                prefill_tokens_per_second=believed_speed(workload, ideal, one),
            )
            cell = Cell(
                label="round-robin",
                spec=spec,
                plan=ArrivalPlan(rate=factor * rate, warmup=50),
                targets=Targets(ttft_seconds=one.slo_ttft_seconds),
            )
            result, _ = simulate_cell(workload, ideal, cell)
            rows.append({key: value for key, value in result.document().items() if key != "events" and not key.endswith("_seconds")})
    return rows


def rounded(value: Any) -> Any:
    """Return the value to nine digits, as another libm may differ in the last place."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return value


def test_a_small_experiment_gives_the_figures_written_down() -> None:
    found = [rounded(row) for row in experiment()]
    if WRITING:
        GOLDEN.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
        pytest.skip("golden figures written; read the difference")
    assert found == orjson.loads(GOLDEN.read_bytes())
