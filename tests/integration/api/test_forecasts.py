"""Forecasts from recorded roll-ups in Postgres: proposals, their application, and departures from them."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from fairlead_client.resources.plans import PROPOSER, ApplyRequest, PlanState
from fairlead_client.resources.webhooks import NoticeKind, WebhookRequest
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain

SPEC_OF_FORECASTS: dict[str, Any] = {
    **SPEC,
    "roles": [{"name": "both", "minReplicas": 1, "maxReplicas": 16}],
    "scaling": {"mode": "SLO", "forecast": {"mode": "Advise"}},
}
WEEKS = """
INSERT INTO pool_rollups_1m (pool_id, bucket, seconds, instance_seconds, kv_usage_sum, kv_usage_n, requests_total, completed, prompt_tokens,
  hit_tokens, output_tokens, within_slo, judged_by_slo)
SELECT p.id, t, 60, 60 * (CASE WHEN busy THEN 10 ELSE 2 END), 30, 60, n, n, n * 1000, n * 400, n * 200, n, n
FROM pools p, generate_series(date_trunc('minute', %(now)s::timestamptz) - make_interval(days => %(days)s), %(now)s, interval '1 minute') t,
  LATERAL (SELECT extract(hour FROM t AT TIME ZONE 'UTC') BETWEEN 8 AND 17 AS busy) b,
  LATERAL (SELECT CASE WHEN busy THEN 600 ELSE 60 END + extract(minute FROM t)::int %% 7 AS n) c
"""
SURGE = """
UPDATE pool_rollups_1m SET requests_total = 40 * requests_total, prompt_tokens = 40 * prompt_tokens, output_tokens = 40 * output_tokens
WHERE bucket >= %(now)s::timestamptz - interval '2 hours'
"""


@pytest.fixture
def cluster() -> FakeClusterGateway:
    fake = FakeClusterGateway()
    fake.add(CHAT, 2)
    fake.edit(CHAT, roles=SPEC_OF_FORECASTS["roles"], scaling=SPEC_OF_FORECASTS["scaling"])
    return fake


@pytest.fixture
async def api(database_url: str, cluster: FakeClusterGateway) -> AsyncIterator[ApiInstance]:
    async with running_api(database_url, overrides={"cluster": cluster}) as instance:
        yield instance


async def recorded(api: ApiInstance, url: str, days: int, spec: dict[str, Any] = SPEC_OF_FORECASTS, *more: str) -> None:
    """Store this many days of a pool's traffic: ten times as much from eight to six as at night."""
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), spec=spec))
    async with await psycopg.AsyncConnection.connect(plain(url), autocommit=True) as connection:
        for statement in (WEEKS, *more):
            await connection.execute(statement, {"now": api.clock(), "days": days})


async def test_too_short_a_record_makes_no_forecast_and_says_how_much_is_missing(api: ApiInstance, database_url: str) -> None:
    await recorded(api, database_url, 9)
    found = await api.viewer.forecast(CHAT)
    assert found.unknown is not None and "of 21 days are recorded" in found.unknown
    assert (found.quarters, found.request) == ([], None)


async def test_a_recorded_ramp_becomes_a_proposal_that_is_applied_once_and_then_is_what_the_pool_has(
    api: ApiInstance, cluster: FakeClusterGateway, database_url: str
) -> None:
    await recorded(api, database_url, 35)
    found = await api.viewer.forecast(CHAT)
    assert found.unknown is None
    assert found.request is not None
    busy = [one for one in found.quarters if one.at.hour == 12]
    assert all(9.5 < one.requests < 11 and one.low <= one.requests <= one.high for one in busy)
    assert {one.present["both"] for one in found.quarters} == {1}
    assert {one.proposed["both"] for one in busy} == {10}
    before_the_ramp = [one for one in found.quarters if (one.at.hour, one.at.minute) == (7, 45)]
    assert {one.proposed["both"] for one in before_the_ramp} == {10}, "a start and a cache take longer than a quarter of an hour"
    await api.app.state.foreseeing.look(api.clock())
    (plan,) = (await api.viewer.plans({"created_by": PROPOSER})).items
    assert plan.state is PlanState.OPEN
    assert plan.proposal is not None and "late requests instead of" in plan.proposal.because
    await api.app.state.foreseeing.look(api.clock())
    assert len((await api.viewer.plans({"created_by": PROPOSER})).items) == 1, "the same day proposes the same"
    await api.app.state.proposing.look(api.clock())
    assert (await api.viewer.plan(plan.id)).state is PlanState.OPEN, "the operator's advice withdraws only its own"
    await api.operator.apply_plan(plan.id, ApplyRequest())
    schedules = cluster.spec(CHAT)["scaling"]["schedules"]
    assert all(one["name"].startswith("forecast-") and one["followsForecast"] for one in schedules)
    applied = {**SPEC_OF_FORECASTS, "scaling": {**SPEC_OF_FORECASTS["scaling"], "schedules": schedules}}
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), version=2, spec=applied))
    again = await api.viewer.forecast(CHAT)
    assert again.request is None
    assert {one.present["both"] for one in again.quarters if one.at.hour == 12} == {10}


async def test_demand_that_leaves_the_forecast_is_a_word_to_the_operator_and_one_notice(api: ApiInstance, database_url: str) -> None:
    schedule = {"name": "forecast-daily-0745", "cron": "45 7 * * *", "duration": "10h", "followsForecast": True}
    scaling = {**SPEC_OF_FORECASTS["scaling"], "schedules": [{**schedule, "roles": [{"name": "both", "minReplicas": 10}]}]}
    spec = {**SPEC_OF_FORECASTS, "scaling": scaling}
    await api.admin.create_webhook(WebhookRequest(name="owners", url="https://hooks.example.com/x", kinds=(NoticeKind.FORECAST_LEFT,)))
    await recorded(api, database_url, 35, spec, SURGE)
    for _ in range(2):
        await api.app.state.foreseen.watch(api.clock())
    answer = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), spec=spec))
    assert "outside of the forecast's" in answer.departed
    assert (await api.viewer.forecast(CHAT)).departed == answer.departed
    (notice,) = (await api.viewer.notices()).items
    assert notice.words.startswith("Schedules of default/chat that follow its forecast are suspended: demand is work for")
    api.clock.skip(timedelta(days=3).total_seconds())
    await api.app.state.foreseen.watch(api.clock())
    answer = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), spec=spec))
    assert answer.departed == "", "nothing was recorded since, so nothing is known to be outside"
