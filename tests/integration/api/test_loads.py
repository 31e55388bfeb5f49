"""Load samples become heatmaps: rollups, late and repeated reports, partitions and retention.

They are compared with plain arithmetic.
"""

import asyncio
import math
import random
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import psycopg
import pytest

from fairlead.instances import InstanceState
from fairlead.reports.decisions import CandidateScore, DecisionReason, DecisionRecord, Weighing
from fairlead.reports.loads import LoadSample
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.reports.traffic import RecordedRequest, salt_of, session_number
from fairlead_api.loads.store.samples import PER_SECOND
from fairlead_api.reports.plausibility import MAX_COUNT
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.heatmaps import METRICS, Heatmap
from fairlead_client.resources.load_explanations import Senders
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_binding, a_load, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain
from fairlead_testing.waiting import PATIENCE_SECONDS

STEP = 10
MOVE = """
INSERT INTO migrations (pool_id, id, at, source, target, session, request, trigger, router, outcome, tokens_moved, tokens_recomputed, recorded_at)
SELECT id, %s, %s, %s, %s, 's', 'q', 'drain', 'router-0', 'completed', 0, 0, now() FROM pools
"""


def samples(seed: int, start: int, seconds: int) -> dict[str, list[LoadSample]]:
    """Return two routers' samples of three instances, with gaps."""
    draw = random.Random(seed)
    found: dict[str, list[LoadSample]] = {"router-0": [], "router-1": []}
    for router, second, instance in ((r, s, i) for r in found for s in range(start, start + seconds) for i in "abc"):
        if draw.random() < 0.3:
            continue
        prompt = draw.choice([0, 1000])
        found[router].append(
            a_load(
                instance,
                second,
                running=draw.randrange(9),
                waiting=draw.randrange(4),
                pending_prefill_tokens=draw.randrange(9000),
                in_flight=draw.randrange(9),
                kv_usage=draw.choice([None, round(draw.random(), 3)]),
                requests=draw.randrange(5),
                completed=2,
                failed=draw.randrange(2),
                prompt_tokens=prompt,
                hit_tokens=draw.randrange(prompt + 1),
                ttft_seconds=tuple(round(draw.random() * 8, 3) for _ in range(draw.randrange(4))),
                tpot_seconds=tuple(round(draw.random(), 3) for _ in range(draw.randrange(3))),
                ttft_within_slo=1,
                ttft_total=2,
            )
        )
    return found


def per_second(all_samples: list[LoadSample], metric: str) -> dict[tuple[str, int], float]:
    """Return the reference: one value per instance and second over all routers."""
    groups: dict[tuple[str, int], list[LoadSample]] = defaultdict(list)
    for sample in all_samples:
        groups[sample.instance, sample.second].append(sample)
    found: dict[tuple[str, int], float] = {}
    for key, group in groups.items():
        if metric in {"ttft_p95", "tpot_p95"}:
            values = [value for sample in group for value in (sample.ttft_seconds if metric == "ttft_p95" else sample.tpot_seconds)]
            if values:
                found[key] = float(np.percentile(values, 95))
        elif metric == "hit_rate":
            if prompt := sum(sample.prompt_tokens for sample in group):
                found[key] = sum(sample.hit_tokens for sample in group) / prompt
        elif metric == "kv_usage":
            known = [sample.kv_usage for sample in group if sample.kv_usage is not None]
            if known:
                found[key] = max(known)
        else:
            found[key] = sum(getattr(sample, metric) for sample in group)
    return found


def assert_equals_reference(heatmap: Heatmap, values: dict[tuple[str, int], float]) -> None:
    start = int(heatmap.start.timestamp())
    for row in heatmap.rows:
        for column, cell in enumerate(row.values):
            first = start + column * heatmap.step_seconds
            inside = [values[row.instance, s] for s in range(first, first + heatmap.step_seconds) if (row.instance, s) in values]
            if not inside:
                assert cell is None
                continue
            wanted = max(inside) if heatmap.aggregate == "max" else sum(inside) / len(inside)
            assert cell is not None
            assert math.isclose(cell, wanted, rel_tol=1e-5, abs_tol=1e-6), (row.instance, column)
            breached = heatmap.limit is not None and cell > heatmap.limit
            assert (column in row.breaches) == breached


