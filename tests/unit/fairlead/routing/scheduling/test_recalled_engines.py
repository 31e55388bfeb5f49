"""A router's recalled knowledge of its engines replaces measurements that it lacks. Errors in it are gone after 200
requests.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import REMEMBERED_SECONDS, EngineCapability, Figure, Source
from fairlead.reports.engines import EngineMemory
from fairlead.routing.knowledge.engine_memories import keep
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import EarlyRejectionFacts, RoutingTable, SloFacts
from fairlead_testing.builders.routing import refusals, request, table
from fairlead_testing.examples import examples
from fairlead_testing.worlds.virtual_pool import VirtualPool, conversations

DAY = 86_400.0
OFF = st.floats(0.25, 4.0)


def recalled(of: RoutingTable, speed: float, step: float | None = None, age: float = DAY, now: float = 0.0) -> EngineMemory:
    def seen(value: float) -> Figure:
        return Figure(value=value, source=Source.MEASURED, samples=100, age_seconds=age)

    known = EngineCapability(prefill_tokens_per_second=seen(speed))
    return keep(of, known if step is None else replace(known, decode_step_seconds=seen(step)), (), now)


def scheduler_of(mode: str, *, instances: int = 4, target: float = 5.0, tpot: float = 0.1, policy: str = "fairlead") -> PoolScheduler:
    facts, slo = EarlyRejectionFacts(mode=mode), SloFacts(ttft_seconds=target, tpot_seconds=tpot)
    return PoolScheduler(table(instances, policy=policy, rejection=facts, slo=slo), "router-0", 1)


@given(
    mode=st.sampled_from(["Load", "Predicted"]),
    policy=st.sampled_from(["fairlead", "preble", "min-ttft", "ear"]),
    speed=st.floats(200.0, 200_000.0),
    wrong=OFF,
    wrong_step=OFF,
    seed=st.integers(0, 10_000),
)
@examples(12)
def test_speeds_that_are_remembered_wrong_by_a_factor_of_four_are_right_after_two_hundred_requests(
    mode: str, policy: str, speed: float, wrong: float, wrong_step: float, seed: int
) -> None:
    mean = 10 * 512 / speed
    step = mean / 99  # an answer of 100 tokens takes `mean` seconds after the first
    scheduler = scheduler_of(mode, target=20 * 40 * 512 / speed, tpot=20 * step, policy=policy)
    scheduler.recall_engines(recalled(scheduler.table, speed * wrong, min(9.0, step * wrong_step)), 0.0)
    assert scheduler.prefill_speed == speed * wrong
    run = VirtualPool(scheduler, decode_seconds=mean, speed=speed).run(conversations(200, 0.3 * 4 / mean, seed))
    assert run.refused == []
    assert scheduler.prefill_speed == pytest.approx(speed, rel=0.1)
    assert scheduler.prefill_figure(1e9).value == scheduler.prefill_speed
    predicted = scheduler._state.decode_times.seconds(20_000, 1)
    assert predicted == pytest.approx(step, rel=0.25) or step > 9.0


def test_a_recalled_speed_refuses_what_cannot_be_in_time_from_the_first_request_on_and_an_idle_instance_nothing() -> None:
    scheduler = scheduler_of("Load", instances=1, policy="min-ttft")
    scheduler.recall_engines(recalled(scheduler.table, 10_000.0), 0.0)
    first = scheduler.submit(replace(request("a", 80_000), arrived_at=0.0), 0.0)
    assert not refusals(first), "an idle instance takes any prompt"
    (refusal,) = refusals(scheduler.submit(replace(request("b", 40_000), arrived_at=0.0), 0.0))
    assert refusal.predicted_ttft_seconds == pytest.approx(12.0, abs=0.1)


def test_what_is_recalled_replaces_nothing_that_was_measured_and_is_reported_as_measured_by_nobody() -> None:
    scheduler = scheduler_of("Disabled")
    VirtualPool(scheduler, speed=8_000.0).run(conversations(60, 1.0, 3))
    measured = scheduler.prefill_speed
    scheduler.recall_engines(recalled(scheduler.table, 900.0, now=1e4), 1e4)
    assert scheduler.prefill_speed == measured == pytest.approx(8_000.0, rel=0.1)
    fresh = scheduler_of("Disabled")
    fresh.recall_engines(recalled(fresh.table, 900.0), 0.0)
    assert fresh.prefill_figure(60.0) == Figure(value=900.0, source=Source.MEASURED, samples=100, age_seconds=DAY + 60.0)
    assert fresh.engine_memory(60.0).known == EngineCapability()


def test_a_figure_is_recalled_for_a_week_and_not_longer() -> None:
    scheduler = scheduler_of("Disabled")
    scheduler.recall_engines(recalled(scheduler.table, 900.0, 0.02), 0.0)
    left = REMEMBERED_SECONDS - DAY
    scheduler.tick(left - 20.0)
    assert scheduler.prefill_speed == 900.0
    assert scheduler._state.decode_times.known
    scheduler.tick(left + 20.0)
    assert scheduler.prefill_speed == 6250.0
    assert not scheduler._state.decode_times.known


def test_decode_steps_that_were_fitted_go_on_as_they_were() -> None:
    scheduler = scheduler_of("Predicted")
    VirtualPool(scheduler, decode_seconds=2.0, speed=8_000.0).run(conversations(300, 2.0, 3))
    memory = scheduler.engine_memory(1e4)
    assert memory.decode_fit
    after = scheduler_of("Predicted")
    after.recall_engines(memory, 1e4)
    for context, requests in ((1_000, 1), (50_000, 10), (300_000, 40)):
        before = scheduler._state.decode_times.seconds(context, requests)
        assert after._state.decode_times.seconds(context, requests) == pytest.approx(before)
