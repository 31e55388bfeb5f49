"""Signals for scaling, computed from routers' measurements."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.pools import parse_spec
from fairlead.scaling.signals import DecodeStep, RoleSignals
from fairlead_api.scaling.signals import (
    Arrived,
    Finished,
    InstanceMeasures,
    PoolMeasures,
    PresentInstance,
    Prompts,
    StepSums,
    decode_step,
    pool_signals,
)

FACTS = parse_spec({"model": "m", "engine": {"prefillTokensPerSecond": 1000}, "slo": {"ttft": "2s", "tpot": "100ms"}}).facts()
NOW = 1_800_000_000.0


def present(name: str, role: Role = Role.BOTH, state: InstanceState = InstanceState.SERVING) -> PresentInstance:
    return PresentInstance(id=name, role=role, state=state, in_flight=3, waiting=1)


def measures(name: str, **changes: Any) -> InstanceMeasures:
    idle = InstanceMeasures(
        instance=name,
        newest=NOW - 3,
        unreported=0,
        pending_mean=0.0,
        pending=0,
        running_mean=0.0,
        prefilled_tokens=0,
        prefilling_seconds=0.0,
        tpot_mean=None,
        ttft_within_slo=0,
        ttft_total=0,
        tpot_within_slo=0,
        tpot_total=0,
    )
    return replace(idle, **changes)


def measured(*instances: InstanceMeasures, **changes: Any) -> PoolMeasures:
    nothing = Arrived(requests=0, prompt_tokens=0, refused={})
    pool = PoolMeasures(instances=instances, steps=(), arrived=nothing, prompts=Prompts(), window=Finished(), longer=Finished())
    return replace(pool, **changes)


def of(role: Role, pool: PoolMeasures, *instances: PresentInstance) -> RoleSignals:
    signals = pool_signals(pool, instances, FACTS, NOW)
    assert signals is not None
    found = signals.of(role)
    assert found is not None
    return found


def test_what_is_not_told_is_unknown_and_what_is_idle_is_zero() -> None:
    assert pool_signals(measured(), [present("a")], FACTS, NOW) is None
    assert pool_signals(measured(measures("a"), measures("b", unreported=1)), [present("a"), present("b")], FACTS, NOW) is None
    idle = of(Role.BOTH, measured(measures("a")), present("a"))
    assert (idle.prompt_tokens_per_second, idle.prefill_load, idle.in_flight, idle.waiting) == (0.0, 0.0, 3, 1)
    assert (idle.cached_share, idle.prefill_tokens_per_second, idle.decode_load, idle.ttft_attainment) == (None, None, None, None)


def test_refused_requests_are_demand_and_miss_the_target() -> None:
    pool = measured(
        measures("a", ttft_within_slo=30, ttft_total=40),
        arrived=Arrived(
            requests=100,
            prompt_tokens=90_000,
            refused={"rejected-decode-overloaded": 20, "rejected-predicted-ttft": 30, "rejected-no-endpoints": 10},
        ),
        window=Finished(requests=40, prompt_tokens=40_000, hit_tokens=10_000, output_tokens=4000),
    )
    found = of(Role.BOTH, pool, present("a"))
    assert found.prompt_tokens_per_second == 3000
    assert found.output_tokens_per_second == pytest.approx(100 * 100 / 30)
    assert found.ttft_attainment == 0.3
    assert (found.cached_share, found.decode_context_tokens) == (0.25, 1050)
    assert (found.requests_per_second, found.refused_share) == (100 / 30, 0.5)
    prefill, decode = present("a", Role.PREFILL), present("d", Role.DECODE)
    assert (of(Role.PREFILL, pool, prefill, decode).refused_share, of(Role.DECODE, pool, prefill, decode).refused_share) == (0.3, 0.2)


def test_the_output_of_requests_is_known_before_the_long_ones_end() -> None:
    arrived = Arrived(requests=60, prompt_tokens=60_000, refused={})
    ended = Finished(requests=30, prompt_tokens=30_000, output_tokens=6000, generated_tokens=9000)
    pool = measured(measures("a"), arrived=arrived, window=ended)
    assert of(Role.BOTH, pool, present("a")).output_tokens_per_second == 2 * 300
    unreported = replace(pool, window=replace(ended, generated_tokens=0))  # by routers of before
    assert of(Role.BOTH, unreported, present("a")).output_tokens_per_second == 2 * 200


def test_the_variation_of_prompts_is_known_from_enough_of_them() -> None:
    told = Prompts(requests=20, tokens=40_000, squares=20 * (1000**2 + 3000**2) // 2)  # 1,000 and 3,000 tokens in turn
    assert of(Role.BOTH, measured(measures("a"), prompts=told), present("a")).prompt_variation == 0.5
    assert of(Role.BOTH, measured(measures("a"), prompts=replace(told, requests=19)), present("a")).prompt_variation is None
    assert of(Role.BOTH, measured(measures("a")), present("a")).prompt_variation is None


def test_few_finished_requests_are_described_by_the_last_five_minutes() -> None:
    few, many = Finished(requests=5, prompt_tokens=500, hit_tokens=500), Finished(requests=500, prompt_tokens=50_000, hit_tokens=5000)
    assert of(Role.BOTH, measured(measures("a"), window=few, longer=many), present("a")).cached_share == 0.1
    assert of(Role.BOTH, measured(measures("a"), window=few), present("a")).cached_share == 1.0


def test_throughput_is_measured_while_an_instance_has_anything_to_compute() -> None:
    pool = measured(
        measures("a", prefilled_tokens=6000, prefilling_seconds=10.0, pending_mean=1200.0, pending=2400),
        measures("b", prefilled_tokens=24_000, prefilling_seconds=55.0, pending_mean=0.0),  # two routers, both all the time
    )
    found = of(Role.BOTH, pool, present("a"), present("b"))
    assert found.prefill_tokens_per_second == 30_000 / 40
    assert found.prefill_load == pytest.approx((1200 / 750 / 2.0) / 2)
    assert found.pending_prefill_tokens == 2400
    short = measures("a", prefilled_tokens=50, prefilling_seconds=0.2, pending_mean=1000.0)
    assert of(Role.BOTH, measured(short), present("a")).prefill_load == 1000 / 250 / 2


def test_what_waits_is_no_load_while_nobody_has_seen_a_prefill() -> None:
    unseen = of(Role.BOTH, measured(measures("a", pending_mean=100_000.0)), present("a"))
    assert (unseen.prefill_tokens_per_second, unseen.prefill_load) == (None, None)


def test_each_role_has_its_own_side() -> None:
    pool = measured(
        measures("p", pending_mean=500.0, prefilled_tokens=1000, prefilling_seconds=1.0, ttft_within_slo=9, ttft_total=10),
        measures("d", tpot_mean=0.05, tpot_within_slo=4, tpot_total=5),
        measures("gone", tpot_mean=9.0),
        measures("drains", tpot_mean=9.0),
    )
    instances = (present("p", Role.PREFILL), present("d", Role.DECODE), present("drains", Role.DECODE, InstanceState.DRAINING))
    prefill, decode = of(Role.PREFILL, pool, *instances), of(Role.DECODE, pool, *instances)
    assert (prefill.prefill_load, prefill.decode_load, prefill.ttft_attainment, prefill.tpot_attainment) == (0.25, None, 0.9, None)
    assert (decode.prefill_load, decode.decode_load, decode.ttft_attainment, decode.tpot_attainment) == (None, 0.5, None, 0.8)
    assert (prefill.serving, decode.serving) == (1, 1)


def line(fixed: float, slope: float, batches: list[float]) -> StepSums:
    times = [fixed + slope * batch for batch in batches]
    return StepSums(
        instance="a",
        n=len(batches),
        b=sum(batches),
        y=sum(times),
        bb=sum(batch * batch for batch in batches),
        by=sum(batch * time for batch, time in zip(batches, times, strict=True)),
    )


def test_the_decode_step_is_the_line_through_what_was_measured() -> None:
    found = decode_step([line(0.02, 0.001, [1, 5, 9, 20]), line(0.02, 0.001, [2, 3, 8, 40])])
    assert found is not None
    assert found.fixed_seconds == pytest.approx(0.02)
    assert found.seconds_per_request == pytest.approx(0.001)


def test_nothing_is_learnt_from_batches_that_do_not_differ_or_are_few() -> None:
    assert decode_step([]) is None
    assert decode_step([line(0.02, 0.001, [1, 50])]) is None
    assert decode_step([line(0.02, 0.001, [10, 10.1, 10, 10.1, 10, 10.1, 10])]) is None


def test_a_step_never_gets_shorter_with_the_batch_and_never_starts_below_zero() -> None:
    falling = decode_step([line(0.1, -0.001, [1, 5, 9, 20, 30, 40])])
    assert falling is not None
    assert falling.seconds_per_request == 0.0
    assert falling.fixed_seconds == pytest.approx(0.0825)
    steep = decode_step([line(-0.01, 0.01, [5, 10, 15, 20, 25, 30])])
    assert steep is not None
    assert steep.fixed_seconds == 0.0
    assert 0.005 < steep.seconds_per_request < 0.01


def test_with_a_fit_the_load_is_predicted_from_the_present_batch() -> None:
    pool = measured(measures("a", running_mean=40.0, tpot_mean=0.03), steps=(line(0.02, 0.001, [1, 5, 9, 20, 30, 40]),))
    found = of(Role.BOTH, pool, present("a"))
    assert isinstance(found.decode_step, DecodeStep)
    assert found.decode_load == pytest.approx(0.6)
