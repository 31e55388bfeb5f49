"""A plan's statement about the caches of leaving instances, and when it states that this is unknown."""

from dataclasses import replace

import pytest

from fairlead.hand_overs import FETCHES_AT_ONCE, Transfers
from fairlead.instances import InstanceState, Role
from fairlead.pools import parse_spec
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_api.plans.hand_overs import forecast, least_kept
from fairlead_api.plans.kinds.drain import drain_effect
from fairlead_api.plans.kinds.rollback import Rollback, rollback_effect
from fairlead_api.plans.kinds.scale import scale_effect
from fairlead_client.resources.plans import HandOverForecast

MEASURED = Transfers(tried=20, came=20, mean_seconds=0.4)


def use(name: str, tokens: int = 100_000, role: Role = Role.BOTH) -> InstanceUse:
    return InstanceUse(
        id=name,
        role=role,
        state=InstanceState.SERVING,
        bound_sessions=20,
        cache_tokens=2 * tokens,
        in_flight=1,
        recent_sessions=10,
        recent_tokens=tokens,
    )


def pool(*uses: InstanceUse, moves: bool = True, speed: float | None = 10_000.0, transfers: Transfers = MEASURED) -> PoolUse:
    engine = {"type": "simulated", **({"kvTransfer": {}} if moves else {})}
    return PoolUse(
        facts=parse_spec({"model": "m", "engine": engine}).facts(),
        instances=uses or tuple(use(name) for name in "abcd"),
        attainment=1.0,
        requests_per_second=1.0,
        miss_tokens_per_second=1000.0,
        prefill_tokens_per_second=speed,
        transfers=transfers,
        routers=2,
    )


def test_drains_scale_ins_and_rollbacks_say_what_is_kept() -> None:
    one = drain_effect(pool(), "a").hand_over
    assert one is not None and one.seconds_longer is not None
    assert one.hits_kept == pytest.approx(1.0) and one.seconds_longer == pytest.approx(10 * 0.4 / (2 * FETCHES_AT_ONCE))
    computed = drain_effect(pool(moves=False), "a").hand_over
    assert computed is not None and computed.hits_kept is not None and 0.75 < computed.hits_kept < 1 and computed.more_work
    two = scale_effect(pool(moves=False), Role.BOTH, 4, 2, BUILT_IN).hand_over
    assert two is not None and two.hits_kept is not None and two.hits_kept < computed.hits_kept
    assert scale_effect(pool(), Role.BOTH, 4, 6, BUILT_IN).hand_over is None, "nobody leaves"
    back = rollback_effect(pool(), Rollback(roles=(Role.BOTH,), updated={}, paused=False)).hand_over
    assert back is not None and back.seconds_longer == pytest.approx(4 * one.seconds_longer), "one after another"
    assert rollback_effect(pool(), Rollback(roles=(Role.BOTH,), updated={}, paused=True)).hand_over is None


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (pool(speed=None), "not measured yet"),
        (pool(transfers=Transfers(tried=2, came=2, mean_seconds=0.1)), "hardly any session has taken its KV cache along"),
        (pool(use("a", 0), use("b", 0)), "no session had a turn"),
    ],
)
def test_what_is_not_known_is_said_so(known: PoolUse, why: str) -> None:
    found = forecast(known, [known.instances[0]])
    assert found is not None
    assert (found.hits_kept, found.seconds_longer, found.more_work) == (None, None, None)
    assert found.unknown is not None and why in found.unknown


def test_who_is_left_alone_is_known_and_decode_instances_hold_no_sessions() -> None:
    only = pool(use("a"))
    found = forecast(only, only.instances, replaced=False)
    assert found is not None and found.unknown == "no instance is left to take the sessions"
    split = pool(use("p", role=Role.PREFILL), use("x", 0, Role.DECODE))
    assert forecast(split, [split.instances[1]]) is None


def test_of_several_parts_the_least_counts() -> None:
    known = HandOverForecast(hits_kept=0.9, seconds_longer=1.0, more_work=0.1)
    worse, unknown = replace(known, hits_kept=0.5), HandOverForecast(unknown="why")
    assert least_kept([None, known, worse]) == worse
    assert least_kept([known, unknown]) == unknown
    assert least_kept([None]) is None
