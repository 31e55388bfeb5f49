"""The setup that all parts of the DualMap section share: two workloads, the compared policies, and their runs.

Algorithms and settings are those of the paper's evaluation: eight instances of its first testbed, prompts below 20,480
tokens, and 4,000 requests of which the first 500 warm the caches.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import estimate_saturation
from fairlead_simulator.simulation.pools import SimulatedPool
from reproductions import runs
from reproductions.sections import Context

PRESET = preset("dualmap-910b4-qwen7b")
INSTANCES = 8
TTFT_SLO_SECONDS = 5.0
NEVER_SECONDS = 1e9
NONE: Mapping[str, Any] = MappingProxyType({})
CODE_QUEUE: Mapping[str, Any] = MappingProxyType({"queue_discipline": "longest_hit", "queue_age_bound_seconds": NEVER_SECONDS})
"""The published code's queue in the router: the request with the most cached tokens first, however long others wait."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#000000")
MARKERS = "osD^vP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A policy with parameters, under its own name.

    With `at_once` there is no queue in the router, so that requests wait in the engines.
    """

    label: str
    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    at_once: bool = False
    anchors: int = 160

    @property
    def hashes(self) -> bool:
        """Whether the policy hashes ids.

        All other policies decide the same with every seed, because arrival times do not depend on the seed. So they
        need only one run.
        """
        return self.policy in ("dualmap", "cache-affinity")


DUALMAP = Variant(label="dualmap", policy="dualmap")
BASELINES = tuple(Variant(label=name, policy=name) for name in ("cache-affinity", "least-loaded", "min-ttft", "preble"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A workload on the pool.

    `saturation` in requests per second is an upper bound: with an endless shared cache and the largest decode batches.
    """

    context: Context
    name: str
    title: str
    loaded: Workload
    saturation: float
    warmup: int
    warmup_rate: float
    ideal_hit_rate: float

    def cell(self, variant: Variant, multiple: float, seed: int) -> Cell:
        """Return the run of a variant at `multiple` times the saturation.

        Ids of blocks and instances contain the seed, so that hashes differ from seed to seed.
        """
        spec = SimulatedPool(
            preset=PRESET,
            instances=INSTANCES,
            policy=variant.policy,
            parameters=dict(variant.parameters),
            prefills_in_flight=0 if variant.at_once else 1,
            anchors=variant.anchors,
            prefill_tokens_per_second=1 / PRESET.prefill.per_token,
            seed=seed,
        )
        plan = ArrivalPlan(rate=multiple * self.saturation, warmup=self.warmup, warmup_rate=self.warmup_rate, spread="even", seed=seed)
        return Cell(label=variant.label, spec=spec, plan=plan, targets=Targets(ttft_seconds=TTFT_SLO_SECONDS))

    def run(self, variants: Sequence[Variant], multiples: Sequence[float], seeds: int) -> "Results":
        """Run all variants at all rates. Variants whose decisions depend on the seed run with each of `seeds` seeds."""
        cells = {
            (variant.label, multiple): [self.cell(variant, multiple, seed) for seed in range(seeds if variant.hashes else 1)]
            for variant in variants
            for multiple in multiples
        }
        found = iter(runs.run(self.context, f"dualmap, {self.name}", self.loaded, [cell for same in cells.values() for cell in same]))
        return Results({key: [next(found) for _ in same] for key, same in cells.items()})


class Results:
    """Runs by (label, multiple of the saturation); figures are means over the seeds."""

    def __init__(self, cells: Mapping[tuple[str, float], Sequence[CellResult]]) -> None:
        self.cells = cells

    def with_others(self, others: "Results") -> "Results":
        """Return these results together with those of another run."""
        return Results({**self.cells, **others.cells})

    def multiples(self, label: str) -> list[float]:
        """Return the rates at which a variant was run, as ascending multiples of the saturation."""
        return sorted(multiple for name, multiple in self.cells if name == label)

    def mean(self, label: str, multiple: float, figure: str) -> float:
        """Return the mean over seeds of a field of `Figures`. Runs in which the field is None do not count."""
        return runs.mean(self.cells[label, multiple], lambda figures: getattr(figures, figure))

    def attainments(self, label: str, multiple: float) -> list[float]:
        """Return the attainment of each seed."""
        return [result.figures.attainment for result in self.cells[label, multiple]]

    def goodput(self, label: str) -> float:
        """Return the multiple of the saturation at which mean attainment falls below 90 %; see `crossing`."""
        return crossing([(multiple, self.mean(label, multiple, "attainment")) for multiple in self.multiples(label)])


def crossing(points: Sequence[tuple[float, float]], level: float = runs.GOODPUT_ATTAINMENT) -> float:
    """Return the rate at which attainment first falls below `level`, by linear interpolation.

    `points` are (rate, attainment), sorted by rate. If the first point is already below `level`, return 0, because the
    true rate is lower than all tested rates. If no point is below it, return the last rate, because the true rate is
    higher.
    """
    before: tuple[float, float] | None = None
    for rate, attainment in points:
        if attainment < level:
            if before is None:
                return 0.0
            return before[0] + (rate - before[0]) * (before[1] - level) / (before[1] - attainment)
        before = (rate, attainment)
    return 0.0 if before is None else before[0]


def best(labels: Iterable[str], value: Mapping[str, float]) -> str:
    """Return the label with the largest value; if several are equal, the first of them."""
    return max(labels, key=lambda label: value[label])


def studies(context: Context) -> tuple[Study, Study]:
    """Return the conversation workload (recorded if the context has the trace), and a generated workload like
    Tool&Agent.
    """
    return (
        _study(context, "conversation", "Conversation", 0.3, context.conversation),
        _study(context, "tool-agent", "Tool&Agent-like", 0.5, None),
    )


def _study(context: Context, kind: str, title: str, warmup_rate: float, recorded: Path | None) -> Study:
    loaded = runs.workload(kind, requests=240 if context.quick else 4000, max_input=PRESET.max_input_tokens, recorded=recorded)
    warmup = 40 if context.quick else 500
    ideal, _ = ideal_hits(loaded)
    tokens = sum(row.input_length for row in loaded.rows[warmup:])
    return Study(
        context=context,
        name=kind,
        title=title,
        loaded=loaded,
        saturation=estimate_saturation(loaded, ideal, PRESET, INSTANCES, 0, 0).requests_per_second,
        warmup=warmup,
        warmup_rate=warmup_rate,
        ideal_hit_rate=sum(ideal[warmup:]) / tokens,
    )
