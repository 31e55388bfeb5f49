"""EAR's runs: policies with their parameters on running agent sessions.

Beyond a run's usual figures they have the tail of every instance, moves per session, and how much longer a closed loop
takes than its trace.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from math import fsum
from multiprocessing import get_context
from statistics import median
from typing import Any

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Figures, Targets, measure
from fairlead_simulator.experiments.saturation import Saturation, believed_speed, estimate_saturation
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.run_results import RunResult
from fairlead_simulator.traces.descriptions import percentile
from fairlead_simulator.workloads.kinds import KINDS
from reproductions.sections import Context

PRESET = preset("vllm-h100-8b")
INSTANCES = 8
SLO_SECONDS = 5.0
REQUESTS = 4000
SETTLED_SECONDS = 4000.0
"""Seconds of the generated sessions that are left out before the first used request.

By then the first of the longest sessions have ended.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A policy with its parameters. `fetching` says whether engines can fetch KV blocks from each other."""

    label: str
    policy: str
    parameters: dict[str, Any] = field(default_factory=dict)
    fetching: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A run. Agent sessions begin at a rate at which engines that answer at once would get `rate` requests per
    second.
    """

    variant: Variant
    rate: float
    seed: int
    closed_loop: bool
    requests: int
    settled_seconds: float = SETTLED_SECONDS

    @property
    def warmup(self) -> int:
        """The number of first requests that are not measured, because caches fill meanwhile."""
        return self.requests // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of a run.

    `tails` has, for each instance, the P90 of TTFT (seconds) of the requests that it served, in ascending order.
    """

    setting: Setting
    figures: Figures
    tails: tuple[float, ...]
    moves_mean: float
    """Migrations per session."""
    moves_most: int
    """The largest number of migrations of a session."""
    beyond_bound: int
    """The number of sessions that migrated more than 1 + lifetime / T_cool times; 0 if the variant has no cooldown."""
    amplification: float
    """The seconds from the first arrival to the last end, divided by the span of the trace's timestamps at this rate.
    """

    @property
    def hotspot_index(self) -> float:
        """The P90 of TTFT of the worst instance, divided by the P90 of TTFT of the median instance."""
        return self.tails[-1] / median(self.tails)


@lru_cache(maxsize=2)
def agents(rate: float, seed: int, requests: int, settled_seconds: float) -> tuple[Workload, list[int]]:
    """Return requests of the agentic generator after `settled_seconds`, and the tokens of each that an endless shared
    cache would save.
    """
    skipped = int(settled_seconds * rate)
    rows = islice(KINDS["agentic"].rows(rate, None, seed), skipped, skipped + requests)
    workload = load_workload(rows, requests=None, max_input=None, infer_sessions=False)
    return workload, ideal_hits(workload)[0]


def ceiling(rate: float, seed: int, requests: int, settled_seconds: float = SETTLED_SECONDS) -> Saturation:
    """Return an upper bound of the pool's throughput on this workload."""
    workload, ideal = agents(rate, seed, requests, settled_seconds)
    return estimate_saturation(workload, ideal, PRESET, INSTANCES, 0, 0)


def pool(variant: Variant, seed: int, believed_tokens_per_second: float) -> SimulatedPool:
    """Return a pool of eight instances to which every request is sent at once, as by a gateway without queues."""
    return SimulatedPool(
        preset=PRESET,
        instances=INSTANCES,
        policy=variant.policy,
        parameters=variant.parameters,
        prefills_in_flight=0,
        slo_ttft_seconds=SLO_SECONDS,
        slo_tpot_seconds=PRESET.slo_tpot_seconds,
        prefill_tokens_per_second=believed_tokens_per_second,
        fetching=variant.fetching,
        knows_decode_times=True,
        seed=seed,
    )


def simulate(setting: Setting) -> Outcome:
    """Run a setting and return its outcome."""
    workload, ideal = agents(setting.rate, setting.seed, setting.requests, setting.settled_seconds)
    cell = Cell(
        label=setting.variant.label,
        spec=pool(setting.variant, setting.seed, believed_speed(workload, ideal, PRESET)),
        plan=ArrivalPlan(rate=setting.rate, seed=setting.seed, closed_loop=setting.closed_loop),
        targets=Targets(ttft_seconds=SLO_SECONDS),
    )
    _, result = simulate_cell(workload, ideal, cell)
    # The plan has no warm-up of its own: it would stretch the two parts differently.
    figures = measure(result, ideal, setting.warmup, cell.targets)
    moves = Counter(move.session or "" for move in result.migrations)
    cooldown = cooldown_seconds(setting.variant)
    return Outcome(
        setting=setting,
        figures=figures,
        tails=tails(result.jobs, setting.warmup),
        moves_mean=moves.total() / len(set(workload.sessions)),
        moves_most=max(moves.values(), default=0),
        beyond_bound=sessions_beyond_bound(result, cooldown) if cooldown else 0,
        amplification=amplification(result, workload, setting.rate),
    )