async def test_heatmap_numbers_equal_plain_arithmetic_for_every_metric(api: ApiInstance, database_url: str) -> None:
    now = datetime.now(UTC)
    start = int(now.timestamp()) // 60 * 60 - 300
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in "abc")))
    sent = samples(7, start, 150)
    for router, rows in sent.items():
        half = len(rows) // 2
        await api.router.post_report(a_report(f"{router}-late", router, loads=tuple(rows[half:])))
        await api.router.post_report(a_report(f"{router}-early", router, loads=tuple(rows[:half])))
        await api.router.post_report(a_report(f"{router}-early", router, loads=tuple(rows[:half])))
    await api.app.state.upkeep.roll_up(now)
    everything = [sample for rows in sent.values() for sample in rows]
    begun, ended = (datetime.fromtimestamp(start + offset, UTC).isoformat() for offset in (0, 180))
    for metric in METRICS:
        values = per_second(everything, metric)
        for columns, step in ((180, 1), (18, 10), (3, 60)):
            for aggregate in ("max", "mean"):
                found = await api.viewer.heatmap(CHAT, metric=metric, start=begun, end=ended, columns=columns, aggregate=aggregate)
                assert (found.step_seconds, found.columns, found.unit) == (step, 180 // step, METRICS[metric])
                assert_equals_reference(found, values)
    whole = datetime.fromtimestamp(start // 300 * 300, UTC).isoformat(), datetime.fromtimestamp(start // 300 * 300 + 600, UTC).isoformat()
    for gone in ("false", "extract(epoch FROM bucket)::bigint / 10 % 2 = 0", "true"):  # the release before made none
        with psycopg.connect(plain(database_url)) as connection:
            connection.execute(f"DELETE FROM heatmap_columns WHERE {gone}".encode())
        for metric, aggregate in (("running", "max"), ("hit_rate", "mean"), ("ttft_p95", "max")):
            values = per_second(everything, metric)
            for columns in (180, 18, 3):
                found = await api.viewer.heatmap(CHAT, metric=metric, start=begun, end=ended, columns=columns, aggregate=aggregate)
                assert_equals_reference(found, values)
            found = await api.viewer.heatmap(CHAT, metric=metric, start=whole[0], end=whole[1], columns=2, aggregate=aggregate)
            assert found.step_seconds == 300
            assert_equals_reference(found, values)


async def test_an_explanation_has_the_cells_own_figures_its_senders_and_its_moves(api: ApiInstance, database_url: str) -> None:
    now = datetime.now(UTC)
    start = int(now.timestamp()) // 60 * 60 - 300
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in "abc")))
    sent = samples(11, start, 120)
    for router, rows in sent.items():
        await api.router.post_report(a_report(f"of-{router}", router, loads=tuple(rows)))
    await api.app.state.upkeep.roll_up(now)
    score = CandidateScore(instance="a", hit_tokens=900, miss_tokens=100, pending_tokens=0, predicted_ttft_seconds=0.1, total=None)
    chosen = DecisionRecord(
        id="d",
        pool=CHAT,
        request="q",
        session="heavy",
        at=start + 65.0,
        policy="dualmap",
        table_version=1,
        chosen="a",
        runner_up=None,
        reason=DecisionReason.SESSION_BOUND,
        prompt_tokens=1000,
        weighing=Weighing(rule="none", candidates=(score,), considered=1),
        sample_rate=0.1,
    )
    new = replace(score, hit_tokens=1000, miss_tokens=9000)
    unscored = replace(score, instance="b", miss_tokens=7)
    decisions = (
        *(replace(chosen, id=f"d{number}", request=f"q{number}", at=start + 60.0 + number) for number in range(3)),
        replace(
            chosen,
            id="moved",
            request="qm",
            session="mover",
            prompt_tokens=10_000,
            sample_rate=1.0,
            weighing=Weighing(rule="none", candidates=(unscored, new), considered=2),
        ),  # moves are always recorded
        replace(chosen, id="elsewhere", request="qe", session="gone", served_by="b"),
        replace(chosen, id="early", request="qy", session="gone", at=float(start - 300)),
    )
    await api.router.post_report(a_report("decided", decisions=decisions))
    with psycopg.connect(plain(database_url)) as connection:
        moved = [(f"m{number}", datetime.fromtimestamp(start + 61 + number, UTC), "a", "b" if number < 4 else "c") for number in range(6)]
        connection.cursor().executemany(MOVE, [*moved, ("late", datetime.fromtimestamp(start + 130, UTC), "a", "b")])
    everything = [sample for rows in sent.values() for sample in rows if sample.instance == "a"]
    for seconds in (5, 10, 60):
        begun, ended = (datetime.fromtimestamp(start + 60 + offset, UTC) for offset in (0, seconds))
        found = await api.viewer.load_explanation(CHAT, "a", metric="running", start=begun.isoformat(), end=ended.isoformat())
        assert (found.start, found.end) == (begun, ended)
        for figure in found.figures:
            for aggregate, value in (("max", figure.maximum), ("mean", figure.mean)):
                cells = await api.viewer.heatmap(
                    CHAT, metric=figure.metric, start=begun.isoformat(), end=ended.isoformat(), columns=1, aggregate=aggregate
                )
                if cells.step_seconds == seconds:
                    assert value == pytest.approx(cells.rows[0].values[0], rel=1e-12), "the database adds in any order"
        inside = [one for one in everything if start + 60 <= one.second < start + 60 + seconds]
        assert (found.requests, found.prompt_tokens) == (sum(one.requests for one in inside), sum(one.prompt_tokens for one in inside))
    senders = found.senders
    assert [(one.session, one.requests, one.prompt_tokens) for one in senders.top] == [("mover", 1, 10_000), ("heavy", 3, 3000)]
    assert [one.tokens_share for one in senders.top] == [None, None], "four requests are too few to say so"
    assert [(one.session, one.prefill_tokens) for one in senders.top_by_prefill] == [("mover", 9000), ("heavy", 300)]
    assert [one.prefill_share for one in senders.top_by_prefill] == [None, None]
    assert (senders.recorded, senders.sessions_seen, senders.start) == (4, 2, ended - timedelta(minutes=5))
    assert senders.sent == sum(one.requests for one in everything if one.second < start + 120)
    assert (found.left.total, found.left.instances, found.left.flows[0].instance, found.left.flows[0].count) == (6, 2, "b", 4)
    assert found.arrived.total == 0
    with pytest.raises(ApiProblem) as caught:
        await api.viewer.load_explanation(CHAT, "nope")
    assert caught.value.problem.status == 404
    with pytest.raises(ApiProblem) as caught:
        await api.viewer.load_explanation(CHAT, "a", start="now-3d")
    assert (caught.value.problem.status, caught.value.problem.field) == (422, "from")


