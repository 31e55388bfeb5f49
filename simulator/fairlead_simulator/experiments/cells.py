"""An experiment: policies x rates x early rejection modes x seeds over one workload. Each combination is a cell, and
each cell is a run of its own.
"""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, parent_process
from typing import Any

from fairlead.errors import FairleadError
from fairlead_simulator.errors import CellFailed, SimulatorError, WorkloadImpossible
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, plan_jobs
from fairlead_simulator.experiments.measuring import Figures, Part, Targets, measure, measure_parts
from fairlead_simulator.simulation.autoscaling import SimulatedScaling, SizeChange
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pool_simulation import Simulation
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.run_results import RunResult
from fairlead_simulator.simulation.timeline import TimelineEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The description of one run of an experiment. `label` is the policy as the user wrote it."""

    label: str
    spec: SimulatedPool
    plan: ArrivalPlan
    quality: ObservationQuality = field(default_factory=ObservationQuality)
    timeline: tuple[TimelineEvent, ...] = ()
    scaling: SimulatedScaling | None = None
    """The rules by which the pool is scaled; None = only events of the timeline change the pool's size."""
    targets: Targets

    @property
    def name(self) -> str:
        """The name of this run within its experiment."""
        return f"{self.label} at {self.plan.rate:.2f}/s, early rejection {self.spec.early_rejection.lower()}, seed {self.plan.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """The figures of a cell. `cpu_seconds` is the CPU time of the simulation alone. `loads` and `moves` are empty
    unless they were requested.
    """

    cell: Cell
    figures: Figures
    refusals: dict[str, int]
    wall_seconds: float
    cpu_seconds: float
    events: int
    loads: tuple[tuple[float, dict[str, int]], ...] = ()
    moves: tuple[tuple[float, str, str], ...] = ()
    """Moves of sessions and requests, as (seconds of the run, source instance, target instance)."""
    sizes: tuple[SizeChange, ...] = ()
    """The changes of the pool's size that scaling made, in order of time."""
    parts: tuple[Part, ...] = ()
    """Figures by tenant and priority class; empty if all requests have the same tenant and the same class."""

    def document(self) -> dict[str, Any]:
        """Return the result as a row for JSON."""
        figures, cell = self.figures, self.cell
        row: dict[str, Any] = {
            "policy": cell.label,
            "early_rejection": cell.spec.early_rejection.lower(),
            "seed": cell.plan.seed,
            "rate_target": cell.plan.rate,
        }
        row |= {name: getattr(figures, name) for name in figures.__dataclass_fields__}
        row |= {
            "refusals": dict(sorted(self.refusals.items())),
            "instances": cell.spec.instances or cell.spec.prefill_instances + cell.spec.decode_instances,
            "sizes": [{"at": change.at, "role": change.role.value, "replicas": change.replicas} for change in self.sizes],
            "preset": cell.spec.preset.name,
            "mode": cell.spec.preset.mode,
            "engine_is_estimated": cell.spec.preset.is_estimated,
            "events": self.events,
            "cpu_seconds": round(self.cpu_seconds, 3),
            "wall_seconds": round(self.wall_seconds, 3),
        }
        return row


def check_fits(workload: Workload, spec: SimulatedPool) -> None:
    """Raise WorkloadImpossible if a row could never be served, because its prompt and answer need more than an
    instance's KV memory.
    """
    capacity = spec.preset.kv_tokens // spec.preset.block_tokens * spec.preset.block_tokens
    for number, row in enumerate(workload.rows, start=1):
        if row.input_length + row.output_length > capacity * 0.98:
            raise WorkloadImpossible(
                f"request {number} needs {row.input_length + row.output_length} tokens of KV memory ({row.input_length} in, "
                f"{row.output_length} out); an instance of preset {spec.preset.name} has {capacity}; leave such requests out "
                f"(--max-input bounds the prompt)"
            )


def simulate_cell(
    workload: Workload,
    ideal: Sequence[int],
    cell: Cell,
    *,
    keep_loads: bool = False,
    on_progress: Callable[[int], None] | None = None,
    probe: Callable[[Simulation, float], None] | None = None,
) -> tuple[CellResult, RunResult]:
    """Run one cell. Return the cell's figures and the run's whole result."""
    started, cpu = time.perf_counter(), time.process_time()
    with _without_collecting():
        jobs = plan_jobs(workload, cell.plan)
        simulation = Simulation(
            cell.spec,
            jobs,
            quality=cell.quality,
            timeline=cell.timeline,
            scaling=cell.scaling,
            on_progress=on_progress,
            probe=probe,
            keep_loads=keep_loads,
        )
        result = simulation.run()
    cpu_seconds = time.process_time() - cpu
    figures = measure(result, ideal, cell.plan.warmup, cell.targets)
    kept = CellResult(
        cell=cell,
        figures=figures,
        refusals=result.refusals,
        wall_seconds=time.perf_counter() - started,
        cpu_seconds=cpu_seconds,
        events=result.events,
        loads=tuple((point.at, point.pending) for point in result.loads),
        parts=measure_parts(result, cell.plan.warmup, cell.targets),
        sizes=() if simulation.autoscaler is None else tuple(simulation.autoscaler.changes),
        moves=tuple((move.at, move.source, move.target) for move in (*result.migrations, *result.reroutes)) if keep_loads else (),
    )
    return kept, result


def run_cells(
    workload: Workload, cells: Sequence[Cell], *, processes: int, keep_loads: bool, on_progress: Callable[[int], None]
) -> Generator[CellResult, None, None]:
    """Run the cells, and yield each result as soon as it is available. One process runs the cells in order.

    `on_progress` is called with the number of requests that have ended since its previous call. Raises CellFailed if a
    policy fails. If the caller stops iterating, runs in progress are ended.
    """
    ideal, _ = ideal_hits(workload)
    if processes == 1 or len(cells) == 1:
        for cell in cells:
            told = 0

            def tell(count: int) -> None:
                nonlocal told
                told += count
                on_progress(count)

            with _naming(cell):
                result, _ = simulate_cell(workload, ideal, cell, keep_loads=keep_loads, on_progress=tell)
            on_progress(len(workload.rows) - told)
            yield result
        return
    with ProcessPoolExecutor(max_workers=processes, mp_context=get_context("spawn"), initializer=_begin_worker) as pool:
        try:
            futures = [pool.submit(_in_process, workload, ideal, cell, keep_loads) for cell in cells]
            for future in as_completed(futures):
                result = future.result()
                on_progress(len(workload.rows))
                yield result
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():
                worker.terminate()
            raise


@contextmanager
def _naming(cell: Cell) -> Iterator[None]:
    """Within the block, replace errors that do not name the run, such as a policy's errors, by a CellFailed that names
    the run.
    """
    try:
        yield
    except (SimulatorError, FairleadError):
        raise
    except Exception as error:
        raise CellFailed(" ".join((f"{cell.name}: {type(error).__name__}: {error}", *getattr(error, "__notes__", ())))) from error


def _begin_worker() -> None:
    """Prepare a worker process to ignore Ctrl-C, which its parent handles, and to end when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Within the block, disable garbage collection. A run makes few reference cycles, and the search for them would
    take a fifth of the run's time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _in_process(workload: Workload, ideal: Sequence[int], cell: Cell, keep_loads: bool) -> CellResult:
    with _naming(cell):
        return simulate_cell(workload, ideal, cell, keep_loads=keep_loads)[0]
