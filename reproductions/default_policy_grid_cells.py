"""The grid in which the default policy is compared with others: its settings, and their figures.

Each row is written to a file as soon as it is found, so that a run can be stopped and continued.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fairlead_simulator.engine_model.presets import EnginePreset, preset
from fairlead_simulator.errors import SimulatorError
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.workloads.kinds import KINDS
from reproductions.sections import Context

OURS = "fairlead"
RIVALS = ("min-ttft", "ear", "mooncake", "dualmap", "lmetric", "dynamo", "cache-load-linear", "preble", "least-loaded", "heimdall")
"""The other policies that use the load of instances. Policies that do not use it are never the best; the section
`default_policy` has all.
"""
LONG_MEDIAN = 16_000.0
POSSIBLE = 0.8
RATES = (0.5, 0.75, 0.9, 1.0, 1.25, 1.5)
REQUESTS = {8: 1500, 32: 4000}
WARMUP = {8: 300, 32: 800}
QUICK_REQUESTS = 60


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Setting:
    """A workload and a pool.

    With mix `long`, the generator's median prompt is three times as long, but no prompt alone takes more than 0.8 of
    the SLO. With mix `impossible`, prompts are the generator's own, however long. `slo` is the target in seconds for
    the first token, and `mode` is the mode of early rejection.
    """

    preset: str
    kind: str
    mix: str
    slo: float
    instances: int
    mode: str

    def __str__(self) -> str:
        rejection = "off" if self.mode == "Disabled" else self.mode.lower()
        return f"{self.preset}, {self.kind}, {self.mix}, SLO {self.slo:g} s, {self.instances} instances, rejection {rejection}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GridCell:
    """A run. `rate` is a multiple of the estimated saturation."""

    setting: Setting
    rate: float
    policy: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """The figures of a run. Shares (0-1) are of all requests that arrived.

    `ttft_p99` is that of the served requests in seconds; 0 if none was served.
    """

    in_time: float
    """Share of requests with the first token within the SLO."""
    goodput: float
    """Share of requests that are within the SLO and also within the preset's TPOT SLO for each further token."""
    ttft_p99: float
    refused: float


Rows = dict[GridCell, GridRow]

WHOLE = tuple(
    Setting(preset=name, kind=kind, mix=mix, slo=slo, instances=instances, mode=mode)
    for name in ("dualmap-910b4-qwen7b", "vllm-h100-8b", "mooncake-a800-llama70b")
    for slo in (2.0, 5.0, 10.0)
    for kind in ("conversation", "tool-agent")
    for mix in ("long", "impossible")
    for instances in (8, 32)
    for mode in ("Disabled", "Predicted")
)
"""Every combination: 144 settings."""

_SPANNING = (
    ("conversation", "impossible", 8, "Disabled"),
    ("tool-agent", "long", 8, "Disabled"),
    ("conversation", "long", 32, "Predicted"),
    ("conversation", "long", 8, "Disabled"),
    ("tool-agent", "impossible", 32, "Predicted"),
    ("conversation", "impossible", 8, "Predicted"),
    ("tool-agent", "impossible", 8, "Disabled"),
    ("conversation", "impossible", 32, "Disabled"),
    ("tool-agent", "long", 8, "Predicted"),
)
SPANNING = tuple(
    Setting(preset=name, kind=kind, mix=mix, slo=slo, instances=instances, mode=mode)
    for (name, slo), (kind, mix, instances, mode) in zip(
        ((name, slo) for name in ("dualmap-910b4-qwen7b", "vllm-h100-8b", "mooncake-a800-llama70b") for slo in (2.0, 5.0, 10.0)),
        _SPANNING,
        strict=True,
    )
)
"""Nine settings, one for each preset and SLO. In them each preset occurs with each value of the other axes."""


def settings_of(context: Context) -> list[Setting]:
    """Return the requested settings. Raises SimulatorError if there are none, so that the page keeps its text."""
    grid = WHOLE if context.whole else SPANNING
    found = [setting for setting in grid if all(text in str(setting) for text in context.only)]
    if not found:
        raise SimulatorError(f"no setting of the grid has all of {', '.join(map(repr, context.only))} in its name")
    return found


def cells_of(context: Context, settings: Sequence[Setting]) -> list[GridCell]:
    """Return all runs, workload by workload."""
    return [
        GridCell(setting=setting, rate=rate, policy=policy, seed=seed)
        for setting in settings
        for seed in range(context.first_seed, context.first_seed + context.seeds)
        for rate in ((0.75, 1.25) if context.quick else RATES)
        for policy in (OURS, *(RIVALS[:2] if context.quick else RIVALS))
    ]