async def test_who_sent_is_told_by_exact_sums_where_every_request_is_recorded(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    end = int(datetime.now(UTC).timestamp()) // 60 * 60
    salt = salt_of(a_state(an_instance("a")).uid)

    def recorded(session: str | None, tokens: int, cached: int | None, at: float = 30.0, instance: str = "a") -> RecordedRequest:
        number = None if session is None else session_number(salt, session)
        return RecordedRequest(
            pool=CHAT,
            at=end - at,
            session=number,
            prompt_tokens=tokens,
            output_tokens=5,
            blocks=(),
            instance=instance,
            sent_seconds=2.0,
            cached_tokens=cached,
        )

    traffic = (
        *(recorded("heavy", 1_000, 900) for _ in range(6)),
        recorded("mover", 6_000, None),
        recorded("forgotten", 2_000, 0),
        recorded(None, 1_000, 1_000),
        recorded("elsewhere", 50_000, 0, instance="b"),
        recorded("later", 50_000, 0, at=1.0),  # it arrived in the stretch, and was sent after it
    )
    sample = LoadSample(
        pool=CHAT,
        instance="a",
        second=end - 28,
        running=1,
        waiting=0,
        pending_prefill_tokens=0,
        in_flight=1,
        requests=9,
        prompt_tokens=15_000,
    )
    bindings = tuple(a_binding(session, "a") for session in ("heavy", "mover"))
    await api.router.post_report(a_report("sent", traffic=traffic, loads=(sample,), bindings=bindings))

    async def senders() -> Senders:
        begun, ended = (datetime.fromtimestamp(one, UTC).isoformat() for one in (end - 300, end))
        return (await api.viewer.load_explanation(CHAT, "a", metric="running", start=begun, end=ended)).senders

    found = await senders()
    assert (found.is_whole, found.is_exact, found.sent, found.recorded, found.sessions_seen) == (True, True, 9, 9, 3)
    told = [(one.session, one.is_unnamed, one.requests, one.prompt_tokens, one.tokens_share) for one in found.top]
    assert told == [
        ("heavy", False, 6, 6_000, 0.4),
        ("mover", False, 1, 6_000, 0.4),
        (None, True, 1, 2_000, pytest.approx(2 / 15)),
        (None, False, 1, 1_000, pytest.approx(1 / 15)),
    ]
    assert found.unnamed_share == pytest.approx(2 / 15)
    assert [(one.session, one.prefill_tokens) for one in found.top_by_prefill] == [
        ("mover", 6_000),
        (None, 2_000),
        ("heavy", 600),
        (None, 0),
    ]
    await api.router.post_report(a_report("more", loads=(replace(sample, second=end - 27, requests=1, prompt_tokens=10),)))
    under_way = await senders()
    assert (under_way.is_whole, under_way.is_exact, under_way.sent, under_way.recorded) == (True, False, 10, 9)
    await api.router.post_report(a_report("most", loads=(replace(sample, second=end - 26, requests=90, prompt_tokens=10),)))
    assert not (await senders()).is_whole, "of so few requests nothing is told as if it were of all"
    await api.router.post_report(a_report("sampled", traffic=(replace(recorded("heavy", 1, 0), sample_rate=0.5),)))
    assert not (await senders()).is_whole


async def test_a_late_report_corrects_a_bucket_already_rolled_up(api: ApiInstance) -> None:
    now = datetime.now(UTC)
    second = int(now.timestamp()) // 60 * 60 - 120
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("r1", loads=(a_load("a", second, requests=3, prompt_tokens=10, hit_tokens=5),)))
    await api.app.state.upkeep.roll_up(now)
    await api.router.post_report(a_report("r2", "router-1", loads=(a_load("a", second, requests=4, prompt_tokens=10, hit_tokens=0),)))
    await api.app.state.upkeep.roll_up(now)
    begun, ended = (datetime.fromtimestamp(second + offset, UTC).isoformat() for offset in (0, 60))
    for columns in (6, 1):
        found = await api.viewer.heatmap(CHAT, metric="requests", start=begun, end=ended, columns=columns)
        assert found.rows[0].values[0] == 7
    pool = (await api.viewer.pools()).items[0]
    assert (pool.hit_rate, pool.requests_per_second) == (0.25, 0.7)


