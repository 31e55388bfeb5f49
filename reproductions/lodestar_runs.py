"""Runs of the section on Lodestar: pools of equal and of mixed instances, with constant workloads and a changing
one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from math import fsum

from fairlead.predictors.reports import HeuristicReason
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.jobs import Phase
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.descriptions import percentile
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.workloads.kinds import KINDS
from reproductions.sections import Context

INSTANCES = 8
REQUESTS, WARMUP = 5_000, 2_500
"""The number of requests of a run, and of its warm-up. Two training rounds of 1,000 samples end before the 2,500th
request.
"""
PHASE = 2_400
"""The number of requests of each part of the changing workload. The last part is measured."""
MIXED = (1.0, 0.5)
HEURISTIC, LEARNT = "prefix-cache-load", "lodestar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A pool and its workload. `load` is a share of the estimated saturation of the pool, with the instances' real
    speeds.
    """

    preset: str = "dualmap-910b4-qwen7b"
    kind: str = "tool-agent"
    speeds: tuple[float, ...] = (1.0,)
    load: float = 0.6

    @property
    def name(self) -> str:
        """The setting as a text for tables."""
        pool = "mixed" if len(self.speeds) > 1 else "equal"
        return f"{self.kind}, {pool}, `{self.preset}`, {self.load:g}×"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy with its parameters, as a hashable value."""

    policy: str
    parameters: tuple[tuple[str, str | float], ...] = ()

    @property
    def label(self) -> str:
        """The policy and its parameters as a text for tables."""
        given = ", ".join(f"{name} {value}" for name, value in self.parameters)
        return f"`{self.policy}`" + (f", {given}" if given else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of a run over the measured requests. TTFTs are in seconds, of the served requests."""

    mean: float
    p50: float
    p99: float
    hit_rate: float
    on_fast: float
    """Share of the computed prompt tokens that were computed by instances of full speed."""
    refused: float = 0.0
    """Share of the measured requests that were not served."""
    learnt: float = 0.0
    """Share of all choices that the model made."""
    out_of_distribution: float = 0.0
    error: float = 0.0
    """Mean absolute error of the predictions for the last 500 requests, divided by the mean TTFT of these requests."""


Runs = Mapping[tuple[Setting, Contender], Sequence[Outcome]]


def observe(
    context: Context, settings: Iterable[Setting], contenders: Sequence[Contender]
) -> dict[tuple[Setting, Contender], list[Outcome]]:
    """Run every contender in every setting, and return an outcome for each seed."""
    found: dict[tuple[Setting, Contender], list[Outcome]] = {}
    for setting in settings:
        for contender in contenders:
            found[setting, contender] = [_run(context.quick, setting, contender, seed) for seed in range(context.seeds)]
            context.say(f"lodestar: {setting.name}: {contender.label}: {mean_of(found[setting, contender], 'mean'):.3f} s")
    return found


def mean_of(outcomes: Sequence[Outcome], figure: str) -> float:
    """Return the mean of a figure over the seeds."""
    return fsum(getattr(one, figure) for one in outcomes) / len(outcomes)


@cache
def _workload(kind: str, quick: bool, longest: int | None) -> tuple[Workload, tuple[int, ...], int]:
    """Return the rows, the hits of an endless cache, and the number of rows that are not measured."""
    if kind == "changing":
        part = 60 if quick else PHASE
        rows: list[TraceRow] = []
        for number, one in enumerate(("tool-agent", "conversation", "tool-agent")):
            rows += _after(rows, islice(KINDS[one].rows(None, None, number), 2 * part), part, longest)
        loaded = load_workload(rows, requests=None, max_input=None, infer_sessions=True)
        unmeasured = 2 * part
    else:
        requests, unmeasured = (80, 20) if quick else (REQUESTS, WARMUP)
        drawn = islice(KINDS[kind].rows(None, None, 0), 3 * requests)
        loaded = load_workload(drawn, requests=requests, max_input=longest, infer_sessions=True)
    return loaded, tuple(ideal_hits(loaded)[0]), unmeasured


def _after(before: Sequence[TraceRow], rows: Iterable[TraceRow], count: int, longest: int | None) -> list[TraceRow]:
    """Return `count` rows shorter than `longest` with new block ids, whose times begin at the end of `before`."""
    begin = before[-1].timestamp_ms if before else 0
    first_id = 1 + max((block for row in before for block in row.hash_ids), default=-1)
    kept = list(islice((row for row in rows if longest is None or row.input_length < longest), count))
    return [
        replace(
            row,
            timestamp_ms=begin + row.timestamp_ms,
            hash_ids=tuple(first_id + block for block in row.hash_ids),
            session=None,
        )
        for row in kept
    ]


@cache
def _run(quick: bool, setting: Setting, contender: Contender, seed: int) -> Outcome:
    engine = preset(setting.preset)
    loaded, ideal, unmeasured = _workload(setting.kind, quick, engine.max_input_tokens)
    spec = SimulatedPool(
        preset=engine,
        instances=INSTANCES,
        speeds=setting.speeds,
        policy=contender.policy,
        parameters=dict(contender.parameters),
        slo_ttft_seconds=engine.slo_ttft_seconds,
        slo_tpot_seconds=engine.slo_tpot_seconds,
        prefill_tokens_per_second=believed_speed(loaded, ideal, engine),
        seed=seed,
    )
    worth = INSTANCES * fsum(setting.speeds) / len(setting.speeds)
    rate = setting.load * estimate_saturation(loaded, ideal, engine, worth, 0, 0).requests_per_second
    plan = ArrivalPlan(rate=rate, warmup=unmeasured, seed=seed)
    cell = Cell(label=contender.label, spec=spec, plan=plan, targets=Targets(ttft_seconds=engine.slo_ttft_seconds))
    figures, result = simulate_cell(loaded, ideal, cell)
    measured = [job for job in result.jobs if job.index >= unmeasured]
    served = [job for job in measured if job.phase is Phase.FINISHED]
    ttfts = sorted(job.first_token_at - job.arrives_at for job in served)
    computed = [(spec.speed_of(job.instance) >= 1.0, job.input_tokens - job.hit_tokens) for job in served]
    report = result.learning
    choices = 0 if report is None else report.learned_choices + sum(report.heuristic_choices.values())
    return Outcome(
        mean=fsum(ttfts) / len(ttfts),
        p50=percentile(ttfts, 50),
        p99=percentile(ttfts, 99),
        hit_rate=figures.figures.hit_rate,
        refused=1 - len(served) / len(measured),
        on_fast=sum(tokens for fast, tokens in computed if fast) / sum(tokens for _, tokens in computed),
        learnt=0.0 if report is None else report.learned_choices / choices,
        out_of_distribution=0.0 if report is None else report.heuristic_choices.get(HeuristicReason.OUT_OF_DISTRIBUTION, 0) / choices,
        error=0.0 if report is None or not report.mean_ttft_seconds else (report.error_seconds or 0.0) / report.mean_ttft_seconds,
    )
