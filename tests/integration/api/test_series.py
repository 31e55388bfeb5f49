"""Numbers over time on Postgres: rollups of pools against plain arithmetic, gaps, settings in force and events.

The cost of a day of 500 instances is bounded.
"""

import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from fairlead.instances import InstanceState
from fairlead.latency_cells import cell_of
from fairlead.reports.objectives import SloSample
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead_api.series.store.series import _OF_INSTANCE, _OF_POOLS
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.series import AnnotationKind, Series
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_load, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain

MOVE = """
INSERT INTO migrations (pool_id, id, at, source, target, session, trigger, router, outcome, predicted_source_ttft_seconds,
  actual_ttft_seconds, tokens_moved, tokens_recomputed)
SELECT id, %s, %s, 'a', 'b', 's', 'drain', 'router-0', 'completed', %s, %s, 0, 0 FROM pools
"""
LOADS = """
INSERT INTO load_rollups_1m (pool_id, bucket, instance, running_sum, running_n, requests_n, waiting_n, pending_prefill_tokens_n, in_flight_n,
  kv_usage_n, ttft_p95_n, tpot_p95_n, hit_rate_n, failed_n, requests_total)
SELECT p.id, t, 'i' || i, 120, 60, 60, 60, 60, 60, 0, 0, 0, 0, 60, 30 FROM pools p, generate_series(1, 500) i,
  generate_series(date_trunc('minute', now()) - interval '1 day', now(), interval '1 minute') t
"""
POOLED = """
INSERT INTO pool_rollups_1m (pool_id, bucket, seconds, instance_seconds, kv_usage_n, requests_total)
SELECT p.id, t, 60, 30000, 0, 15000 FROM pools p,
  generate_series(date_trunc('minute', now()) - interval '1 day', now(), interval '1 minute') t
"""


def values_of(found: Series, metric: str, part: str | None = None) -> list[float | None]:
    (one,) = [line for line in found.lines if (line.metric, line.part) == (metric, part)]
    return one.values


def known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


