"""Prices from OpenCost over HTTP and in Postgres: a pool without a price has OpenCost's cost of its pods."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fairlead_api.costs.opencost import OpenCost
from fairlead_api.costs.store.measuring import AGAIN, LONGEST_GAP, MeasuredPrices
from fairlead_api.costs.store.reading import PostgresCosts
from fairlead_api.infra.database import UPKEEP, Database
from fairlead_api.infra.errors import Unavailable
from fairlead_api.infra.pulse import Pulse
from fairlead_client.resources.costs import CostTotal
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_state, an_instance, running_api
from fairlead_testing.running.opencost import OpenCostStandIn, opencost
from fairlead_testing.waiting import PATIENCE_SECONDS

HOUR = timedelta(hours=1)


@pytest.fixture
async def tool() -> AsyncIterator[OpenCostStandIn]:
    async with opencost() as made:
        yield made


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(UPKEEP, Pulse(database_url))
    yield made
    await made.close()


@pytest.fixture
def prices(database: Database, tool: OpenCostStandIn) -> MeasuredPrices:
    return MeasuredPrices(database, OpenCost(tool.url), "USD")


@pytest.fixture
async def start(api: ApiInstance) -> datetime:
    """Return a whole hour from which two instances live; the clock stands there."""
    api.clock.stop()
    hour = api.clock().replace(minute=0, second=0, microsecond=0)
    api.clock.skip((hour - api.clock()).total_seconds())
    await _report(api)
    return hour


async def _report(api: ApiInstance, version: int = 1, **spec: Any) -> None:
    created = api.clock().timestamp() if version == 1 else api.clock().timestamp() - 3600
    instances = [an_instance(name, pod_uid=f"{name}-uid", created_at=created) for name in ("a", "b")]
    await api.pool_operator.put_pool_state(CHAT, a_state(*instances, version=version, generation=version, spec={**SPEC, **spec}))


async def _total(api: ApiInstance) -> list[CostTotal]:
    return (await api.viewer.cost({"from": "now-24h"})).totals


async def test_an_hour_costs_what_opencost_says(api: ApiInstance, start: datetime, prices: MeasuredPrices, tool: OpenCostStandIn) -> None:
    tool.costs = {(start, "default", "a"): 3.0, (start, "default", "b"): 1.5, (start, "elsewhere", "a"): 77.0}
    api.clock.skip(3600)
    await prices.look(api.clock())
    (total,) = await _total(api)
    assert (total.amount, total.currency, total.instance_hours, total.measured_hours) == ("4.500000", "USD", 2.0, 2.0)


async def test_the_running_hour_costs_what_it_cost_so_far_and_is_asked_again(
    api: ApiInstance, start: datetime, prices: MeasuredPrices, tool: OpenCostStandIn
) -> None:
    for minutes, cost in ((15, "0.500000"), (30, "1.000000"), (60, "3.000000")):
        tool.costs = {(start, "default", "a"): float(cost)}
        api.clock.skip((start + timedelta(minutes=minutes) - api.clock()).total_seconds())
        await prices.look(api.clock())
        (total,) = await _total(api)
        assert abs(Decimal(total.amount) - Decimal(cost)) <= Decimal("0.000002")


async def test_a_pool_that_declares_a_price_keeps_it(
    api: ApiInstance, start: datetime, prices: MeasuredPrices, tool: OpenCostStandIn, database: Database
) -> None:
    tool.costs = {(start + number * HOUR, "default", "a"): 3.0 for number in (0, 1)}
    api.clock.skip(3600)
    await _report(api, 2, cost={"currency": "EUR", "perInstanceHour": "1.00"})
    api.clock.skip(3600)
    await prices.look(api.clock())
    found = {one.currency: (one.amount, one.measured_hours) for one in await _total(api)}
    assert found == {"EUR": ("2.000000", 0.0), "USD": ("3.000000", 2.0)}
    assert await PostgresCosts(database).rates(api.clock()) == {("default/chat", "EUR"): 2_000_000}


async def test_the_present_rate_is_the_last_measured_one_and_none_when_that_is_old(
    api: ApiInstance, start: datetime, prices: MeasuredPrices, tool: OpenCostStandIn, database: Database
) -> None:
    tool.costs = {(start, "default", "a"): 3.0}
    api.clock.skip(3600)
    await prices.look(api.clock())
    assert await PostgresCosts(database).rates(api.clock()) == {("default/chat", "USD"): 3_000_000}
    api.clock.skip(7200)
    assert await PostgresCosts(database).rates(api.clock()) == {}


async def test_the_present_rate_is_not_what_an_hour_cost_in_its_first_seconds(
    api: ApiInstance, start: datetime, prices: MeasuredPrices, tool: OpenCostStandIn, database: Database
) -> None:
    tool.costs = {(start, "default", "a"): 3.0, (start + HOUR, "default", "a"): 0.0}
    api.clock.skip(3600 + 5)
    await prices.look(api.clock())
    assert await PostgresCosts(database).rates(api.clock()) == {("default/chat", "USD"): 3_000_000}
    api.clock.skip(25 * 60)
    tool.costs[start + HOUR, "default", "a"] = 2.0
    await prices.look(api.clock())
    (rate,) = (await PostgresCosts(database).rates(api.clock())).values()
    assert rate == pytest.approx(2.0 * 3_600 / 1_505 * 1e6, rel=1e-3)


async def test_a_tool_that_is_away_costs_nothing_and_the_gap_is_filled_when_it_is_back(
    api: ApiInstance, start: datetime, prices: MeasuredPrices, tool: OpenCostStandIn
) -> None:
    tool.costs = {(start + number * HOUR, "default", "a"): 1.0 for number in range(10)}
    api.clock.skip(3600)
    await prices.look(api.clock())
    tool.status = 500
    for _ in range(9):
        api.clock.skip(3600)
        with pytest.raises(Unavailable):
            await prices.look(api.clock())
    assert (await api.viewer.cost({"from": "now-24h"})).unpriced_hours == 18.0
    tool.status = 200
    await prices.look(api.clock())
    (total,) = await _total(api)
    assert (total.amount, total.measured_hours) == ("10.000000", 20.0)


async def test_a_gap_that_began_within_an_hour_is_asked_for_in_whole_hours(
    api: ApiInstance, start: datetime, prices: MeasuredPrices, tool: OpenCostStandIn
) -> None:
    tool.costs = {(start + number * HOUR, "default", "a"): 1.0 for number in range(10)}
    api.clock.skip(37 * 60)
    await prices.look(api.clock())
    api.clock.skip(10 * 3600 - 37 * 60)
    await prices.look(api.clock())
    (total,) = await _total(api)
    assert (total.amount, total.measured_hours) == ("10.000000", 20.0)


async def test_questions_are_short_and_later_looks_ask_for_the_last_hours_only(
    api: ApiInstance, start: datetime, prices: MeasuredPrices, tool: OpenCostStandIn
) -> None:
    api.clock.skip(LONGEST_GAP.total_seconds())
    await prices.look(api.clock())
    assert len(tool.asked) == 8, "48 hours, six at once"
    tool.asked.clear()
    api.clock.skip(600)
    await prices.look(api.clock())
    now = api.clock()
    assert [one["window"] for one in tool.asked] == [f"{now.replace(minute=0) - AGAIN:%Y-%m-%dT%H:%M:%SZ},{now:%Y-%m-%dT%H:%M:%SZ}"]


async def test_a_clock_that_is_set_back_asks_again(
    api: ApiInstance, start: datetime, prices: MeasuredPrices, tool: OpenCostStandIn
) -> None:
    tool.costs = {(start, "default", "a"): 1.0}
    api.clock.skip(3600)
    await prices.look(api.clock() + 30 * HOUR)
    await prices.look(api.clock())
    (total,) = await _total(api)
    assert total.amount == "1.000000"


async def test_without_opencost_no_price_is_measured(api: ApiInstance, start: datetime, database: Database) -> None:
    api.clock.skip(3600)
    await MeasuredPrices(database, None, "USD").look(api.clock())
    assert await _total(api) == []


async def test_an_api_that_is_named_an_opencost_asks_it_at_its_start(
    api: ApiInstance, start: datetime, database_url: str, tool: OpenCostStandIn
) -> None:
    tool.costs = {(start, "default", "a"): 2.0}
    async with running_api(database_url, background=True, opencost_url=tool.url, opencost_currency="CHF") as made:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "CHF" not in {one.currency for one in await _total(made)}:
                await asyncio.sleep(0.05)
    assert tool.asked