def measure(context: Context, cells: Sequence[GridCell]) -> Rows:
    """Return the figures of all cells. Cells whose rows are in the context's file are not run again."""
    kept = _read(context.rows) if context.rows is not None and context.rows.exists() else {}
    found = {cell: kept[cell] for cell in cells if cell in kept}
    for cell, row in _run([cell for cell in cells if cell not in kept], context):
        found[cell] = row
        if context.rows is not None:
            with context.rows.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps(asdict(cell.setting) | {"rate": cell.rate, "policy": cell.policy, "seed": cell.seed} | asdict(row)) + "\n"
                )
        context.say(
            f"{len(found)}/{len(cells)}  {cell.setting} at {cell.rate:g}x, {cell.policy}, seed {cell.seed}: "
            f"{row.in_time:.1%} in time, goodput {row.goodput:.1%}, P99 {row.ttft_p99:.1f} s, refused {row.refused:.1%}"
        )
    return found


def _run(cells: Sequence[GridCell], context: Context) -> Iterator[tuple[GridCell, GridRow]]:
    if context.jobs == 1:
        for cell in cells:
            yield cell, run_cell(cell, quick=context.quick)
        return
    with ProcessPoolExecutor(max_workers=context.jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_cell, cell, quick=context.quick): cell for cell in cells}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _read(path: Path) -> Rows:
    """Return the rows of a file. Raises SimulatorError for a line that is not a row, such as the last line of a killed
    run.
    """
    found: Rows = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row: dict[str, Any] = json.loads(line)
            setting = Setting(**{one.name: row[one.name] for one in fields(Setting)})
            cell = GridCell(setting=setting, rate=row["rate"], policy=row["policy"], seed=row["seed"])
            found[cell] = GridRow(**{one.name: row[one.name] for one in fields(GridRow)})
        except (ValueError, KeyError, TypeError) as error:
            raise SimulatorError(f"{path}, line {number}: not a row of the grid; take the line out") from error
    return found


def run_cell(cell: GridCell, *, quick: bool = False) -> GridRow:
    """Simulate a cell and return its figures."""
    setting = cell.setting
    engine = preset(setting.preset)
    workload, ideal = _loaded(setting, cell.seed, QUICK_REQUESTS if quick else REQUESTS[setting.instances])
    saturation = estimate_saturation(workload, ideal, engine, setting.instances, 0, 0).requests_per_second
    spec = SimulatedPool(
        preset=engine,
        instances=setting.instances,
        policy=cell.policy,
        early_rejection=setting.mode,
        prefill_tokens_per_second=believed_speed(workload, ideal, engine),
        slo_ttft_seconds=setting.slo,
        slo_tpot_seconds=engine.slo_tpot_seconds,
        seed=cell.seed,
    )
    plan = ArrivalPlan(rate=cell.rate * saturation, warmup=10 if quick else WARMUP[setting.instances], seed=cell.seed)
    targets = Targets(ttft_seconds=setting.slo, tpot_seconds=engine.slo_tpot_seconds)
    figures = simulate_cell(workload, ideal, Cell(label=cell.policy, spec=spec, plan=plan, targets=targets))[0].figures
    return GridRow(
        in_time=figures.ttft_attainment, goodput=figures.attainment, ttft_p99=figures.ttft_p99 or 0.0, refused=figures.rejected_share
    )


@lru_cache(maxsize=4)
def _loaded(setting: Setting, seed: int, requests: int) -> tuple[Workload, tuple[int, ...]]:
    """Return the workload of a setting, and the tokens of each request that an endless cache would save."""
    engine = preset(setting.preset)
    rows = (
        row
        for row in KINDS[setting.kind].rows(None, LONG_MEDIAN if setting.mix == "long" else None, seed)
        if _belongs(row, setting, engine)
    )
    made = load_workload(islice(rows, requests), requests=requests, max_input=engine.max_input_tokens, infer_sessions=True)
    return made, tuple(ideal_hits(made)[0])


def _belongs(row: TraceRow, setting: Setting, engine: EnginePreset) -> bool:
    if engine.max_input_tokens is not None and row.input_length >= engine.max_input_tokens:
        return False
    return setting.mix == "impossible" or engine.prefill.seconds(row.input_length, row.input_length) <= POSSIBLE * setting.slo
