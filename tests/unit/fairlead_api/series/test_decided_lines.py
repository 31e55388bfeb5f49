"""Numbers that controllers recommended, as lines of a chart."""

from types import SimpleNamespace
from typing import Any

from fairlead.scaling.recommendations import Controller
from fairlead_api.series.store.pool_changes import decided_lines


def row(controller: Controller, at: float, recommended: int, load: float) -> Any:
    signals = [{"role": "prefill", "prefill_load": load, "decode_load": None}]
    return SimpleNamespace(step=3, role="prefill", controller=controller, at=at, recommended=recommended, signals=signals)


def test_each_controller_has_its_own_line_and_loads_are_the_newest() -> None:
    rows = [row(Controller.RATIO, 2.0, 3, 0.9), row(Controller.SCALING, 1.0, 7, 0.4)]
    for given in (rows, rows[::-1]):
        assert decided_lines(given) == {
            ("instances_recommended", "prefill"): {3: 7.0},
            ("instances_recommended", "prefill, ratio"): {3: 3.0},
            ("prefill_load", "prefill"): {3: 0.9},
        }
