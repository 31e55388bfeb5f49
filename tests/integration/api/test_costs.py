"""Cost over HTTP and in Postgres: reported lives, prices and use, divided without a remainder."""

import asyncio
import random
from datetime import datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from fairlead.instances import InstanceState
from fairlead.reports.usage import PoolUsage
from fairlead_api.costs.store import spending
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.costs import CostPart, CostReport
from fairlead_client.resources.gateway_keys import GatewayKeyChange, GatewayKeyRequest
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_load, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain
from fairlead_testing.turns import counted_turns

NAMES = {
    "pool": {"default/chat"},
    "role": {"both"},
    "key": {"key-1", "key-2"},
    "class": {"default", "gold"},
    "session": {"default/chat/s1", "default/chat/s2"},
}


def priced(amount: str) -> dict[str, Any]:
    return {**SPEC, "cost": {"currency": "EUR", "perInstanceHour": amount}}


def used(now: datetime, **content: Any) -> PoolUsage:
    return PoolUsage(pool=CHAT, minute=int(now.timestamp()) // 60 * 60, **content)


def adds_up(found: CostReport) -> None:
    for total in found.totals:
        parts = Decimal(total.used) + Decimal(total.idle) + Decimal(total.unattributed)
        lines = sum(Decimal(one.amount) for one in found.lines if one.currency == total.currency)
        of_steps = (one for one in found.steps if one.currency == total.currency)
        steps = sum(Decimal(one.used) + Decimal(one.idle) + Decimal(one.unattributed) for one in of_steps)
        assert parts == lines == steps == Decimal(total.amount)


async def test_hours_times_price_are_divided_by_tokens_and_idle_time_has_its_own_line(api: ApiInstance) -> None:
    api.clock.stop()
    hour = api.clock().replace(minute=0, second=0, microsecond=0)
    api.clock.skip((hour - api.clock()).total_seconds())
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", created_at=hour.timestamp()), spec=priced("6.00")))
    api.clock.skip(1200)
    loads = tuple(a_load("a", int(hour.timestamp()) + second, prefilling_seconds=0.5) for second in range(600))
    one = used(hour, key="key-1", session="s1", requests=2, prefill_tokens=300, output_tokens=50, hit_tokens=40)
    two = used(hour, key="key-2", session="s2", priority_class="gold", requests=1, prefill_tokens=100, output_tokens=150)
    await api.router.post_reports(a_report("r1", at=api.clock().timestamp(), loads=loads, usage=(one, two)))
    await api.app.state.upkeep.roll_up(api.clock())
    api.clock.skip(2400)
    reports = {by: await api.viewer.cost({"by": by, "from": "now-24h"}) for by in NAMES}
    for by, found in reports.items():
        adds_up(found)
        (total,) = found.totals
        assert (total.amount, total.used, total.idle) == ("6.000000", "1.000000", "5.000000")
        assert {line.name for line in found.lines if line.part is CostPart.USED} == NAMES[by]
    of_keys = {line.name: line for line in reports["key"].lines if line.part is CostPart.USED}
    assert {name: (line.prefill, line.decode, line.requests) for name, line in of_keys.items()} == {
        "key-1": ("0.375000", "0.125000", 2),
        "key-2": ("0.125000", "0.375000", 1),
    }
    counted = {(line.requests, line.output_tokens) for line in reports["role"].lines if line.part is CostPart.USED}
    assert counted == {(None, None)}, "requests are recorded by pool: a role has no number of them, and not the number 0"
    (saved,) = reports["pool"].savings
    assert (saved.by, saved.amount) == ("caching", "0.050000")
    assert await _csv(api) == "name,part,amount\r\ndefault/chat,used,1.000000\r\n,idle,5.000000\r\n"


async def _csv(api: ApiInstance) -> str:
    query = {"by": "pool", "from": "now-24h", "fields": "name,part,amount"}
    return b"".join([part async for part in api.viewer.export("/v1/cost.csv", query)]).decode()


async def test_a_report_sent_again_is_counted_once(api: ApiInstance) -> None:
    now = api.clock()
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", created_at=now.timestamp() - 60), spec=priced("1")))
    row = used(now, key="k", requests=1, prefill_tokens=5)
    for name in ("r1", "r1", "r2"):
        await api.router.post_reports(a_report(name, usage=(row,)))
    found = await api.viewer.cost({"by": "key"})
    assert [(one.name, one.requests, one.prefill_tokens) for one in found.lines if one.requests] == [("k", 2, 10)]


async def test_the_sum_is_hours_times_price_through_deaths_restarts_and_new_prices(api: ApiInstance) -> None:
    """It holds also if pods have the names of former ones, a state is repeated, or the clock was set back for a
    while.
    """
    api.clock.stop()
    draw, paid, alive = random.Random(7), Decimal(0), dict[str, tuple[str, float]]()
    for number in range(1, 8):
        for name in ("a", "b", "c"):
            if name in alive and draw.random() < 0.5:
                del alive[name]
            elif name not in alive and draw.random() < 0.8:
                alive[name] = (f"{name}-{number}", api.clock().timestamp())
        micros, seconds = draw.randint(0, 9_999_999), draw.randint(1, 9000)
        instances = [an_instance(name, pod_uid=pod, created_at=at) for name, (pod, at) in alive.items()]
        state = a_state(*instances, version=number, generation=number, spec=priced(f"{Decimal(micros) / 1_000_000:f}"))
        for skipped in (0, -30, 30 + seconds):
            await api.pool_operator.put_pool_state(CHAT, state)
            api.clock.skip(skipped)
        paid += Decimal(micros) * seconds * len(alive) / 3600
    found = await api.viewer.cost({"from": "now-30h"})
    adds_up(found)
    assert abs(Decimal(found.totals[0].amount) * 1_000_000 - paid) <= Decimal("0.51")


async def test_a_pool_without_a_price_costs_nothing_and_says_how_many_hours_have_none(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", created_at=api.clock().timestamp() - 3600)))
    found = await api.viewer.cost()
    assert (found.totals, found.lines) == ([], [])
    assert found.unpriced_hours == pytest.approx(1, abs=0.5)


async def test_lives_end_with_their_instances_and_with_their_pool(api: ApiInstance, database_url: str) -> None:
    for version, state in enumerate((InstanceState.SERVING, InstanceState.GONE, InstanceState.SERVING), 1):
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", state), version=version, spec=priced("1")))
        assert _living(database_url) == (0 if state is InstanceState.GONE else 1)
    await api.pool_operator.delete_pool(CHAT)
    assert _living(database_url) == 0


def _living(database_url: str) -> int:
    with psycopg.connect(plain(database_url)) as connection:
        row = connection.execute("SELECT count(*) FROM instance_lives WHERE ended_at IS NULL").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize(("query", "words"), [({"by": "colour"}, "by"), ({"from": "now-99d"}, "92 days"), ({"pool": "default/no"}, "no")])
async def test_a_question_that_cannot_be_answered_is_refused(api: ApiInstance, query: dict[str, str], words: str) -> None:
    with pytest.raises(ApiProblem, match=words):
        await api.viewer.cost(query)


async def test_a_key_whose_budget_is_used_up_is_refused_until_the_next_day(api: ApiInstance) -> None:
    made = await api.operator.create_gateway_key(GatewayKeyRequest(name="team a", budget_day="0.50", budget_currency="EUR"))
    api.clock.stop()
    noon = api.clock().replace(hour=12, minute=0, second=0, microsecond=0)
    api.clock.skip((noon - api.clock()).total_seconds())
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", created_at=noon.timestamp()), spec=priced("3.60")))
    for seconds, reached in (
        (300, ()),
        (150, ("gateway-key.budget-soft",)),
        (200, ("gateway-key.budget-used-up", "gateway-key.budget-soft")),
    ):
        begun = int(api.clock().timestamp())
        api.clock.skip(seconds)
        loads = tuple(a_load("a", second) for second in range(begun, begun + seconds))
        row = used(noon, key=made.id, requests=1, prefill_tokens=5, output_tokens=5)
        await api.router.post_reports(a_report(f"r{begun}", at=api.clock().timestamp(), loads=loads, usage=(row,)))
        api.clock.skip(20)
        await api.app.state.upkeep.roll_up(api.clock())
        await api.app.state.budgets.look(api.clock())
        await api.app.state.budgets.look(api.clock())  # looking again changes nothing
        entries = (await api.viewer.audit({"action": "gateway-key.budget*"})).items
        assert tuple(one.action for one in entries) == reached
    (key,) = (await api.viewer.gateway_keys()).items
    midnight = noon.replace(hour=0) + timedelta(days=1)
    assert (key.budget_soft_at is not None, key.budget_ends_at) == (True, midnight)
    api.clock.skip((midnight - api.clock()).total_seconds())
    await api.app.state.budgets.look(api.clock())
    (key,) = (await api.viewer.gateway_keys()).items
    assert (key.budget_soft_at, key.budget_ends_at) == (None, None)


@pytest.mark.parametrize("meanwhile", ["raised", "looked"])
async def test_a_budget_is_judged_once_and_never_by_what_it_was_before_somebody_changed_it(
    api: ApiInstance, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    budgets, now = api.app.state.budgets, api.clock()
    made = await api.operator.create_gateway_key(GatewayKeyRequest(name="team a", budget_month="0.50", budget_currency="EUR"))
    spent, read, both = {(made.id, "EUR"): 600_000}, asyncio.Event(), asyncio.Barrier(2 if meanwhile == "looked" else 1)

    async def report(*_: object) -> None:
        if not read.is_set() and meanwhile == "raised":
            await api.operator.change_gateway_key(made.id, GatewayKeyChange(budget_month="9.00"))
        elif not read.is_set():
            await both.wait()
        read.set()

    monkeypatch.setattr(budgets, "_costs", SimpleNamespace(report=report))
    monkeypatch.setattr(spending, "spent_of", lambda _: spent)
    looks = [budgets.look(now)] if meanwhile == "raised" else [budgets.look(now), budgets.look(now)]
    await asyncio.gather(*looks)
    entries = (await api.viewer.audit({"action": "gateway-key.budget*"})).items
    assert len(entries) == (0 if meanwhile == "raised" else 2), "one entry for each limit that was reached"
    (key,) = (await api.viewer.gateway_keys()).items
    assert (key.budget_ends_at is None) == (meanwhile == "raised")


@pytest.mark.parametrize(
    ("budget", "field"),
    [
        ({"budget_day": "5"}, "budget_currency"),
        ({"budget_day": "0", "budget_currency": "EUR"}, "budget_day"),
        ({"budget_month": "a lot", "budget_currency": "EUR"}, "budget_month"),
        ({"budget_month": "5", "budget_currency": "euro"}, "budget_currency"),
        ({"budget_month": "5", "budget_currency": "EUR", "budget_soft_percent": 101}, "budget_soft_percent"),
        ({"budget_currency": "EUR"}, "budget_currency.*write budget_day or budget_month"),
        ({"budget_soft_percent": 50}, "budget_soft_percent.*write budget_day or budget_month"),
    ],
)
async def test_a_budget_that_cannot_be_used_names_its_field(api: ApiInstance, budget: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiProblem, match=field):
        await api.operator.create_gateway_key(GatewayKeyRequest(name="a", **budget))


async def test_a_currency_goes_with_the_last_budget_and_cannot_be_set_without_one(api: ApiInstance) -> None:
    request = GatewayKeyRequest(name="a", budget_day="5", budget_currency="EUR", budget_soft_percent=50)
    key = await api.operator.create_gateway_key(request)
    changed = await api.operator.change_gateway_key(key.id, GatewayKeyChange(budget_day=""))
    assert (changed.budget_day, changed.budget_currency, changed.budget_soft_percent) == (None, None, None)
    with pytest.raises(ApiProblem, match="write budget_day or budget_month too"):
        await api.operator.change_gateway_key(key.id, GatewayKeyChange(budget_currency="USD"))


def month_of_use(database_url: str, now: datetime, keys: int, hours: int) -> None:
    """Write a month of use by this many keys, each of which was used every hour."""
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute("UPDATE instance_prices SET since = since - interval '40 days'")
        connection.execute(
            "INSERT INTO usage_hours (pool_id, bucket, key_id, priority_class, requests, prefill_tokens, hit_tokens, output_tokens) "
            "SELECT p.id, date_trunc('hour', %s::timestamptz) - hour * interval '1 hour', 'key-' || key, 'default', 1, 100, 0, 10 "
            "FROM pools p, generate_series(1, %s) key, generate_series(0, %s - 1) hour",
            (now, keys, hours),
        )
        connection.execute(
            "INSERT INTO work_hours (pool_id, bucket, role, busy_milliseconds, prefilling_milliseconds) SELECT p.id, "
            "date_trunc('hour', %s::timestamptz) - hour * interval '1 hour', 'both', 1000, 500 FROM pools p, generate_series(0, %s - 1) hour "
            "ON CONFLICT DO NOTHING",
            (now, hours),
        )


async def test_a_month_of_many_keys_is_summed_beside_the_loop_which_serves_others_meanwhile(api: ApiInstance, database_url: str) -> None:
    """Calls in one step of the loop are counted: there is less than one for each row."""
    api.clock.stop()
    last = (api.clock().replace(day=1, hour=12, minute=0) + timedelta(days=27)).replace(day=27)
    api.clock.skip((last - api.clock()).total_seconds())
    await api.operator.create_gateway_key(GatewayKeyRequest(name="team a", budget_month="50", budget_currency="EUR"))
    created = (last - timedelta(days=40)).timestamp()
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", created_at=created), spec=priced("3.60")))
    keys, hours = 40, 200

    async def summed() -> CostReport:
        await api.app.state.budgets.look(api.clock())
        return await api.viewer.cost({"by": "key", "from": "now-9d"})

    await summed()  # what is made once, such as statements, is made now
    month_of_use(database_url, last, keys, hours)
    with counted_turns() as turns:
        found = await summed()
    assert len([one for one in found.lines if one.part is CostPart.USED]) == keys, "all rows were read"
    assert turns.longest < keys * hours, turns.where
