"""Signals that the API gives the operator, from reports in Postgres."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import fsum
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from fairlead.instances import Role
from fairlead.pool_states import PoolState
from fairlead.reports.arrivals import ArrivalSample
from fairlead.reports.loads import InstanceInFlight
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.scaling.signals import PoolSignals, RoleSignals
from fairlead_api.scaling.store import MEASURES
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_load, a_report, a_state, an_instance

TOLD: dict[str, Any] = {"tpot_within_slo": 1, "tpot_total": 2, "within_slo": 1, "judged_by_slo": 2, "prefilled_tokens": 500}


SCALED = {**SPEC, "roles": [{"name": "both", "minReplicas": 1}], "scaling": {"mode": "Advise"}}


def scaled_state() -> PoolState:
    return a_state(an_instance("a"), an_instance("b"), spec=SCALED)


@pytest.fixture
async def api(api: ApiInstance) -> ApiInstance:
    """Return an API whose clock stands still, so that reports stay within the last half minute."""
    api.clock.stop()
    return api


async def signals(api: ApiInstance) -> PoolSignals | None:
    api.clock.skip(3.5)  # what was read is shared for 3 s
    return (await api.pool_operator.put_pool_state(CHAT, scaled_state())).signals


async def told(api: ApiInstance) -> RoleSignals:
    found = await signals(api)
    assert found is not None
    assert found.window_seconds == 30
    (role,) = found.roles
    assert role.role is Role.BOTH
    return role


def refused(second: int, count: int) -> RejectionRecord:
    return RejectionRecord(
        pool=CHAT,
        second=second,
        reason=RejectionReason.PREDICTED_TTFT,
        count=count,
        status=429,
        sample_request="r",
        sample_prompt_tokens=1000,
        retry_after_seconds=1.0,
    )


async def test_two_routers_are_summed_and_another_pool_is_not_counted(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, scaled_state())
    second = int(api.clock().timestamp()) - 5
    reports = []
    for number, router in enumerate(("router-0", "router-1")):
        loads = tuple(
            a_load(
                name,
                second - step,
                pending_prefill_tokens=1000,
                completed=2,
                prompt_tokens=400,
                hit_tokens=100,
                output_tokens=20,
                generated_tokens=30,
                ttft_within_slo=1,
                ttft_total=2,
                tpot_seconds=(0.02, 0.04),
                prefilling_seconds=0.25,
                **TOLD,
            )
            for name in "ab"
            for step in range(10)
        )
        arrivals = tuple(ArrivalSample(pool=CHAT, second=second - step, requests=3, prompt_tokens=900) for step in range(10))
        in_flight = (InstanceInFlight(pool=CHAT, instance="a", in_flight=4, waiting=1 + number),)
        refusals = (refused(second, 10),)
        at = api.clock().timestamp()
        reports.append(a_report(f"{router}-r", router, at, loads=loads, arrivals=arrivals, rejections=refusals, in_flight=in_flight))
    for report in reports:
        await api.router.post_report(report)
    role = await told(api)
    assert (role.serving, role.in_flight, role.waiting) == (2, 8, 3)
    assert role.prompt_tokens_per_second == 2 * 10 * 900 / 30
    assert role.output_tokens_per_second == pytest.approx(60 * 15 / 30)
    assert (role.cached_share, role.decode_context_tokens) == (0.25, 205)
    assert role.prefill_tokens_per_second == 500 / 0.25
    assert role.pending_prefill_tokens == 4000
    assert role.prefill_load == pytest.approx(2000 / 2000 / 5.0)
    assert role.decode_load == pytest.approx(0.3)
    assert role.ttft_attainment == pytest.approx(40 / (80 + 20))
    assert role.tpot_attainment == 0.5


async def test_the_decode_step_is_of_the_batches_that_requests_ran_in_not_of_those_they_ended_in(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, scaled_state())
    length, end = 60, int(api.clock().timestamp()) // 10 * 10 - 3
    # Every answer takes a minute; full batches drain within 80 s.
    batches = [40] * 120 + [40 - step // 2 for step in range(80)] + [0] * 60
    steps = [0.01 + 0.001 * batch for batch in batches]
    loads = []
    for at in range(length, len(batches)):
        tpot = fsum(steps[at - length : at]) / length
        ended = {"completed": 1, "output_tokens": round(length / tpot), "tpot_seconds": (tpot,)} if batches[at] else {}
        loads.append(a_load("a", end - len(batches) + at, running=batches[at], prefilling_seconds=0.0, **ended, **TOLD))
    await api.router.post_report(a_report("r", loads=tuple(loads)))
    await api.app.state.upkeep.roll_up(api.clock())
    found = (await told(api)).decode_step
    assert found is not None
    assert found.fixed_seconds == pytest.approx(0.01, abs=0.002)
    assert found.seconds_per_request == pytest.approx(0.001, rel=0.1)


async def test_demand_is_not_known_while_a_router_of_before_does_not_tell_it(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, scaled_state())
    second = int(api.clock().timestamp()) - 5
    assert await signals(api) is None
    await api.router.post_report(a_report("new", loads=(a_load("a", second, prefilling_seconds=0.0, **TOLD),)))
    assert (await told(api)).prompt_tokens_per_second == 0.0
    await api.router.post_report(a_report("old", "router-1", loads=(a_load("a", second),)))
    assert await signals(api) is None


async def test_attainment_by_both_targets_is_told_beside_each(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, scaled_state())
    second = int(api.clock().timestamp()) - 40
    await api.router.post_report(a_report("r", loads=(a_load("a", second, ttft_within_slo=9, ttft_total=10, **TOLD),)))
    await api.app.state.upkeep.roll_up(api.clock())
    seen = await api.pool_operator.put_pool_state(CHAT, scaled_state())
    assert (seen.ttft_attainment, seen.tpot_attainment, seen.slo_attainment) == (0.9, 0.5, 0.5)


async def test_nothing_is_measured_for_a_pool_whose_numbers_are_fixed(api: ApiInstance) -> None:
    second = int(api.clock().timestamp()) - 5
    fixed = a_state(an_instance("a"))
    await api.pool_operator.put_pool_state(CHAT, fixed)
    await api.router.post_report(a_report("r", loads=(a_load("a", second, prefilling_seconds=0.0, **TOLD),)))
    assert (await api.pool_operator.put_pool_state(CHAT, fixed)).signals is None


async def test_each_sample_is_read_once_even_if_postgres_expects_that_there_are_none(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, scaled_state())
    second, seconds = int(api.clock().timestamp()) - 5, 10
    for router in ("router-0", "router-1"):
        loads = tuple(a_load(name, second - step, tpot_seconds=(0.02,), **TOLD) for name in "ab" for step in range(seconds))
        await api.router.post_report(a_report(f"{router}-r", router, loads=loads))
    end = datetime.fromtimestamp(second + 1, UTC)
    times = {"end": end, "start": end - timedelta(seconds=30), "earlier": end - timedelta(minutes=5)}
    engine = create_async_engine(database_url)
    try:
        async with engine.connect() as connection:
            for other in ("hashjoin", "mergejoin", "material"):  # what it does where it expects one row: loops in loops
                await connection.execute(text(f"SET LOCAL enable_{other} = off"))
            explained = text(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {MEASURES.text}")
            pool = (await connection.execute(text("SELECT id FROM pools"))).scalar_one()
            plan = (await connection.execute(explained, {"pool": pool, **times})).scalar_one()
    finally:
        await engine.dispose()
    assert sum(samples_read(plan[0]["Plan"])) == 2 * 2 * seconds


def samples_read(node: dict[str, Any]) -> Iterator[int]:
    if node.get("Relation Name", "").startswith("load_samples"):
        yield round(node["Actual Rows"] * node["Actual Loops"])
    for below in node.get("Plans", ()):
        yield from samples_read(below)
