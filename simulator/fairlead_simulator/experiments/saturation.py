"""An estimate of a pool's maximum request rate. It divides the capacity of the instances by the work that a request
causes if the cache is ideal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

from fairlead_simulator.engine_model.presets import EnginePreset
from fairlead_simulator.experiments.arrival_plans import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """The mean seconds of prefill and of decode for which one request keeps an instance busy, and the request rate at
    which all instances are busy.
    """

    uncached_tokens: float
    """Mean number of prompt tokens per request that must be computed even with an unlimited shared cache."""
    prefill_seconds: float
    decode_seconds: float
    """Mean decode seconds per request if every batch is as large as the KV memory allows."""
    requests_per_second: float


def estimate_saturation(
    workload: Workload,
    ideal: Sequence[int],
    preset: EnginePreset,
    instances: float,
    prefill_instances: float,
    decode_instances: float,
) -> Saturation:
    """Return an upper bound of the pool's request rate. No policy reaches it, because it assumes an unlimited shared
    cache and always the largest batch.

    The numbers of instances may be fractions: an instance counts in proportion to its speed.
    """
    rows = workload.rows
    count = len(rows)
    misses = [max(1, row.input_length - hit) for row, hit in zip(rows, ideal, strict=True)]
    prefill = fsum(preset.prefill.seconds(miss, row.input_length) for row, miss in zip(rows, misses, strict=True)) / count
    context = fsum(row.input_length + row.output_length / 2 for row in rows) / count
    batch = max(1.0, min(float(preset.max_sequences), preset.kv_tokens / context))
    step = preset.decode.fixed + batch * (preset.decode.per_sequence + preset.decode.per_context_token * context)
    decode = step / batch * fsum(max(0, row.output_length - 1) for row in rows) / count
    decode_limit = decode_instances / decode if decode else inf
    rate = instances / (prefill + decode) if instances else min(prefill_instances / prefill, decode_limit)
    return Saturation(uncached_tokens=sum(misses) / count, prefill_seconds=prefill, decode_seconds=decode, requests_per_second=rate)


def believed_speed(workload: Workload, ideal: Sequence[int], preset: EnginePreset) -> float:
    """Return the prefill speed in tokens per second that a router would have measured on this workload: the uncached
    tokens divided by the time in which an idle engine computes them.
    """
    tokens = seconds = 0.0
    for row, hit in zip(workload.rows, ideal, strict=True):
        miss = max(1, row.input_length - hit)
        tokens += miss
        seconds += preset.prefill.seconds(miss, row.input_length)
    return tokens / seconds
