"""Loads as Mooncake uses them for admission: a predicted latency divided by its SLO, per instance and per pool. A load
above 1 is overload.

Admission uses the smallest load among a pool's instances, because one instance that can serve the request is enough.
The mean load is only for display.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoads:
    """Four loads of a pool: the mean and the smallest prefill load of its prefilling instances, and the mean and the
    smallest decode load of its decoding instances. Decode loads are 0 while decode times are unknown.
    """

    prefill_mean: float
    prefill_least: float
    decode_mean: float
    decode_least: float


def best_ttft_seconds(request: RoutingRequest, view: PoolView) -> float:
    """Return the smallest TTFT predicted for the request on any candidate, in seconds; infinite without candidates."""
    if not view.candidates():
        return float("inf")
    return float(view.ttft_vector(request, view.hit_vector(request)).min())


def decode_load(load: InstanceLoad, view: PoolView) -> float:
    """Return the predicted time of a decode step with the instance's present decodes, divided by the TPOT SLO."""
    return view.step_seconds(load) / view.table.slo.tpot_seconds


def decode_loads(view: PoolView) -> Sequence[float]:
    """`decode_load` of every instance that decodes."""
    return [decode_load(load, view) for load in view.decode_candidates()]


def pool_loads(view: PoolView) -> PoolLoads:
    """Return the present loads of the pool.

    A prefill load is the predicted time of an instance's pending prefills, divided by the TTFT SLO. The prefill loads
    are infinite if no instance of the pool prefills; the decode loads are infinite if no instance decodes.
    """
    slo = view.table.slo.ttft_seconds
    speed = view.prefill_speed
    prefill = [load.pending_prefill_tokens / speed / slo for load in view.candidates()] or [float("inf")]
    decode = decode_loads(view) or [float("inf")]
    return PoolLoads(
        prefill_mean=sum(prefill) / len(prefill),
        prefill_least=min(prefill),
        decode_mean=sum(decode) / len(decode),
        decode_least=min(decode),
    )
