"""Predicts the gain of an additional prefix cache in the engines' host memory, from the reuse distances of recorded
prompts. Such a cache is advised only if a simulation of the same prompts confirms the gain.
"""

from collections.abc import Sequence
from dataclasses import replace

from fairlead.reuse_distances import HitShare, ReuseDistances
from fairlead.scaling.host_caches import HostCache
from fairlead_simulator.engine_model.presets import EnginePreset
from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, Workload, ideal_hits
from fairlead_simulator.experiments.cells import Cell, check_fits, simulate_cell
from fairlead_simulator.experiments.measuring import Targets
from fairlead_simulator.simulation.kv_events import KvEventQuality
from fairlead_simulator.simulation.observation_quality import ObservationQuality
from fairlead_simulator.simulation.pools import SimulatedPool
from fairlead_simulator.traces.rows import BLOCK_TOKENS


def predicted(distances: ReuseDistances, engine: EnginePreset, instances: int, tokens: int) -> HostCache:
    """Return the additional hits, as a share of prompt tokens, if the engine's own cache is extended by `tokens` tokens
    of host memory. The share is predicted from reuse distances alone.
    """
    own, more = (distances.hit_share(size, instances) for size in (engine.cache_tokens, max(tokens, engine.cache_tokens)))
    return HostCache(tokens=tokens, predicted=more.value - own.value, error=_error_of(own, more))


def _error_of(own: HitShare, more: HitShare) -> float:
    """Return the error of the difference of two hit shares: the larger of their errors. The errors need not be added,
    because both shares are computed from the same sessions, and their common error cancels out.
    """
    return max(own.error, more.error)


def tried(workload: Workload, spec: SimulatedPool, load: float, sizes: Sequence[int]) -> list[HostCache]:
    """Return, for each of the sizes (in tokens), the predicted and the simulated gain of a host memory cache with this
    size. Engines load `load` tokens per second from the cache. The simulated routers follow the engines' KV events.
    Raises WorkloadImpossible.
    """
    check_fits(workload, spec)
    distances = ReuseDistances(workload.rows, BLOCK_TOKENS, workload.sessions)
    ideal, _ = ideal_hits(workload)
    plan = ArrivalPlan(rate=workload.native_rate)

    def hit_rate(engine: EnginePreset) -> float:
        cell = Cell(
            label=spec.policy,
            spec=replace(spec, preset=engine),
            plan=plan,
            quality=ObservationQuality(kv_events=KvEventQuality()),
            targets=Targets(ttft_seconds=spec.slo_ttft_seconds, tpot_seconds=spec.slo_tpot_seconds),
        )
        return simulate_cell(workload, ideal, cell)[0].figures.hit_rate

    before = hit_rate(spec.preset)
    found = []
    for tokens in sizes:
        engine = replace(spec.preset, host_tokens=tokens, dram_seconds_per_token=1 / load)
        one = predicted(distances, spec.preset, spec.instances, tokens)
        found.append(replace(one, simulated=hit_rate(engine) - before))
    return found


def words(one: HostCache, kv_bytes: int | None) -> str:
    """Return a sentence about the gain of a cache. `kv_bytes` is the number of bytes per token in the KV cache; None if
    unknown.
    """
    simulated = "not simulated" if one.simulated is None else f"{one.simulated:+.1%} in a simulation"
    verdict = "confirmed" if one.is_confirmed else "not confirmed, so not advised"
    added = f"{one.predicted:+.1%} hits (± {one.error:.1%})"
    return f"{one.size_words(kv_bytes)} of host cache per instance: {added}, {simulated}: {verdict}"
