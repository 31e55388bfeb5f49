"""The runs of the section on stale and wrong observations: a trial for each combination of settings, over all seeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairlead.tables import RoutingTable
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Spread, ideal_hits
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pools import SimulatedPool
from reproductions.runs import run, workload
from reproductions.sections import Context

PRESET = preset("dualmap-910b4-qwen7b")
INSTANCES = 8
REQUESTS, WARMUP = 3000, 500
POLICIES = ("fairlead", "min-ttft", "mooncake", "dualmap", "ear", "heimdall", "prefix-cache-load", "round-robin")
CHOOSERS = POLICIES[:-1]
"""The policies that use observations."""
DELAYS = (0.0, 0.1, 0.5, 2.0)
LATE = DELAYS[-1]
NOISES = (0.0, 0.1, 0.3, 0.6)
LOADS = (0.75, 1.0)
WINDOWS = (1, 2, 4, 8, 0)
BELIEFS = (0.25, 0.5, 1.0, 2.0, 4.0)
SMALL_CACHE = 0.25
"""The size of the cache with which assumed sizes are tested, as a share of the preset's. The workload overflows it."""


LATE_SERVED = (("late_load", 100.0),)
"""Parameters with which `fairlead` sends late requests whenever nothing better waits, instead of holding them back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A combination of all settings.

    `load` is a multiple of the estimated saturation. `in_flight` 0 = nothing waits in the router. `cache` is a share of
    the preset's prefix cache, and `believed` is the size that the router assumes, as a multiple of `cache`. `weights`
    are the policy's parameters.
    """

    policy: str
    load: float = LOADS[0]
    in_flight: int = 0
    delay: float = 0.0
    noise: float = 0.0
    spread: Spread = "random"
    cache: float = 1.0
    believed: float = 1.0
    weights: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        """The policy, and a note if its late requests are served."""
        return f"{self.policy}, late served" if self.weights == LATE_SERVED else self.policy


KV_ALONE = Trial(policy="heimdall", weights=(("queue_weight", 0.0), ("prefix_weight", 0.0)))
QUEUE_ALONE = Trial(policy="heimdall", weights=(("kv_weight", 0.0), ("prefix_weight", 0.0)))
KV_AND_PREFIX = Trial(policy="heimdall", weights=(("queue_weight", 0.0),))
QUEUE_AND_PREFIX = Trial(policy="heimdall", weights=(("kv_weight", 0.0),))
SOURCES = {
    "queue": QUEUE_ALONE,
    "KV use": KV_ALONE,
    "queue and prefix": QUEUE_AND_PREFIX,
    "KV use and prefix": KV_AND_PREFIX,
    "all three": Trial(policy="heimdall"),
}
"""The trial for each source of `heimdall`'s loads. The router itself knows queue and prefix, and engines report KV use.
"""
QUEUED = (
    *(Trial(policy="fairlead", in_flight=window) for window in WINDOWS),
    *(Trial(policy="fairlead", in_flight=window, weights=LATE_SERVED) for window in (1, 4)),
    *(Trial(policy=policy, in_flight=window) for policy in ("min-ttft", "round-robin") for window in (1, 4)),
)

Runs = Mapping[Trial, Sequence[CellResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MistakenSpec(SimulatedPool):
    """A pool whose router assumes that its prefix caches are `believed` times as large as they are."""

    believed: float = 1.0

    def first_table(self) -> RoutingTable:
        """Return the first table of the pool, with the assumed size of the KV cache."""
        table = SimulatedPool.first_table(self)
        return replace(table, engine=replace(table.engine, kv_cache_tokens=round(table.engine.kv_cache_tokens * self.believed)))


def trials() -> tuple[Trial, ...]:
    """Return every trial of the section, once."""
    found = [Trial(policy=policy, load=load, delay=delay) for load in LOADS for policy in POLICIES for delay in DELAYS]
    found += [replace(one, load=load, delay=delay) for one in QUEUED for load in LOADS for delay in DELAYS]
    found += [Trial(policy=policy, noise=noise) for policy in POLICIES for noise in NOISES]
    found += [Trial(policy="fairlead", load=LOADS[1], in_flight=1, noise=noise) for noise in NOISES]
    found += [replace(one, delay=delay) for one in SOURCES.values() for delay in DELAYS]
    found += [Trial(policy=policy, delay=delay, spread="none") for policy in POLICIES for delay in (0.0, LATE)]
    found += [Trial(policy=policy, delay=delay) for policy in ("least-request", "least-loaded") for delay in (0.0, LATE)]
    found += [Trial(policy=policy, cache=SMALL_CACHE, believed=believed) for policy in CHOOSERS for believed in BELIEFS]
    return tuple(dict.fromkeys(found))


def run_trials(context: Context, wanted: Iterable[Trial]) -> tuple[float, Runs]:
    """Return the saturation in requests per second, and the results of each trial, one for each seed."""
    requests, warmup = (80, 20) if context.quick else (REQUESTS, WARMUP)
    loaded = workload("conversation", requests=requests, max_input=PRESET.max_input_tokens, recorded=context.conversation)
    ideal, _ = ideal_hits(loaded)
    saturation = estimate_saturation(loaded, ideal, PRESET, INSTANCES, 0, 0).requests_per_second
    trials_run = list(wanted)
    cells = [
        cell(trial, seed, saturation, believed_speed(loaded, ideal, PRESET), warmup)
        for trial in trials_run
        for seed in range(context.seeds)
    ]
    return saturation, by_trial(trials_run, run(context, "staleness", loaded, cells), context.seeds)


def by_trial(trials_run: Sequence[Trial], results: Sequence[CellResult], seeds: int) -> Runs:
    """Return the results by trial. They must be in the order of the trials, and of the seeds within a trial."""
    return {trial: results[number * seeds : (number + 1) * seeds] for number, trial in enumerate(trials_run)}


def cell(trial: Trial, seed: int, saturation: float, speed: float, warmup: int) -> Cell:
    """Return a run of a trial. `saturation` is in requests per second, `speed` in prefill tokens per second."""
    dram = PRESET.dram_tokens
    spec = MistakenSpec(
        preset=PRESET if trial.cache == 1 or dram is None else replace(PRESET, dram_tokens=round(dram * trial.cache)),
        instances=INSTANCES,
        policy=trial.policy,
        parameters=dict(trial.weights),
        prefills_in_flight=trial.in_flight,
        slo_ttft_seconds=PRESET.slo_ttft_seconds,
        slo_tpot_seconds=PRESET.slo_tpot_seconds,
        prefill_tokens_per_second=speed,
        seed=seed,
        believed=trial.believed,
    )
    return Cell(
        label=trial.policy,
        spec=spec,
        plan=ArrivalPlan(rate=trial.load * saturation, warmup=warmup, spread=trial.spread, seed=seed),
        quality=ObservationQuality(token_noise=trial.noise, delay_seconds=trial.delay),
        targets=Targets(ttft_seconds=PRESET.slo_ttft_seconds),
    )