async def test_seconds_are_made_of_samples_in_one_pass_whatever_the_database_knows_of_them(api: ApiInstance, database_url: str) -> None:
    second = int(datetime.now(UTC).timestamp()) - 20
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("r1", loads=tuple(a_load("a", second + more) for more in range(5))))
    statement = PER_SECOND.replace(":pool", "%(pool)s").replace(":start", "%(start)s").replace(":end", "%(end)s")
    values = {"pool": 1, "start": datetime.fromtimestamp(second, UTC), "end": datetime.fromtimestamp(second + 10, UTC)}
    with psycopg.connect(plain(database_url)) as connection:
        row = connection.execute(f"EXPLAIN (FORMAT JSON) {statement} SELECT * FROM per_second".encode(), values).fetchone()
    assert row is not None
    plan = str(row[0])
    assert plan.count("'Relation Name': 'load_samples") == 1
    assert "Nested Loop" not in plan and "Join" not in plan


async def test_served_requests_are_counted_once_whether_rolled_up_or_not(api: ApiInstance) -> None:
    now = int(datetime.now(UTC).timestamp())
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    loads = tuple(a_load("a", now - age, completed=1) for age in range(120))
    await api.router.post_report(a_report("r1", loads=loads))
    await api.app.state.upkeep.roll_up(datetime.now(UTC))
    for first in (100, 87, 45, 9):
        begun = datetime.fromtimestamp(now - first, UTC).isoformat()
        for pool in ({"pool": "default/chat"}, {}):
            assert (await api.viewer.rejections({"from": begun, **pool})).served == first + 1


