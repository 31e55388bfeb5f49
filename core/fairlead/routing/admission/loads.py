"""Loads: a predicted latency divided by its SLO, per instance and per pool, as Mooncake uses them for admission. A load
above 1 is overload.

A pool's load for admission is the smallest load of its instances ("can any instance serve it?"); the load shown is the
mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoads:
    """Mean and smallest load of the prefilling and of the decoding instances; decode loads are 0 while decode times are
    unknown.
    """

    prefill_mean: float
    prefill_least: float
    decode_mean: float
    decode_least: float


def best_ttft_seconds(request: RoutingRequest, view: PoolView) -> float:
    """The smallest predicted TTFT over all candidates; infinite without candidates."""
    if not view.candidates():
        return float("inf")
    return float(view.ttft_vector(request, view.hit_vector(request)).min())


def decode_load(load: InstanceLoad, view: PoolView) -> float:
    """Predicted step time of the present decodes of an instance, over the TPOT SLO."""
    return view.step_seconds(load) / view.table.slo.tpot_seconds


def decode_loads(view: PoolView) -> Sequence[float]:
    """`decode_load` of every instance that decodes."""
    return [decode_load(load, view) for load in view.decode_candidates()]


def pool_loads(view: PoolView) -> PoolLoads:
    """Return the present loads of the pool.

    A prefill load is the time that the pending work would take, over the TTFT SLO; without instances loads are
    infinite.
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
