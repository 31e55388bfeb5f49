"""The runs behind the section on own history against KV events: one run per setting."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, ideal_hits
from fairlead_simulator.experiments.cells import Cell, CellResult
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.experiments.saturation import believed_speed, estimate_saturation
from fairlead_simulator.simulation.kv_events import KvEventQuality
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.simulation.timeline import Fail, RestartRouters, TimelineEvent
from reproductions.runs import run, workload
from reproductions.sections import Context

PRESET = preset("vllm-h100-8b")
INSTANCES = 8
REQUESTS, WARMUP = 1000, 200
MAX_INPUT = 24_000
LOAD = 0.6
POLICIES = ("fairlead", "dualmap", "preble", "lmetric", "heimdall")
SMALL = 0.5
"""The KV memory of engines with small caches, as a share of the preset's."""

SOON = KvEventQuality(delay_seconds=0.1)
DELAYS = (0.0, 0.1, 1.0, 5.0)
LOSSES = {
    "1 % lost, replayed": replace(SOON, loss=0.01),
    "10 % lost, replayed": replace(SOON, loss=0.1),
    "1 % lost for good": replace(SOON, loss=0.01, replay=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A pool. `restart` names the process that is restarted in the middle of the measured requests; empty for none."""

    name: str
    routers: int = 1
    memory: float = 1.0
    restart: str = ""


ROOMY = Setting(name="one router")
SMALL_CACHES = Setting(name="one router, small caches", memory=SMALL)
TWO = Setting(name="two routers", routers=2)
TWO_SMALL = Setting(name="two routers, small caches", routers=2, memory=SMALL)
ROUTER_RESTART = Setting(name="one router, restarted", restart="router")
ENGINE_RESTART = Setting(name="one router, two engines restarted", restart="engines")
SETTINGS = (ROOMY, SMALL_CACHES, TWO, TWO_SMALL, ROUTER_RESTART, ENGINE_RESTART)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A policy in a pool. `heard` is the quality of the events; None = the router uses its own history."""

    policy: str
    setting: Setting
    heard: KvEventQuality | None = None


Runs = Mapping[Trial, CellResult]


def trials() -> tuple[Trial, ...]:
    """Return every trial of the section, once."""
    found = [Trial(policy=policy, setting=setting, heard=heard) for setting in SETTINGS for policy in POLICIES for heard in (None, SOON)]
    qualities = [KvEventQuality(delay_seconds=delay) for delay in DELAYS] + list(LOSSES.values())
    found += [Trial(policy=policy, setting=TWO_SMALL, heard=heard) for policy in ("fairlead", "heimdall") for heard in qualities]
    return tuple(dict.fromkeys(found))


def run_trials(context: Context, wanted: Iterable[Trial]) -> tuple[float, Runs]:
    """Return the saturation in requests per second, and the result of each trial."""
    requests, warmup = (80, 20) if context.quick else (REQUESTS, WARMUP)
    loaded = workload("conversation", requests=requests, max_input=MAX_INPUT, recorded=context.conversation)
    ideal, _ = ideal_hits(loaded)
    saturation = estimate_saturation(loaded, ideal, PRESET, INSTANCES, 0, 0).requests_per_second
    speed = believed_speed(loaded, ideal, PRESET)
    trials_run = list(wanted)
    cells = [_cell(trial, saturation, speed, requests, warmup) for trial in trials_run]
    return saturation, dict(zip(trials_run, run(context, "caches", loaded, cells), strict=True))


def _cell(trial: Trial, saturation: float, speed: float, requests: int, warmup: int) -> Cell:
    setting, rate = trial.setting, LOAD * saturation
    halfway = (warmup + requests) / 2 / rate
    timeline: tuple[TimelineEvent, ...] = ()
    if setting.restart == "router":
        timeline = (RestartRouters(at=halfway, remember=False),)
    elif setting.restart == "engines":
        timeline = tuple(Fail(at=halfway + 20.0 * number, instance=number, recovered_after_seconds=10.0) for number in range(2))
    return Cell(
        label=trial.policy,
        spec=SimulatedPool(
            preset=replace(PRESET, kv_tokens=round(PRESET.kv_tokens * setting.memory) // 512 * 512),
            instances=INSTANCES,
            policy=trial.policy,
            slo_ttft_seconds=PRESET.slo_ttft_seconds,
            slo_tpot_seconds=PRESET.slo_tpot_seconds,
            prefill_tokens_per_second=speed,
            routers=setting.routers,
        ),
        plan=ArrivalPlan(rate=rate, warmup=warmup),
        quality=ObservationQuality(kv_events=trial.heard),
        timeline=timeline,
        targets=Targets(ttft_seconds=PRESET.slo_ttft_seconds),
    )