async def test_what_is_old_is_read_from_what_is_kept_of_it(api: ApiInstance) -> None:
    begun = int(datetime.now(UTC).timestamp()) // 60 * 60 - 120
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("r1", loads=tuple(a_load("a", begun + more, completed=1) for more in range(60))))
    await api.app.state.upkeep.roll_up(datetime.now(UTC))
    start, end = (datetime.fromtimestamp(at, UTC).isoformat() for at in (begun, begun + 60))
    for days in (3, 6):
        api.clock.skip(days * 86400)
        await api.app.state.upkeep.keep_days(api.clock())
        heatmap = await api.viewer.heatmap(CHAT, metric="running", start=start, end=end)
        assert any(heatmap.rows[0].values), f"{days} days more"
        assert (await api.viewer.rejections({"from": start, "to": end})).served == 60


async def test_a_rollup_waits_for_samples_of_its_bucket_that_are_being_stored(api: ApiInstance, database_url: str) -> None:
    """Otherwise it would take the bucket off the queue without the samples, and the bucket would not be queued
    again.
    """
    second = int(datetime.now(UTC).timestamp()) - 60
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("r1", loads=(a_load("a", second),)))
    async with await psycopg.AsyncConnection.connect(plain(database_url)) as other:
        await other.execute("SELECT * FROM rollup_queue FOR UPDATE")
        storing = asyncio.ensure_future(api.router.post_report(a_report("r2", loads=(a_load("a", second),))))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await (await other.execute(waits)).fetchone() == (0,):
                assert not storing.done(), "it holds the bucket's place in the queue until it has stored all"
                await asyncio.sleep(0.02)
        await other.rollback()
        await storing


async def test_a_pools_ttft_is_given_at_its_own_percentile_too(api: ApiInstance) -> None:
    spec = {**SPEC, "slo": {"ttft": "2s", "percentile": 75}}
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), spec=spec))
    times = tuple(number / 10 for number in range(1, 31))
    second = int(datetime.now(UTC).timestamp()) - 30
    await api.router.post_report(a_report("r-1", loads=(a_load("a", second, ttft_seconds=times),)))
    (pool,) = (await api.viewer.pools()).items
    assert (pool.slo_percentile, pool.ttft_slo_seconds) == (75.0, 2.0)
    assert pool.ttft_at_percentile_seconds == pytest.approx(float(np.percentile(times, 75)))
    assert pool.ttft_p95_seconds == pytest.approx(float(np.percentile(times, 95)))


