"""Computes the number of instances that a role needs for the arriving work, and the load of a given number of
instances.

Prefill has two parts. The first is the arriving uncached prompt tokens per second, divided by the tokens that one
instance computes per second when used to `target_load`. The second is the number of instances that work off, within
`recovery_seconds`, requests that already wait longer than the target share of `slo.ttft`. A prompt that an idle
instance cannot compute within `slo.ttft` is late with any number of instances. If such prompts are refused, their
tokens are not counted (`overload.tokens_within`).

Decode: the output tokens per second, divided by the output of one instance with the largest batch whose step, by the
fitted model, stays below the target share of `slo.tpot` and whose contexts fill at most that share of the KV cache. If
the predicted time per token exceeds the target, or there is no model, the number grows in proportion to the excess, as
an HPA's does.

An instance of role both must meet the larger need: its measured prefill throughput already includes the effect of its
decodes.
"""

from dataclasses import dataclass
from math import ceil, inf

from fairlead.capabilities import UNKNOWN, EngineCapability, Figure, value_of
from fairlead.instances import Role
from fairlead.scaling.overload import median_of, tokens_within
from fairlead.scaling.recommendations import Need
from fairlead.scaling.signals import RoleSignals
from fairlead.scaling.specs import ScalingSpec
from fairlead.tables import SloFacts

_ROUNDING = 1e-9
"""A need that exceeds a whole number by at most this much is rounded down to the whole number."""

_MOST_REFUSED = 0.9
"""Largest refused share (0-1) with which the need is computed. If nearly all requests are refused, the remaining
requests say little about the work.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The capacity of one instance, per second of the routers' clock."""

    prefill_speed: Figure
    """Prompt tokens per second, used for the first instances of a pool at zero: as measured before, as fitted, or as
    declared.
    """
    kv_cache_tokens: int
    start_seconds: Figure = UNKNOWN
    """Seconds from the creation of an instance until it serves."""

    @staticmethod
    def of(known: EngineCapability) -> "Capacity":
        """Return the capacity from the known figures. Raises ValueError if the size of the KV cache is unknown; every
        spec declares it.
        """
        return Capacity(
            prefill_speed=known.prefill_tokens_per_second,
            kv_cache_tokens=round(value_of(known.kv_cache_tokens)),
            start_seconds=known.start_seconds,
        )


def need(signals: RoleSignals, slo: SloFacts, capacity: Capacity, spec: ScalingSpec, *, refuses_late: bool = False) -> Need:
    """Return the need of a role; `refuses_late` says whether early rejection refuses requests by their predicted TTFT.
    A part of the need that is not measured is None.
    """
    prefills, decodes = signals.role is not Role.DECODE, signals.role is not Role.PREFILL
    target = spec.target_load
    prompts = prefill_work(signals, slo, capacity, refuses_late=refuses_late) if prefills else None
    queue = None
    if prefills and signals.prefill_load is not None:
        late_seconds = max(0.0, signals.prefill_load - target) * slo.ttft_seconds * signals.serving
        queue = late_seconds / spec.recovery_seconds
    outputs = decode_work(signals, slo, capacity, target) if decodes else None
    slow = None
    if (
        decodes
        and signals.decode_load is not None
        and (signals.decode_step is None or (outputs is not None and signals.decode_load > target))
    ):
        slow = signals.serving * signals.decode_load / target
    return Need(for_prompts=None if prompts is None else prompts / target, for_queue=queue, for_outputs=outputs, for_slow_outputs=slow)


def whole_instances(needed: float) -> int:
    """Return the need in whole instances, rounded up."""
    return ceil(needed - _ROUNDING)


def prefill_work(signals: RoleSignals, slo: SloFacts, capacity: Capacity, *, refuses_late: bool = False) -> float | None:
    """Return the number of instances that the arriving prompts keep busy all the time.

    None if the prompts are unknown, if no speed was measured (a declared speed never scales), or if more than half of
    the prompts miss `slo.ttft` even alone, because more instances would not help these prompts. The median prompt
    decides, because a few very long prompts raise the mean above what most prompts need.
    """
    if signals.prompt_tokens_per_second == 0:
        return 0.0
    speed = signals.prefill_tokens_per_second
    if signals.cached_share is None or not speed:
        return None
    uncached = signals.prompt_tokens_per_second * (1 - signals.cached_share)
    if not signals.requests_per_second:
        return uncached / speed
    mean, within = uncached / signals.requests_per_second, speed * slo.ttft_seconds
    variation = signals.prompt_variation or 0.0
    if median_of(mean, variation) > within:
        return None
    computed = tokens_within(within / mean, variation) if refuses_late and mean > 0 else 1.0
    return uncached * computed / speed


def decode_work(signals: RoleSignals, slo: SloFacts, capacity: Capacity, target_load: float) -> float | None:
    """Return the number of instances that decode the arriving outputs with steps of `target_load` of `slo.tpot`. None
    without a model, or if a request misses the SLO even alone, because more instances would not help it.
    """
    if signals.output_tokens_per_second == 0 and not signals.in_flight:
        return 0.0
    fullest = _fullest_batch(signals, slo, capacity, target_load)
    return None if fullest is None else signals.output_tokens_per_second / fullest.tokens_per_second


def running_decode_work(signals: RoleSignals, slo: SloFacts, capacity: Capacity, target_load: float) -> float | None:
    """Return the number of instances that the present decodes need, with the work that was refused because there were
    too few decode instances. This number reacts sooner than `decode_work`: the output lengths of finished requests
    describe the past, and long answers finish late.
    """
    model, fullest = signals.decode_step, _fullest_batch(signals, slo, capacity, target_load)
    if model is None or fullest is None or signals.decode_load is None or signals.decode_context_tokens is None:
        return None
    seconds = signals.decode_load * slo.tpot_seconds
    per_request = model.seconds_per_request + model.seconds_per_context_token * signals.decode_context_tokens
    if per_request <= 0 or seconds <= model.fixed_seconds:
        return 0.0
    running = (seconds - model.fixed_seconds) / per_request / seconds
    admitted = 1.0 - min(signals.refused_share or 0.0, _MOST_REFUSED)
    return signals.serving * running / fullest.tokens_per_second / admitted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    requests: float
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.requests / self.seconds


def _fullest_batch(signals: RoleSignals, slo: SloFacts, capacity: Capacity, target_load: float) -> _Batch | None:
    """Return the largest batch whose steps take the share `target_load` of `slo.tpot` and whose contexts fill at most
    that share of the KV cache.
    """
    model, context = signals.decode_step, signals.decode_context_tokens
    if model is None or context is None:
        return None
    allowed = slo.tpot_seconds * target_load
    per_request = model.seconds_per_request + model.seconds_per_context_token * context
    if model.fixed_seconds + per_request > slo.tpot_seconds:
        return None
    by_time = (allowed - model.fixed_seconds) / per_request if per_request > 0 else inf
    by_memory = capacity.kv_cache_tokens * target_load / context if context > 0 else inf
    batch = max(1.0, min(by_time, by_memory))
    return None if batch == inf else _Batch(requests=batch, seconds=model.fixed_seconds + per_request * batch)