async def test_a_pools_numbers_equal_plain_arithmetic_and_a_gap_stays_a_gap(api: ApiInstance) -> None:
    now = api.clock()
    start = int(now.timestamp()) // 60 * 60 - 600
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    silent = range(start + 120, start + 240)
    loads = tuple(
        a_load(
            name, second, running=running, requests=2, prompt_tokens=100, hit_tokens=hits, kv_usage=usage, ttft_within_slo=1, ttft_total=2
        )
        for name, running, hits, usage in (("a", 3, 80, 0.5), ("b", 5, 20, 0.7))
        for second in range(start, start + 480)
        if second not in silent
    )
    await api.router.post_report(a_report("r1", loads=loads))
    await api.app.state.upkeep.roll_up(now)
    begun, ended = (datetime.fromtimestamp(start + offset, now.tzinfo).isoformat() for offset in (0, 480))
    names = ["requests", "running", "hit_rate", "kv_usage", "failed", "waiting"]
    for buckets, step in ((48, 10), (8, 60)):
        found = await api.viewer.series(names, CHAT, start=begun, end=ended, buckets=buckets)
        assert {line.step_seconds for line in found.lines} == {step}
        for metric, wanted in {
            "requests": 4.0,
            "running": 8.0,
            "hit_rate": 0.5,
            "kv_usage": 0.6,
            "failed": 0.0,
        }.items():
            values = values_of(found, metric)
            gap = slice(120 // step, 240 // step)
            assert values[gap] == [None] * (120 // step), "nothing was reported then"
            assert all(
                value is not None and math.isclose(value, wanted, rel_tol=1e-5) for value in values[: gap.start] + values[gap.stop :]
            )
    fleet = await api.viewer.series(["requests", "running"], start=begun, end=ended, buckets=8)
    assert known(values_of(fleet, "requests")) == pytest.approx([4.0] * 6)
    of_one = ["requests", "running", "ttft_p95", "kv_usage", "ttft_attainment"]
    one = await api.viewer.series(of_one, CHAT, "b", start=begun, end=ended, buckets=48)
    assert known(values_of(one, "ttft_attainment")) == pytest.approx([0.5] * 36)
    assert known(values_of(one, "requests")) == pytest.approx([2.0] * 36)
    assert known(values_of(one, "running")) == pytest.approx([5.0] * 36)
    assert known(values_of(one, "ttft_p95")) == []
    hours = await api.viewer.series(["requests"], CHAT, start="now-7d", buckets=200)
    assert known(values_of(hours, "requests")) == pytest.approx([4.0] * len(known(values_of(hours, "requests"))))
    assert hours.lines[0].step_seconds == 3600


async def test_objectives_refusals_and_moves_are_told_by_class_cause_and_version(api: ApiInstance, database_url: str) -> None:
    classes = [{"name": "high", "priority": 10}, {"name": "low", "priority": -10}]
    for number, percentile in ((1, 90), (2, 80)):
        spec = {**SPEC, "priorityClasses": classes, "slo": {"ttft": "2s", "percentile": percentile}}
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=number, generation=number, spec=spec))
    api.clock.skip(300)
    now = api.clock()
    second = int(now.timestamp()) // 60 * 60 - 60
    cells = {cell_of(1.0, 0.05): 90, cell_of(6.0, 0.05): 10}
    samples = [
        SloSample(
            pool=CHAT,
            second=second,
            priority_class=name,
            slo_version=2,
            judged=100,
            within_slo=within,
            ttft_within_slo=within,
            refused=30,
            cells=tuple(cells),
            counts=tuple(cells.values()),
        )
        for name, within in (("high", 100), ("low", 60))
    ]
    refused = [
        RejectionRecord(
            pool=CHAT,
            second=second,
            reason=reason,
            count=count,
            status=429,
            sample_request="q",
            sample_prompt_tokens=1,
            retry_after_seconds=1.0,
        )
        for reason, count in ((RejectionReason.QUEUE_FULL, 40), (RejectionReason.PREDICTED_TTFT, 20))
    ]
    loads = (a_load("a", second), a_load("a", second - 60))
    report = a_report("r1", at=now.timestamp(), slo_samples=tuple(samples), rejections=tuple(refused), loads=loads)
    await api.router.post_report(report)
    with psycopg.connect(plain(database_url)) as connection:
        for number, (stay, real) in enumerate(((5.0, 2.0), (1.0, 1.5), (4.0, None))):
            connection.execute(MOVE, (f"m{number}", datetime.fromtimestamp(second, now.tzinfo), stay, real))
    await api.app.state.upkeep.roll_up(now)
    names = ["attainment", "goal", "burn", "refused", "refused_by_cause", "ttft_p50", "ttft_p95", "ttft_limit", "migrations", "seconds_won"]
    begun, ended = (datetime.fromtimestamp(second + offset, now.tzinfo).isoformat() for offset in (-60, 60))
    found = await api.viewer.series(names, CHAT, start=begun, end=ended, buckets=12)
    assert values_of(found, "attainment") == [None, 0.8], "no request was judged in the first minute"
    assert values_of(found, "attainment", "low") == [None, 0.6]
    assert values_of(found, "burn")[1] == pytest.approx(40 / 40)
    assert values_of(found, "refused") == [0.0, 1.0], "routers reported the first minute, and no refusal"
    assert sum(known(values_of(found, "refused_by_cause", "rejected-queue-full"))) == pytest.approx(4.0)
    assert values_of(found, "ttft_p50")[1] == pytest.approx(1.05, rel=0.1)
    assert values_of(found, "ttft_p95")[1] == pytest.approx(6.0, rel=0.1)
    assert (values_of(found, "migrations"), values_of(found, "seconds_won")) == ([0.0, 3.0], [0.0, 2.5])
    assert known(values_of(found, "goal"))[-1] == 0.8
    assert known(values_of(found, "ttft_limit"))[-1] == 2.0


