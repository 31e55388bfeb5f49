"""RatioOff: the pool's instances would serve more of the traffic with another split between prefill and decode."""

from collections.abc import Iterator

from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, Remedy
from fairlead.advice.saturation import FRESH_SECONDS
from fairlead.advice.situations import PoolSituation
from fairlead.amounts import amount
from fairlead.instances import Role
from fairlead.scaling.overload import DECODE_LIMIT, Demand, outlook
from fairlead.scaling.sizing import decode_work, prefill_work, running_decode_work
from fairlead.scaling.specs import RatioMode


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield at most one finding. It is yielded if requests miss their objectives and, according to a queueing model
    (`outlook`), more requests would meet them with another split.
    """
    if pool.signals is None or pool.signals.age_seconds > FRESH_SECONDS or not pool.out_of_slo:
        return
    prefill, decode = pool.signals.of(Role.PREFILL), pool.signals.of(Role.DECODE)
    if prefill is None or decode is None or not prefill.serving or not decode.serving:
        return
    if not prefill.knows_work or not decode.knows_work:
        return
    prompts = prefill_work(prefill, pool.slo, pool.capacity)
    outputs = running_decode_work(decode, pool.slo, pool.capacity, DECODE_LIMIT)
    outputs = outputs if outputs is not None else decode_work(decode, pool.slo, pool.capacity, DECODE_LIMIT)
    if prompts is None or outputs is None or not prefill.requests_per_second:
        return
    demand = Demand(
        requests_per_second=prefill.requests_per_second,
        prompt_variation=prefill.prompt_variation,
        refuses_late=pool.early_rejection.mode != "Disabled",
        window_seconds=pool.signals.window_seconds,
    )
    total = prefill.serving + decode.serving
    now = outlook((prefill.serving, prompts), (decode.serving, outputs), demand)
    best, split = now, prefill.serving
    for number in range(1, total):
        seen = outlook((number, prompts), (total - number, outputs), demand)
        if seen.is_better_than(best):
            best, split = seen, number
    gained = min(pool.per_second(pool.missed), (best.servable - now.servable) * prefill.requests_per_second)
    if split != prefill.serving and gained > 0:
        yield _finding(pool, (prefill.serving, decode.serving), (split, total - split), gained)


def _finding(pool: PoolSituation, present: tuple[int, int], better: tuple[int, int], gained: float) -> Finding:
    auto = pool.ratio_mode is RatioMode.AUTO
    remedy = None if auto or not pool.can_scale else Remedy(kind="ratio", words="ratio mode Auto", fields={"mode": RatioMode.AUTO.value})
    does = "the ratio controller moves instances once that is worth it" if auto else "ratio mode Auto moves one instance at a time"
    return Finding(
        pool=pool.pool,
        cause=Cause.RATIO_OFF,
        level=Level.BAD,
        harm=Harm(amount=gained, unit=HarmUnit.REQUESTS),
        sentence=(
            f"{pool.pool} divides {amount(present[0] + present[1], 'instance')} {present[0]} : {present[1]} between prefill "
            f"and decode; for the present traffic, {better[0]} : {better[1]} could serve more requests, according to a model that ranks "
            f"splits; {does}."
        ),
        evidence=Evidence(kind=EvidenceKind.SCALING, seconds=pool.window_seconds),
        remedy=remedy,
    )
