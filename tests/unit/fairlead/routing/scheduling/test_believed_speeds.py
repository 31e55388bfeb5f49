"""The declared speed of a pool's engines against their real speed.

Nothing is refused or moved because of a speed that was never measured, and after a few prefills the declared speed no
longer matters.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import Source
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import EarlyRejectionFacts, SloFacts
from fairlead_testing.builders.routing import refusals, request, table
from fairlead_testing.examples import examples
from fairlead_testing.worlds.virtual_pool import VirtualPool, conversations

POLICIES = ("fairlead", "preble", "min-ttft", "ear", "dualmap", "mooncake", "lmetric")
SPEEDS = st.floats(200.0, 200_000.0)
FACTORS = st.floats(0.01, 100.0)


def scheduler_of(policy: str, believed: float, mode: str, *, instances: int = 4, target: float = 5.0, **more: Any) -> PoolScheduler:
    of = table(
        instances, policy=policy, speed=believed, rejection=EarlyRejectionFacts(mode=mode), slo=SloFacts(ttft_seconds=target), **more
    )
    return PoolScheduler(of, "router-0", 1)


def fresh(name: str, tokens: int, at: float) -> RoutingRequest:
    return replace(request(name, tokens), arrived_at=at)


@given(
    policy=st.sampled_from(POLICIES),
    mode=st.sampled_from(["Load", "Predicted"]),
    speed=SPEEDS,
    factor=FACTORS,
    seed=st.integers(0, 10_000),
    busy=st.floats(0.05, 0.4),
)
@examples(25)
def test_below_saturation_nothing_is_refused_and_the_speed_is_found_whatever_was_declared(
    policy: str, mode: str, speed: float, factor: float, seed: int, busy: float
) -> None:
    longest = 40 * 512 / speed
    mean = 10 * 512 / speed
    scheduler = scheduler_of(policy, speed * factor, mode, target=20 * longest)
    run = VirtualPool(scheduler, decode_seconds=mean, speed=speed).run(conversations(150, busy * 4 / mean, seed))
    assert run.refused == []
    figure = scheduler.prefill_figure(1e9)
    assert figure.source is Source.MEASURED
    assert figure.value == pytest.approx(speed, rel=0.1)
    assert scheduler.prefill_speed == figure.value


@pytest.mark.parametrize("mode", ["Load", "Predicted"])
@pytest.mark.parametrize("policy", POLICIES)
def test_an_idle_pool_takes_every_long_prompt_whatever_speed_it_was_told(policy: str, mode: str) -> None:
    scheduler = scheduler_of(policy, 6250.0, mode, instances=8)
    run = VirtualPool(scheduler, speed=23_000.0).run([fresh(f"r{number}", 40_000, 100.0 * number) for number in range(20)])
    assert run.refused == []


@given(policy=st.sampled_from(POLICIES), speed=SPEEDS, factor=FACTORS, tokens=st.integers(1, 200_000), seen=st.integers(0, 8))
@examples(40)
def test_an_idle_instance_refuses_nothing_by_a_declared_or_a_measured_speed(
    policy: str, speed: float, factor: float, tokens: int, seen: int
) -> None:
    scheduler = scheduler_of(policy, speed * factor, "Load", instances=2, target=0.5)
    requests = [fresh(f"r{number}", 5_000, 1000.0 * number) for number in range(seen)]
    run = VirtualPool(scheduler, speed=speed).run([*requests, fresh("last", tokens, 1000.0 * seen)])
    assert run.refused == []


def test_a_busy_pool_refuses_nothing_before_it_has_seen_a_prefill_and_then_by_what_it_saw() -> None:
    scheduler = scheduler_of("min-ttft", 1_000.0, "Load", instances=1, window=0)
    assert not refusals([*scheduler.submit(fresh("a", 20_000, 0.0), 0.0), *scheduler.submit(fresh("b", 20_000, 0.0), 0.0)])
    for number in range(5):
        now = 100.0 * (number + 1)
        scheduler.submit(fresh(f"long-{number}", 4_000, now), now)
        scheduler.first_token(f"long-{number}", now + 0.4)
        scheduler.complete(f"long-{number}", now + 0.5, 1, None)
    assert scheduler.prefill_speed == pytest.approx(10_000.0)
    (refusal,) = refusals(scheduler.submit(fresh("c", 40_000, 700.0), 700.0))
    assert refusal.predicted_ttft_seconds == pytest.approx(6.0, abs=0.1)


@pytest.mark.parametrize("factor", [0.02, 10.0])
def test_a_new_declared_speed_does_not_take_the_place_of_the_measured_one(factor: float) -> None:
    scheduler = scheduler_of("fairlead", 6250.0, "Disabled")
    VirtualPool(scheduler, speed=8_000.0).run(conversations(60, 1.0, 3))
    measured, of = scheduler.prefill_speed, scheduler.table
    engine = replace(of.engine, prefill_tokens_per_second=6250.0 * factor)
    scheduler.update_table(replace(of, version=2, engine=engine), 1e4)
    assert scheduler.prefill_speed == measured == pytest.approx(8_000.0, rel=0.1)