def cooldown_seconds(variant: Variant) -> float:
    """Return T_cool of a variant in seconds; 0 for a policy without a cooldown, which does not bound a session's
    moves.
    """
    defaults = {name: shape.default for name, shape in BUILT_IN.parameters(variant.policy).items()}
    return float(variant.parameters.get("cooldown_seconds", defaults.get("cooldown_seconds") or 0.0))


def tails(jobs: Sequence[Job], warmup: int) -> tuple[float, ...]:
    """Return the P90 of TTFT of each instance that served a measured request, in ascending order."""
    by_instance: defaultdict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job.index >= warmup and job.first_token_at >= 0:
            by_instance[job.instance].append(job.first_token_at - job.arrives_at)
    return tuple(sorted(percentile(sorted(ttfts), 90) for ttfts in by_instance.values()))


def sessions_beyond_bound(result: RunResult, cooldown_seconds: float) -> int:
    """Return the number of sessions that migrated more often than their lifetime (first to last arrival) allows."""
    lives: dict[str, tuple[float, float]] = {}
    for job in result.jobs:
        if job.session is not None and job.arrives_at >= 0:
            born, died = lives.get(job.session, (job.arrives_at, job.arrives_at))
            lives[job.session] = (min(born, job.arrives_at), max(died, job.arrives_at))
    moves = Counter(move.session or "" for move in result.migrations)
    return sum(count > 1 + (lives[session][1] - lives[session][0]) / cooldown_seconds for session, count in moves.items())


def amplification(result: RunResult, workload: Workload, rate: float) -> float:
    """Return the span of the run divided by the trace's span at `rate`; 1 if the trace's span is 0."""
    stamped = (len(workload.rows) - 1) / rate
    ended = max((job.finished_at for job in result.jobs), default=0.0)
    began = min((job.arrives_at for job in result.jobs if job.arrives_at >= 0), default=0.0)
    return (ended - began) / stamped if stamped else 1.0


def settings_for(
    context: Context, variants: Sequence[Variant], rates: Sequence[float], loops: Sequence[bool] = (False, True)
) -> list[Setting]:
    """Return the settings of all combinations; settings with the same workload are adjacent."""
    requests, settled = size_of(context)
    return [
        Setting(variant=variant, rate=rate, seed=seed, closed_loop=closed, requests=requests, settled_seconds=settled)
        for rate in rates
        for seed in range(context.seeds)
        for closed in loops
        for variant in variants
    ]


def size_of(context: Context) -> tuple[int, float]:
    """Return the number of requests of a run, and the seconds of the trace that are left out before them."""
    return (160, 60.0) if context.quick else (REQUESTS, SETTLED_SECONDS)


def run_all(context: Context, name: str, settings: Sequence[Setting]) -> list[Outcome]:
    """Return all outcomes in the settings' order, and report each as soon as it is found.

    Settings with the same workload should be adjacent, because workloads are cached.
    """
    found: list[Outcome] = []
    for outcome in _simulated(context.jobs, settings):
        found.append(outcome)
        one = outcome.setting
        loop = "closed" if one.closed_loop else "open"
        context.say(
            f"{name}: {len(found)}/{len(settings)}  {one.variant.label}, {one.rate:.2f}/s {loop}, seed {one.seed}: "
            f"P90 {outcome.figures.ttft_p90 or 0:.2f} s, hits {outcome.figures.hit_rate:.1%}"
        )
    return found


def _simulated(jobs: int, settings: Sequence[Setting]) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(simulate, settings)
        return
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as processes:
        yield from processes.map(simulate, settings, chunksize=4)


def mean_of(values: Sequence[float | None]) -> float:
    """Return the mean of the values that are not None; 0 if there are none."""
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else 0.0


def mean_figure(outcomes: Sequence[Outcome], figure: Callable[[Outcome], float | None]) -> float:
    """Return the mean of a figure over the runs that have it; 0 if no run has it."""
    return mean_of([figure(one) for one in outcomes])