async def test_a_pools_share_in_time_is_of_ttft_and_tpot(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    second = int(datetime.now(UTC).timestamp()) - 30
    told = {"ttft_total": 4, "ttft_within_slo": 4, "tpot_total": 4, "tpot_within_slo": 1, "judged_by_slo": 4, "within_slo": 1}
    await api.router.post_report(a_report("r-1", loads=(a_load("a", second, **told),)))
    await api.app.state.upkeep.roll_up(datetime.now(UTC))
    (pool,) = (await api.viewer.pools()).items
    assert (pool.attainment, pool.slo_attainment) == (1.0, 0.25)


async def test_a_pools_state_digest_changes_with_its_state_only(api: ApiInstance) -> None:
    digests = []
    for step, state in enumerate(
        (
            a_state(an_instance("a"), version=1),
            a_state(an_instance("a"), version=2),
            a_state(an_instance("a"), version=3, conditions=({"type": "SLOMet", "status": "False", "reason": "Missed"},)),
            a_state(an_instance("a"), an_instance("b", InstanceState.PENDING, address=None), version=4),
        )
    ):
        await api.pool_operator.put_pool_state(CHAT, state)
        second = int(datetime.now(UTC).timestamp()) - 30 + step
        await api.router.post_report(a_report(f"d-{step}", loads=(a_load("a", second, ttft_seconds=(0.5,)),)))
        digests.append((await api.viewer.pool(CHAT)).pool.state_digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


async def test_a_pool_without_its_instances_is_the_same_pool(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    whole, without = await api.viewer.pool(CHAT), await api.viewer.pool(CHAT, instances=False)
    assert [one.id for one in whole.instances] == ["a", "b"]
    assert without == replace(whole, instances=[])


async def test_gauges_take_a_routers_last_word_of_a_second(api: ApiInstance) -> None:
    second = int(datetime.now(UTC).timestamp()) - 5
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("late", at=second + 3.0, loads=(a_load("a", second, running=2),)))
    await api.router.post_report(a_report("early", at=second + 1.0, loads=(a_load("a", second, running=9),)))
    at = datetime.fromtimestamp(second, UTC)
    found = await api.viewer.heatmap(CHAT, metric="running", start=at.isoformat(), end=(at + timedelta(seconds=1)).isoformat())
    assert found.rows[0].values == [2]


async def test_samples_whose_sum_no_column_can_hold_keep_no_other_bucket_from_being_rolled_up(
    api: ApiInstance, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    second = int(api.clock().timestamp()) // 60 * 60 - 120
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    names = [f"i{number}" for number in range(2**63 // (10 * MAX_COUNT) + 1)]
    far = tuple(a_load(name, at, prompt_tokens=MAX_COUNT) for name in names for at in range(second, second + 10))
    await api.router.post_report(a_report("far", loads=far))
    await api.router.post_report(a_report("well", loads=(a_load("a", second + 10, requests=3), a_load("a", second + 70, requests=4))))
    await api.app.state.upkeep.roll_up(api.clock())
    assert await api.app.state.upkeep.rollup_lag(api.clock()) == 0.0
    with psycopg.connect(plain(database_url)) as connection:
        assert connection.execute("SELECT sum(requests_total) FROM pool_rollups_1m").fetchone() == (7,)
    assert [one.message for one in caplog.records if "left out of rollups" in one.message] == [
        "samples that cannot be summed are left out of rollups"
    ]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"metric": "speed"}, "metric"),
        ({"start": "yesterday"}, "from"),
        ({"start": "now", "end": "now-1h"}, "from"),
        ({"columns": 361}, "columns"),
        ({"sort": "size"}, "sort"),
        ({"aggregate": "min"}, "aggregate"),
        ({"group": "rack"}, "group"),
    ],
)
async def test_a_bad_heatmap_query_names_its_field(api: ApiInstance, query: dict[str, str], field: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    with pytest.raises(ApiProblem) as caught:
        await api.viewer.heatmap(CHAT, **query)  # type: ignore[arg-type]  # columns is a number in one case
    assert (caught.value.problem.status, caught.value.problem.field) == (422, field)


def days_of(database_url: str) -> set[str]:
    with psycopg.connect(plain(database_url)) as connection:
        return {name for (name,) in connection.execute("SELECT relname FROM pg_class WHERE relname ~ '_[0-9]{8}$' AND relkind = 'r'")}


async def test_days_are_made_ahead_and_dropped_by_retention(api: ApiInstance, database_url: str) -> None:
    today = api.clock().date()
    await api.app.state.upkeep.keep_days(api.clock())
    made = days_of(database_url)
    assert f"load_samples_{today + timedelta(days=2):%Y%m%d}" in made
    assert f"decisions_{today - timedelta(days=1):%Y%m%d}" in made
    api.clock.skip(10 * 86400)
    await api.app.state.upkeep.keep_days(api.clock())
    later = days_of(database_url)
    assert f"rejections_{today:%Y%m%d}" in later
    assert f"load_samples_{today:%Y%m%d}" not in later
    assert f"decisions_{today:%Y%m%d}" not in later
    assert f"decisions_{today + timedelta(days=12):%Y%m%d}" in later
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    at = api.clock().timestamp()
    receipt = await api.router.post_report(a_report("r1", at=at, loads=(a_load("a", int(at)),)))
    assert not receipt.duplicate


async def test_rows_of_impossible_times_are_dropped_and_the_rest_kept(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    now = int(datetime.now(UTC).timestamp())
    loads = (a_load("a", now), a_load("a", 12), a_load("a", now + 10**9), a_load("a", 10**15))
    await api.router.post_report(a_report("r1", loads=loads))
    found = await api.viewer.heatmap(CHAT, metric="running", start="now-1m", end="now")
    assert [value for value in found.rows[0].values if value is not None] in ([1.0], [])


async def test_sessions_not_heard_of_end_and_routers_are_told(api: ApiInstance) -> None:
    from fairlead_testing.running.api import a_binding

    spec = {**SPEC, "routing": {"session": {"ttl": "1m"}}}
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), spec=spec))
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"), a_binding("t", "a"))))
    api.clock.skip(121)
    at = api.clock().timestamp()
    await api.router.post_report(a_report("r2", at=at, bindings=(a_binding("t", "a", at=at, based_on=1),)))
    await api.app.state.upkeep.end_sessions(api.clock())
    ended, living = await api.viewer.session(CHAT, "s"), await api.viewer.session(CHAT, "t")
    assert (ended.session.instance, ended.session.version) == (None, 1)
    assert ended.history[0].released_at is not None
    assert (living.session.instance, living.session.version) == ("a", 1)
    again = await api.router.post_report(a_report("r3", bindings=(a_binding("s", "a", based_on=1),)))
    assert again.conflicts == ()
    assert (await api.viewer.session(CHAT, "s")).session.version == 2


