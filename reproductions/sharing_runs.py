"""Runs of the section on sharing a pool: the same arrivals, assigned by session to tenants or to priority classes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import fsum
from random import Random

from fairlead.tables import FAIR_TENANTS, PriorityClass
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Part, Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from reproductions.runs import run, workload
from reproductions.sections import Context

PRESET = preset("dualmap-910b4-qwen7b")
INSTANCES = 8
REQUESTS, WARMUP = 4000, 500
LOADS = (0.9, 1.25)
CLASS_LOAD = 1.25
MODES = ("Disabled", "Load")

FLOOD = "flood"
OTHERS = tuple(f"t{number}" for number in range(9))
FLOODED = {FLOOD: 10.0} | dict.fromkeys(OTHERS, 1.0)
"""For each tenant, its share of all sessions, as a weight."""
EQUAL = dict.fromkeys((FLOOD, *OTHERS), 1.0)

CRITICAL, STANDARD, SHEDDABLE = "critical", "standard", "sheddable"
CLASSES = (
    PriorityClass(name=CRITICAL, priority=10),
    PriorityClass(name=STANDARD, priority=0),
    PriorityClass(name=SHEDDABLE, priority=-10, share=0.6),
)
CLASS_PARTS = {CRITICAL: 0.2, STANDARD: 0.5, SHEDDABLE: 0.3}
"""For each priority class, its share of all sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A combination of settings. `weights` are the tenants' weights as pairs; if empty, all requests are of one
    tenant.
    """

    load: float
    mode: str
    fairness: str = "None"
    weights: tuple[tuple[str, float], ...] = ()
    declared: bool = False
    """Whether the pool declares the priority classes that requests name. Requests name classes only if there are no
    tenants.
    """


Runs = dict[Trial, list[CellResult]]


def trials() -> Iterator[Trial]:
    """Yield all combinations that the section describes."""
    for mode in MODES:
        for load in LOADS:
            for weights in (FLOODED, EQUAL):
                for fairness in ("None", FAIR_TENANTS):
                    yield Trial(load=load, mode=mode, fairness=fairness, weights=tuple(weights.items()))
        for declared in (False, True):
            yield Trial(load=CLASS_LOAD, mode=mode, declared=declared)


def run_trials(context: Context) -> Runs:
    """Return each trial's results, one for each seed."""
    runs: Runs = {trial: [] for trial in trials()}
    for seed in range(context.seeds):
        plain = _loaded(context, seed)
        for kind in dict.fromkeys(trial.weights for trial in runs):
            loaded = _given(plain, dict(kind), seed)
            same = [trial for trial in runs if trial.weights == kind]
            results = run(context, "sharing", loaded, [_cell(context, loaded, trial, seed) for trial in same])
            for trial, result in zip(same, results, strict=True):
                runs[trial].append(result)
    return runs


def of(results: Sequence[CellResult], chosen: Callable[[Part], bool], figure: Callable[[Part], float | None]) -> float:
    """Return the mean of a figure over the requests of the chosen parts of all runs; 0 if there are none."""
    parts = [part for result in results for part in result.parts if chosen(part) and figure(part) is not None]
    total = sum(part.requests for part in parts)
    return fsum((figure(part) or 0.0) * part.requests for part in parts) / total if total else 0.0


def least(results: Sequence[CellResult], chosen: Callable[[Part], bool]) -> float:
    """Return the mean over runs of the lowest attainment among the chosen tenants."""
    found = [min((part.attainment for part in result.parts if chosen(part)), default=0.0) for result in results]
    return fsum(found) / len(found) if found else 0.0


def _loaded(context: Context, seed: int) -> Workload:
    requests = 120 if context.quick else REQUESTS
    return workload("conversation", requests=requests, max_input=PRESET.max_input_tokens, recorded=context.conversation, seed=seed)


def _given(loaded: Workload, weights: dict[str, float], seed: int) -> Workload:
    """Return the workload with a tenant for each session, or with a priority class if there are no tenants."""
    parts = weights or CLASS_PARTS
    rng = Random(f"sharing/{seed}")

    @cache
    def whose(session: str) -> str:
        return rng.choices(tuple(parts), tuple(parts.values()))[0]

    names = tuple(whose(session or f"row {number}") for number, session in enumerate(loaded.sessions))
    return replace(loaded, tenants=names) if weights else replace(loaded, classes=names)


def _cell(context: Context, loaded: Workload, trial: Trial, seed: int) -> Cell:
    ideal, _ = ideal_hits(loaded)
    saturation = estimate_saturation(loaded, ideal, PRESET, INSTANCES, 0, 0).requests_per_second
    spec = SimulatedPool(
        preset=PRESET,
        instances=INSTANCES,
        policy="fairlead",
        early_rejection=trial.mode,
        fairness=trial.fairness,
        priority_classes=CLASSES if trial.declared else (),
        prefill_tokens_per_second=believed_speed(loaded, ideal, PRESET),
        slo_ttft_seconds=PRESET.slo_ttft_seconds,
        seed=seed,
    )
    plan = ArrivalPlan(rate=trial.load * saturation, warmup=10 if context.quick else WARMUP, seed=seed)
    label = f"{trial.mode}, fairness {trial.fairness}" + ", classes" * trial.declared
    return Cell(label=label, spec=spec, plan=plan, targets=Targets(ttft_seconds=PRESET.slo_ttft_seconds))
