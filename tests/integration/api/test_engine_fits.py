"""Engines fitted to a pool's requests, through the control API on Postgres."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fairlead.reports.traffic import RecordedRequest
from fairlead_cli.engines import records_of
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.engine_fits import FitPoint
from fairlead_simulator.errors import RecordsUnusable
from fairlead_testing.builders.served_records import COSTS, a_fit, served_records
from fairlead_testing.running.api import CHAT, ApiInstance, a_report, a_state, an_instance, running_api


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiInstance]:
    async with running_api(database_url) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("i0"), an_instance("i1")))
        yield api


def recorded() -> list[RecordedRequest]:
    """Return requests as routers record them, each sent a second after its arrival."""
    records = served_records(count=120)
    begin = datetime.now(UTC).timestamp() - records[-1].at - 30
    return [
        RecordedRequest(
            pool=CHAT,
            at=begin + one.at - 1.0,
            session=None,
            prompt_tokens=one.prompt_tokens + 9,
            output_tokens=one.output_tokens,
            blocks=(),
            instance=one.engine,
            sent_seconds=1.0,
            ttft_seconds=one.ttft,
            answer_seconds=one.ends_at - one.at,
            engine_prompt_tokens=one.prompt_tokens,
            cached_tokens=one.cached_tokens,
        )
        for one in records
    ]


async def test_what_engines_served_is_handed_out_as_a_fit_needs_it(api: ApiInstance) -> None:
    unknown = replace(recorded()[5], instance=None, sent_seconds=None, ttft_seconds=None, answer_seconds=None)
    await api.router.post_report(a_report("traffic", traffic=(*recorded(), unknown)))
    found = await api.viewer.served_requests(CHAT)
    assert (len(found.items), found.sample_rate, found.unknown) == (120, 1.0, 1)
    for one, record in zip(records_of(found), served_records(count=120), strict=True):
        assert (one.engine, one.prompt_tokens, one.cached_tokens) == (record.engine, record.prompt_tokens, record.cached_tokens)
        assert one.at - records_of(found)[0].at == pytest.approx(record.at - served_records(count=120)[0].at, abs=0.01)
        assert one.ttft == pytest.approx(record.ttft, abs=1e-4)
        assert one.tpot == pytest.approx(record.tpot, abs=1e-4)
    assert len((await api.viewer.served_requests(CHAT, limit=7)).items) == 7
    with pytest.raises(RecordsUnusable, match="10% of sessions were recorded"):
        records_of(replace(found, sample_rate=0.1))
    with pytest.raises(RecordsUnusable, match="have no first token, because they were not"):
        records_of(replace(found, unknown=200))


async def test_a_fit_is_kept_with_its_pool_and_audited(api: ApiInstance) -> None:
    assert (await api.viewer.pool_engine(CHAT)).fit is None
    stored = await api.operator.store_engine(CHAT, a_fit())
    assert stored.fit == a_fit()
    again = await api.operator.store_engine(CHAT, a_fit(replace(COSTS, decode_fixed=0.03)))
    assert again == await api.viewer.pool_engine(CHAT)
    assert again.fit is not None
    assert again.fit.costs.decode_fixed == 0.03
    actions = [entry.action for entry in (await api.viewer.audit()).items]
    assert actions[:2] == ["engine.fitted", "engine.fitted"]
    assert (await api.operator.forget_engine(CHAT)).fit is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"costs": replace(COSTS, decode_fixed=-1.0)}, "costs.decode_fixed"),
        ({"costs": replace(COSTS, max_batched_tokens=0)}, "costs.max_batched_tokens"),
        ({"source": ""}, "source"),
        ({"ttft": replace(a_fit().ttft, mean_error=-0.1)}, "ttft.mean_error"),
        ({"ttft_points": [FitPoint(real=0.1, modelled=0.1)] * 301}, "ttft_points"),
        ({"fitted": -1}, "fitted"),
    ],
)
async def test_a_fit_that_cannot_be_is_refused_by_its_field(api: ApiInstance, change: dict[str, object], field: str) -> None:
    with pytest.raises(ApiProblem) as refused:
        await api.operator.store_engine(CHAT, replace(a_fit(), **change))  # type: ignore[arg-type]
    assert (refused.value.problem.status, refused.value.problem.field) == (422, field)
    with pytest.raises(ApiProblem) as denied:
        await api.viewer.store_engine(CHAT, a_fit())
    assert denied.value.problem.status == 403