async def test_what_was_wanted_and_what_served_is_told_step_by_step_with_what_happened(api: ApiInstance) -> None:
    states: list[tuple[int, list[InstanceState]]] = [
        (2, [InstanceState.SERVING, InstanceState.SERVING]),
        (3, [InstanceState.SERVING, InstanceState.SERVING, InstanceState.SERVING]),
        (3, [InstanceState.SERVING, InstanceState.LOST, InstanceState.SERVING]),
        (3, [InstanceState.SERVING, InstanceState.STARTING, InstanceState.SERVING]),
    ]
    for number, (wanted, found) in enumerate(states, 1):
        if number > 1:
            api.clock.skip(60)
        instances = [an_instance(name, state) for name, state in zip("abc", found, strict=False)]
        spec = {**SPEC, "replicas": wanted}
        await api.pool_operator.put_pool_state(
            CHAT, a_state(*instances, version=number, generation=number, spec=spec, desired={"both": wanted})
        )
    api.clock.skip(30)
    series = await api.viewer.series(["instances_wanted", "instances_serving"], CHAT, start="now-5m", buckets=30)
    assert known(values_of(series, "instances_wanted", "both")) == sorted(known(values_of(series, "instances_wanted", "both")))
    assert set(known(values_of(series, "instances_wanted", "both"))) == {2.0, 3.0}
    served = known(values_of(series, "instances_serving", "both"))
    assert [value for value, before in zip(served, [None, *served], strict=False) if value != before] == [2.0, 3.0, 2.0]
    happened = await api.viewer.annotations(CHAT, start="now-10m")
    told = {kind: [one.words for one in happened.items if one.kind is kind] for kind in AnnotationKind}
    assert told[AnnotationKind.SCALED] == ["both: 2 → 3 wanted"]
    assert [words.split(":")[0] for words in told[AnnotationKind.FAILURE]] == ["b lost", "b back"]
    assert told[AnnotationKind.REVISION][0].startswith("revision 1 by ")
    assert happened.complete
    of_a = await api.viewer.annotations(CHAT, "a", start="now-10m")
    assert not [one for one in of_a.items if one.kind is AnnotationKind.FAILURE]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"metrics": ["speed"]}, "metrics"),
        ({"start": "now", "end": "now-1h"}, "from"),
        ({"buckets": 361}, "buckets"),
        ({"start": "soon"}, "from"),
    ],
)
async def test_a_bad_question_names_its_field(api: ApiInstance, query: dict[str, Any], field: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    with pytest.raises(ApiProblem) as caught:
        await api.viewer.series(**{"metrics": ["requests"], "pool": CHAT, **query})
    assert (caught.value.problem.status, caught.value.problem.field) == (422, field)
    with pytest.raises(ApiProblem, match="nobody"):
        await api.viewer.series(["requests"], CHAT, "nobody")


async def test_a_day_of_500_instances_is_read_from_few_rows(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    start = datetime.fromtimestamp(int(api.clock().timestamp()) // 600 * 600, api.clock().tzinfo) - timedelta(days=1)
    values: dict[str, Any] = {"start": start, "end": start + timedelta(days=1), "last": start + timedelta(days=1, minutes=-1), "step": 600}
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute(LOADS)
        connection.execute(POOLED)
        connection.execute("ANALYZE")
        (pool,) = connection.execute("SELECT id FROM pools").fetchone() or (0,)
        for statement, table, more in (
            (_OF_POOLS, "pool_rollups_1m", {"pools": [pool]}),
            (_OF_INSTANCE, "load_rollups_1m", {"pool": pool, "instance": "i7", "base": 60, "now": api.clock()}),
        ):
            asked = {**values, **more}
            for name in sorted(asked, key=len, reverse=True):
                statement = statement.replace(f":{name}", f"%({name})s")
            explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.format(table=table).replace(' % ', ' %% ')}"
            row = connection.execute(explained.encode(), asked).fetchone()
            assert row is not None
            assert read_rows(row[0][0]["Plan"]) <= 3 * 1441, json.dumps(row[0], indent=1)


def read_rows(node: dict[str, Any]) -> float:
    """Return the most rows that a node of the plan read."""
    own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] if "Relation Name" in node else 0
    return max([own, *(read_rows(inner) for inner in node.get("Plans", []))])
