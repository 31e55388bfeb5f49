"""Situations of pools for tests of advice: a healthy pool, and changes to it."""

from dataclasses import replace
from typing import Any

from fairlead.advice.situations import PoolSituation, SeenInstance, SeenMinutes, SeenRole, Served
from fairlead.capabilities import declared
from fairlead.instances import Role
from fairlead.scaling.signals import PoolSignals, RoleSignals
from fairlead.scaling.sizing import Capacity
from fairlead.scaling.specs import ScalingSpec
from fairlead.tables import EarlyRejectionFacts, SloFacts


def served(judged: int = 100, in_time: int = 100, *, tokens: int = 10_000, failed: int = 0) -> Served:
    """Return counts of requests of which `in_time` met the TTFT target; the TPOT target was met by all."""
    return Served(
        judged=judged,
        in_time=in_time,
        ttft_judged=judged,
        ttft_in_time=in_time,
        tpot_judged=judged,
        tpot_in_time=judged,
        requests=judged + failed,
        failed=failed,
        prefilled_tokens=tokens,
    )


ALWAYS = SeenMinutes(had=5, late=5, failing=5)
"""The minutes of an instance that in each of the last five had requests, late first tokens and failed attempts."""


def well(pool: str = "default/chat", *, instances: int = 4, **changes: Any) -> PoolSituation:
    """Return the situation of a pool of the role both whose requests are all in time."""
    seen = PoolSituation(
        pool=pool,
        slo=SloFacts(),
        scaling=ScalingSpec(),
        early_rejection=EarlyRejectionFacts(),
        capacity=Capacity(prefill_speed=declared(1000), kv_cache_tokens=100_000),
        roles=(SeenRole(role=Role.BOTH, wanted=instances, least=0, most=64),),
        window_seconds=100.0,
        instances=tuple(SeenInstance(id=f"i{number}", served=served(), minutes=ALWAYS) for number in range(instances)),
    )
    return replace(seen, **changes)


def with_instance(pool: PoolSituation, number: int, **changes: Any) -> PoolSituation:
    """Return the pool's situation with changes to the instance at index `number`."""
    found = list(pool.instances)
    found[number] = replace(found[number], **changes)
    return replace(pool, instances=tuple(found))


def arriving(tokens_per_second: float, *, serving: int = 4, age: float = 1.0, **changes: Any) -> PoolSignals:
    """Return signals of a pool of the role both to which this many prompt tokens arrive per second, none of them
    cached.
    """
    role = RoleSignals(
        role=Role.BOTH,
        serving=serving,
        in_flight=10,
        waiting=0,
        prompt_tokens_per_second=tokens_per_second,
        requests_per_second=10.0,
        finished_requests=100,
        cached_share=0.0,
        output_tokens_per_second=0.0,
        prefill_tokens_per_second=1000.0,
    )
    return PoolSignals(window_seconds=30.0, age_seconds=age, roles=(replace(role, **changes),))
