"""Heimdall's benchmark in the simulator: its prompts, the engines, the contenders, and the figures of one run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from math import fsum
from multiprocessing import get_context
from typing import Any

from fairlead_simulator.engine_model.presets import EnginePreset, preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits, load_workload
from fairlead_simulator.experiments.cells import Cell, simulate_cell
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed
from fairlead_simulator.simulation.jobs import Phase
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.descriptions import percentile
from fairlead_simulator.workloads.prefix_groups import PrefixGroupShape, generate_prefix_groups
from reproductions.sections import Context

INSTANCES = 8
PERCENTS = (50, 75, 90, 99)
SHAPE = PrefixGroupShape()
PREAMBLE_BLOCK = 1 << 40
"""The id of the block with which all tenants' prompts begin if they have a preamble. It is larger than any id of the
generator.
"""
SMALL = preset("vllm-h100-8b")
LARGE = replace(SMALL, name="vllm-192gb-8b", about="The same engine with 192 GB of memory.", kv_tokens=1_179_648)
"""The engine with 192 GB of memory. Its KV cache is estimated as 192 GB x 0.9 - 18 GB = 155 GB, divided by 131,072
bytes per token and rounded to whole blocks.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy with its settings. `in_flight` 0 = nothing waits in the router, as in Heimdall."""

    label: str
    policy: str
    parameters: dict[str, Any] = field(default_factory=dict)
    in_flight: int = 0


RANDOM = Contender(label="random", policy="random")
PRECISE = Contender(label="heimdall", policy="heimdall")
MINMAX = Contender(label="heimdall, minmax", policy="heimdall", parameters={"preset": "heimdall-minmax"})
LOAD_ONLY = Contender(label="heimdall, load only", policy="heimdall", parameters={"prefix_weight": 0.0})
OURS = Contender(label="fairlead", policy="fairlead", in_flight=1)
ONE_AT_A_TIME = Contender(label="fairlead, one at a time", policy="fairlead", parameters={"in_flight_seconds": 0.0}, in_flight=1)
KV_NOT_COUNTED = Contender(label="fairlead, KV use not counted", policy="fairlead", parameters={"kv_seconds": 0.0}, in_flight=1)
CONTENDERS = (RANDOM, Contender(label="round-robin", policy="round-robin"), LOAD_ONLY, PRECISE, MINMAX, OURS, ONE_AT_A_TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Engines and load.

    `climb` scales the published climb from 3 to 100 requests per second. With `preamble`, all prompts begin with one
    common block.
    """

    engine: EnginePreset
    climb: float
    warmup_rate: float = SHAPE.warmup_rate
    preamble: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The figures of a run.

    `ttft` has the ascending TTFTs in seconds of the requests served after the warm-up. `busiest` is the share of the
    warm-up's requests that went to the instance with the most requests.
    """

    ttft: tuple[float, ...]
    attainment: float
    hit_rate: float
    busiest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A run to be made."""

    setting: Setting
    contender: Contender
    shape: PrefixGroupShape
    seed: int


def observe(
    context: Context, settings: Iterable[Setting], contenders: Sequence[Contender]
) -> dict[tuple[Setting, str], tuple[Observed, ...]]:
    """Run every contender in every setting, and return the figures by setting and label, one for each seed."""
    shape = replace(SHAPE, groups=16) if context.quick else SHAPE
    tasks = [
        Task(setting=setting, contender=contender, shape=shape, seed=seed)
        for setting in settings
        for contender in contenders
        for seed in range(context.seeds)
    ]
    if context.jobs > 1:
        with ProcessPoolExecutor(max_workers=context.jobs, mp_context=get_context("spawn")) as pool:
            results = list(pool.map(run_task, tasks))
    else:
        results = [run_task(task) for task in tasks]
    found: dict[tuple[Setting, str], tuple[Observed, ...]] = {}
    for task, result in zip(tasks, results, strict=True):
        key = task.setting, task.contender.label
        found[key] = (*found.get(key, ()), result)
    context.say(f"heimdall: {len(tasks)} runs")
    return found


def run_task(task: Task) -> Observed:
    """Make a run and return its figures."""
    setting, contender = task.setting, task.contender
    loaded = prompts(task.shape, task.seed, preamble=setting.preamble)
    ideal, _ = ideal_hits(loaded)
    warmup = task.shape.groups
    target = setting.engine.slo_ttft_seconds
    spec = SimulatedPool(
        preset=setting.engine,
        instances=INSTANCES,
        policy=contender.policy,
        parameters=contender.parameters,
        prefills_in_flight=contender.in_flight,
        slo_ttft_seconds=target,
        slo_tpot_seconds=setting.engine.slo_tpot_seconds,
        prefill_tokens_per_second=believed_speed(loaded, ideal, setting.engine),
        seed=task.seed,
    )
    plan = ArrivalPlan(
        rate=setting.climb * climbing_rate(loaded, warmup), warmup=warmup, warmup_rate=setting.warmup_rate, spread="even", seed=task.seed
    )
    result, run = simulate_cell(loaded, ideal, Cell(label=contender.label, spec=spec, plan=plan, targets=Targets(ttft_seconds=target)))
    warm = Counter(job.instance for job in run.jobs if job.index < warmup)
    return Observed(
        ttft=tuple(sorted(job.first_token_at - job.arrives_at for job in run.jobs if job.index >= warmup and job.phase is Phase.FINISHED)),
        attainment=result.figures.attainment,
        hit_rate=result.figures.hit_rate,
        busiest=max(warm.values()) / warmup,
    )


def prompts(shape: PrefixGroupShape, seed: int, *, preamble: bool = False) -> Workload:
    """Return one cycle: each prompt once, and the first prompts of all groups at the start.

    With a preamble, the first 512 tokens of all prompts are equal.
    """
    rows = islice(generate_prefix_groups(shape, seed), shape.groups * shape.prompts_per_group)
    loaded = load_workload(rows, requests=None, max_input=None, infer_sessions=False)
    if not preamble:
        return loaded
    return replace(loaded, rows=tuple(replace(row, hash_ids=(PREAMBLE_BLOCK, *row.hash_ids[1:])) for row in loaded.rows))


def climbing_rate(loaded: Workload, warmup: int) -> float:
    """Return the mean requests per second after the warm-up, as generated. A plan with this rate leaves the climb
    unchanged.
    """
    seconds = loaded.seconds[warmup:]
    return (len(seconds) - 1) / (seconds[-1] - seconds[0])


def percentiles(runs: Sequence[Observed]) -> tuple[float, ...]:
    """Return TTFT in seconds at `PERCENTS`, as means over the runs. Runs that served no request do not count."""
    served = [run.ttft for run in runs if run.ttft]
    return tuple(fsum(percentile(ttft, one) for ttft in served) / len(served) if served else 0.0 for one in PERCENTS)


def mean_of(runs: Sequence[Observed], figure: str) -> float:
    """Return the mean of a figure over the runs."""
    return fsum(getattr(run, figure) for run in runs) / len(runs)