async def test_decisions_and_rejections_are_found_again_with_everything_in_them(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    now = datetime.now(UTC).timestamp()
    score = CandidateScore(
        instance="b",
        hit_tokens=512,
        miss_tokens=10,
        pending_tokens=3,
        predicted_ttft_seconds=0.5,
        total=13.0,
        terms={"decode_tokens": 1.0},
    )
    decision = DecisionRecord(
        id="d1",
        pool=CHAT,
        request="q1",
        session="s",
        at=now,
        policy="dualmap",
        table_version=1,
        chosen="b",
        runner_up="a",
        reason=DecisionReason.SLO_OVERLOADED,
        prompt_tokens=522,
        weighing=Weighing(
            rule="slo-guard",
            candidates=(score, replace(score, instance="a", hit_tokens=514, total=99.0)),
            considered=2,
            passed_over="a",
            limits={"overload_tokens": 90.0},
        ),
        served_by="a",
        ttft_seconds=0.6,
        sample_rate=0.1,
    )
    refused = [
        RejectionRecord(
            pool=CHAT,
            second=int(now) - offset,
            reason=RejectionReason.PREDICTED_TTFT,
            count=2 + offset,
            status=429,
            sample_request=f"q{offset}",
            sample_prompt_tokens=9,
            retry_after_seconds=1.5,
            predicted_ttft_seconds=9.0,
        )
        for offset in range(3)
    ]
    loads = (a_load("b", int(now) - 1, completed=21),)
    await api.router.post_report(a_report("r1", decisions=(decision,), rejections=tuple(refused), loads=loads))
    found = await api.viewer.decision("d1")
    assert found.candidates[0].terms == {"decode_tokens": 1.0}
    assert (found.rule.code, found.considered, found.passed_over, found.served_by) == ("slo-guard", 2, "a", "a")
    assert [(limit.name, limit.unit, limit.value) for limit in found.limits] == [("overload_tokens", "tokens", 90.0)]
    assert [(term.words, term.unit, term.better) for term in found.terms if term.name == "total"] == [
        ("load with this request", "tokens", "lower")
    ]
    assert found.explanation == (
        "b was chosen: the instance that held more of the prompt would have endangered the TTFT target. "
        "Load with this request on a: 99 tokens, above the limit of 90 tokens (load at which the TTFT target is endangered). "
        "Load with this request on a: 99 tokens, above 13 tokens on b. "
        "Load with this request: 13 tokens against 99 tokens on a, lower is better. "
        "It held 512 of 522 prompt tokens (98.1 %), with 3 tokens waiting ahead. "
        "Its first token was predicted in 500 ms; the request moved to a, where its first token came after 600 ms."
    )
    assert (found.chosen, found.runner_up, found.sample_rate, found.router) == ("b", "a", 0.1, "router-0")
    assert [item.id for item in (await api.viewer.decisions({"instance": "b", "from": "now-5m"})).items] == ["d1"]
    assert (await api.viewer.decisions({"instance": "a"})).items == []
    report = await api.viewer.rejections({"pool": "default/chat", "from": "now-10m"})
    assert (report.total, report.served) == (9, 21)
    (group,) = report.groups
    assert (group.count, sum(group.sparkline), group.share, len(group.samples)) == (9, 9, 1.0, 3)
    assert "slo.ttft" in group.suggestion
    text = b"".join([chunk async for chunk in api.viewer.export("/v1/decisions.csv", {})]).decode()
    assert text.splitlines()[0].startswith("id,pool,request")
    assert text.splitlines()[1].startswith("d1,default/chat,q1,s,")


async def test_a_heatmap_counts_all_migrations_of_its_range_however_many(api: ApiInstance, database_url: str) -> None:
    now = datetime.now(UTC)
    begun = datetime.fromtimestamp(int(now.timestamp()) // 60 * 60 - 3600, UTC)
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in "abc")))
    rows = [(f"m-{number:05d}", begun + timedelta(seconds=number % 3500), "ab"[number % 2], "bc"[number % 2]) for number in range(1200)]
    with psycopg.connect(plain(database_url)) as connection:
        connection.cursor().executemany(MOVE, rows)
    found = await api.viewer.heatmap(
        CHAT, metric="running", start=begun.isoformat(), end=(begun + timedelta(hours=1)).isoformat(), columns=60
    )
    assert found.migrations_total == 1200
    assert sum(move.count for move in found.migrations) == 1200
    assert len(found.migrations) < 200, "arrows are one per column and pair"
    assert min(move.at for move in found.migrations) < begun + timedelta(minutes=2), "the beginning of the range has its arrows too"
    assert {(move.source, move.target) for move in found.migrations} == {("a", "b"), ("b", "c")}
    newest = {(int((at - begun).total_seconds()) // 60, source): name for name, at, source, _ in sorted(rows, key=lambda row: row[1])}
    assert all(newest[int((move.at - begun).total_seconds()) // 60, move.source] == move.id for move in found.migrations)
