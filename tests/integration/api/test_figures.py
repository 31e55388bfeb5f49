"""The figures of a range on Postgres: for random recorded rows they agree with each other and with every chart.

While the roll-ups lag they are unknown, and no figure improves by that.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from fairlead.advice.findings import Cause
from fairlead.instances import InstanceState
from fairlead.latency_cells import EDGES, NO_TPOT, WIDTH, cell_of
from fairlead.pool_states import PoolObservations
from fairlead.reports.objectives import SloSample
from fairlead.routing.scheduling.slo_samples import SloSeconds
from fairlead.tables import SloFacts
from fairlead_client.resources.figures import RangeFigures
from fairlead_client.resources.series import Series
from fairlead_testing.builders.routing import table
from fairlead_testing.running.api import CHAT, ApiInstance, a_load, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain

MOVE = """
INSERT INTO migrations (pool_id, id, at, source, target, session, trigger, router, outcome, predicted_source_ttft_seconds,
  actual_ttft_seconds, tokens_moved, tokens_recomputed)
SELECT id, %s, %s, 'a', 'b', 's', 'drain', 'router-0', 'completed', %s, %s, 0, 0 FROM pools
"""
RANGES = (timedelta(minutes=3), timedelta(minutes=17), timedelta(hours=1), timedelta(hours=5), timedelta(hours=7), timedelta(days=3))
METRICS = ("attainment", "ttft_attainment", "refused", "ttft_p50", "ttft_p95", "migrations", "seconds_won", "reroutes")
TABLE = replace(table(1, slo=SloFacts(ttft_seconds=2.0, tpot_seconds=0.1)), slo_version=1)


def recorded(draw: random.Random, now: datetime) -> tuple[list[SloSample], int]:
    """Store routers' counts of some hundreds of requests in the last hours; return the number of requests."""
    seconds, ended = SloSeconds(CHAT, 100_000), draw.randint(1, 400)
    for _ in range(ended):
        at = now.timestamp() - draw.choice((60, 900, 3600, 18_000)) * draw.random() - 25
        fate = draw.random()
        name = draw.choice(("default", "batch"))
        if fate < 0.8:
            tpot = None if draw.random() < 0.2 else draw.expovariate(12)
            seconds.completed(name, TABLE, at, draw.lognormvariate(0.3, 1.2), tpot)
        elif fate < 0.95:
            seconds.refused(name, TABLE, at)
        else:
            seconds.failed(name, TABLE, at)
    return list(seconds.take(now.timestamp(), final=True)), ended


def total(found: Series, metric: str) -> float:
    """Return the sum of a chart's bars: rates times the part of each step that is over."""
    (line,) = [one for one in found.lines if one.metric == metric]
    amounts = 0.0
    for index, value in enumerate(line.values):
        begun = line.start + timedelta(seconds=index * line.step_seconds)
        lasted = min(float(line.step_seconds), (found.end - begun).total_seconds()) if line.unit.endswith("/s") else 1.0
        amounts += (value or 0.0) * max(1.0, lasted)
    return amounts


def check(figures: RangeFigures, samples: Sequence[SloSample]) -> None:
    """Check the laws that hold for any recorded rows."""
    assert figures.in_time <= min(figures.ttft_in_time, figures.judged)
    assert figures.ttft_in_time <= figures.judged <= figures.asked
    assert figures.tpot_in_time <= figures.tpot_judged <= figures.judged
    if figures.attainment is not None and figures.ttft_attainment is not None:
        assert 0 <= figures.attainment <= figures.ttft_attainment <= 1
        assert figures.served_in_time is not None and figures.served_in_time <= figures.attainment
    within = [one for one in samples if figures.start.timestamp() <= one.second < figures.end.timestamp()]
    counts = {name: sum(getattr(one, name) for one in within) for name in ("judged", "within_slo", "ttft_within_slo", "refused", "failed")}
    assert (figures.judged, figures.in_time, figures.ttft_in_time) == (counts["judged"], counts["within_slo"], counts["ttft_within_slo"])
    assert (figures.refused, figures.failed) == (counts["refused"], counts["failed"])
    steps = sorted(
        cell // WIDTH
        for one in within
        for cell, count in zip(one.cells, one.counts, strict=True)
        for _ in range(count)
        if cell // WIDTH != NO_TPOT
    )
    for share, value in ((0.5, figures.ttft_p50_seconds), (0.95, figures.ttft_p95_seconds)):
        if not steps:
            assert value is None
            continue
        assert value is not None
        place = max(0, -(-int(share * len(steps) * 1_000_000) // 1_000_000) - 1)
        step = steps[min(place, len(steps) - 1)]
        assert (EDGES[step - 1] if step else 0.0) - 1e-9 <= value <= EDGES[min(step, len(EDGES) - 1)] + 1e-9


@pytest.mark.parametrize("seed", range(3))
async def test_tiles_legends_and_bars_of_any_range_agree(api: ApiInstance, database_url: str, seed: int) -> None:
    draw, now = random.Random(seed), api.clock()
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    samples, ended = recorded(draw, now)
    seconds = sorted({one.second for one in samples})
    ends = {"requests": 3, "completed": 1, "failed": 1, "cancelled": 1}
    loads = tuple(a_load("a", second, **ends, prompt_tokens=100, hit_tokens=draw.randint(0, 100)) for second in seconds)
    await api.router.post_report(a_report("r1", at=now.timestamp(), slo_samples=tuple(samples), loads=loads))
    moves = [now - timedelta(seconds=draw.choice((100, 3000, 20_000)) * draw.random()) for _ in range(draw.randint(0, 40))]
    with psycopg.connect(plain(database_url)) as connection:
        for number, at in enumerate(moves):
            connection.execute(MOVE, (f"m{number}", at, draw.uniform(0, 5), None if draw.random() < 0.3 else draw.uniform(0, 5)))
    await api.app.state.upkeep.roll_up(now)
    assert sum(one.judged + one.refused + one.failed for one in samples) == ended
    end = now.replace(second=0, microsecond=0)
    for length in RANGES:
        asked = {"start": (end - length).isoformat(), "end": end.isoformat()}
        for pool in (CHAT, None):
            figures = await api.viewer.figures(pool, **asked)
            check(figures, samples)
            assert figures.sent == figures.completed_sends + figures.failed_sends + figures.cancelled_sends
            assert (figures.completed_sends > 0, figures.cancelled_sends) == (figures.sent > 0, figures.sent // 3)
            assert figures.migrations == sum(figures.start <= at < figures.end for at in moves)
            found = await api.viewer.series(METRICS, pool, buckets=180, **asked)
            assert found.start == figures.start
            assert abs(found.end - figures.end) < timedelta(minutes=1), "both end now where the last hour runs"
            assert total(found, "migrations") == pytest.approx(figures.migrations)
            assert total(found, "seconds_won") == pytest.approx(figures.seconds_won, abs=1e-6)
            assert total(found, "refused") == pytest.approx(figures.refused)
            both, first = (next(one for one in found.lines if (one.metric, one.part) == (name, None)).values for name in METRICS[:2])
            assert len(both) == len(first), "in the same steps"
            assert all((x is None) == (y is None) and (x is None or y is None or x <= y) for x, y in zip(both, first, strict=True))
        trends = await api.viewer.trends(**asked)
        for pool, one in ((CHAT, trends.pools[0]), (None, trends.fleet)):
            figures = await api.viewer.figures(pool, **asked)
            assert replace(one.figures, end=figures.end) == figures
        assert sum(trends.pools[0].judged) == trends.pools[0].figures.judged
        assert sum(trends.pools[0].refused) == trends.pools[0].figures.refused


@pytest.mark.parametrize("seed", range(2))
async def test_an_instances_figures_are_the_sums_of_its_samples_over_the_steps_of_its_charts(api: ApiInstance, seed: int) -> None:
    draw, now = random.Random(seed), api.clock()
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    seconds = sorted({int(now.timestamp()) - draw.randint(25, draw.choice((300, 3600, 18_000))) for _ in range(60)})
    loads = tuple(
        a_load(
            name,
            second,
            requests=draw.randint(1, 9),
            failed=draw.randint(0, 1),
            prompt_tokens=100,
            hit_tokens=draw.randint(0, 100),
            ttft_total=4,
            ttft_within_slo=draw.randint(0, 4),
            ttft_seconds=(draw.random(),),
        )
        for second in seconds
        for name in ("a", "b")
    )
    await api.router.post_report(a_report("r1", at=now.timestamp(), loads=loads))
    await api.app.state.upkeep.roll_up(now)
    end = now.replace(second=0, microsecond=0)
    for length in RANGES:
        asked = {"start": (end - length).isoformat(), "end": end.isoformat()}
        figures = await api.viewer.instance_figures(CHAT, "a", **asked)
        mine = [one for one in loads if one.instance == "a" and figures.start.timestamp() <= one.second < figures.end.timestamp()]
        sums = {
            name: sum(getattr(one, name) for one in mine) for name in ("requests", "failed", "hit_tokens", "ttft_total", "ttft_within_slo")
        }
        found = (figures.sent, figures.failed_sends, figures.hit_tokens, figures.first_tokens, figures.ttft_in_time)
        assert found == tuple(sums.values())
        together = await api.viewer.figures_by_instance(CHAT, **asked)
        for name in ("a", "b"):
            alone = await api.viewer.instance_figures(CHAT, name, **asked)
            assert replace(together.of(name), end=alone.end) == alone, "the list has the numbers of the page"
        assert together.of("never had a request").sent == 0
        assert set(together.instances) == {one.instance for one in mine} | ({"b"} if mine else set())
        highest = max((one.ttft_seconds[0] for one in mine), default=None)
        assert figures.ttft_p95_seconds == (None if highest is None else pytest.approx(highest, rel=1e-6))
        drawn = await api.viewer.series(("ttft_p95",), CHAT, "a", buckets=180, **asked)
        assert drawn.start == figures.start
        (line,) = drawn.lines
        assert max((value for value in line.values if value is not None), default=None) == figures.ttft_p95_seconds


REROUTE = """
INSERT INTO reroutes (pool_id, id, at, source, target, trigger, router, outcome, request, tokens_moved, tokens_recomputed)
SELECT id, %s, %s, 'a', 'b', 'hotspot', 'router-0', 'completed', 'r', 0, 0 FROM pools
"""
COUNTED = """
SELECT (SELECT count(*) FROM migrations WHERE at >= %(start)s AND at < %(end)s), (SELECT count(*) FROM reroutes WHERE at >= %(start)s AND at < %(end)s),
  count(net), coalesce(sum(net), 0)
FROM (SELECT predicted_source_ttft_seconds - actual_ttft_seconds AS net FROM migrations WHERE at >= %(start)s AND at < %(end)s) rows
"""


@pytest.mark.parametrize("seed", range(3))
async def test_moves_of_any_range_are_the_count_of_their_rows_however_far_their_rollups_are(
    api: ApiInstance, database_url: str, seed: int
) -> None:
    draw, end = random.Random(seed), api.clock().replace(second=0, microsecond=0)
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        for turn in range(6):
            for number in range(draw.randint(0, 25)):
                at = end - timedelta(seconds=draw.choice((100, 3000, 20_000, 250_000)) * draw.random())
                if draw.random() < 0.3:
                    connection.execute(REROUTE, (f"r{turn}-{number}", at))
                else:
                    connection.execute(
                        MOVE, (f"m{turn}-{number}", at, draw.uniform(0, 5), None if draw.random() < 0.5 else draw.uniform(0, 5))
                    )
            if draw.random() < 0.7:  # outcomes come to minutes that were rolled up before
                settled = "UPDATE migrations SET actual_ttft_seconds = random() * 5 WHERE actual_ttft_seconds IS NULL AND random() < 0.5"
                connection.execute(settled)
            if draw.random() < 0.6:
                await api.app.state.upkeep.roll_up(api.clock() - timedelta(seconds=draw.choice((0, 1500))))
            for length in RANGES:
                figures = await api.viewer.figures(CHAT, start=(end - length).isoformat(), end=end.isoformat())
                row = connection.execute(COUNTED, {"start": figures.start, "end": figures.end}).fetchone()
                assert row is not None
                assert (figures.migrations, figures.reroutes, figures.compared) == row[:3]
                assert figures.seconds_won == pytest.approx(row[3], abs=1e-9)
        await api.app.state.upkeep.roll_up(api.clock() + timedelta(minutes=2))
        assert connection.execute("SELECT count(*) FROM move_rollup_queue").fetchone() == (0,)
        sums = [
            connection.execute(f"SELECT sum(migrations), sum(reroutes) FROM move_rollups_{base}".encode()).fetchone()
            for base in ("1m", "1h")
        ]
        rows = connection.execute("SELECT (SELECT count(*) FROM migrations), (SELECT count(*) FROM reroutes)").fetchone()
        assert sums == [rows, rows]


async def test_a_move_that_is_committed_while_its_minute_is_rolled_up_is_counted(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    at = api.clock() - timedelta(minutes=5)
    with psycopg.connect(plain(database_url)) as early, psycopg.connect(plain(database_url)) as late:
        early.execute(MOVE, ("m1", at, 2.0, 1.0))
        late.execute(MOVE, ("m2", at, 2.0, 1.0))
        early.commit()
        await api.app.state.upkeep.roll_up(api.clock())
        assert (await api.viewer.figures(CHAT, start="now-10m")).migrations == 1
        late.commit()
        api.clock.skip(30)
        assert (await api.viewer.figures(CHAT, start="now-10m")).migrations == 2
        await api.app.state.upkeep.roll_up(api.clock())
        api.clock.skip(30)
        assert (await api.viewer.figures(CHAT, start="now-10m")).migrations == 2


async def test_what_is_not_rolled_up_is_unknown_and_neither_zero_nor_good(api: ApiInstance) -> None:
    api.clock.stop()
    spec_state: dict[str, Any] = {"instances": (an_instance("a"), an_instance("b"))}
    await api.pool_operator.put_pool_state(CHAT, a_state(*spec_state["instances"]))

    async def report(number: int) -> None:
        second = int(api.clock().timestamp()) - 3
        sample = SloSample(pool=CHAT, second=second, judged=10, within_slo=1, ttft_within_slo=1, cells=(cell_of(6.0, None),), counts=(10,))
        loads = tuple(a_load(name, second, requests=5, judged_by_slo=5, within_slo=0, ttft_total=5) for name in ("a", "b"))
        await api.router.post_report(a_report(f"r{number}", at=api.clock().timestamp(), slo_samples=(sample,), loads=loads))

    for number in range(6):
        await report(number)
        api.clock.skip(10)
    await api.app.state.upkeep.roll_up(api.clock())
    (fresh,) = (await api.viewer.pools()).items
    assert (fresh.figures_behind_seconds, fresh.slo_attainment) == (0.0, 0.0)
    for number in range(6, 30):  # the job no longer keeps up
        await report(number)
        api.clock.skip(10)
    lag = await api.app.state.upkeep.rollup_lag(api.clock())
    assert 200 < lag < 260
    (pool,) = (await api.viewer.pools()).items
    assert pool.figures_behind_seconds == pytest.approx(lag + 12, abs=1)
    assert [pool.attainment, pool.slo_attainment, pool.hit_rate, pool.requests_per_second, pool.ttft_p95_seconds] == [None] * 5
    seen: PoolObservations = await api.pool_operator.put_pool_state(CHAT, a_state(*spec_state["instances"], version=2))
    assert seen.figures_behind_seconds > 200
    assert (seen.slo_attainment, seen.signals) == (None, None)
    assert seen.demand is None or seen.demand.idle_seconds is None
    causes = {one.cause for one in (await api.viewer.advice(CHAT)).items}
    assert Cause.FIGURES_BEHIND in causes and Cause.SATURATED not in causes
    figures = await api.viewer.figures(CHAT, start="now-1h")
    assert figures.complete_until is not None and figures.known
    by_instance = await api.viewer.figures_by_instance(CHAT, start="now-1h")
    assert by_instance.of("a").known and by_instance.of("idle").complete_until == figures.complete_until
    assert not (await api.viewer.figures_by_instance(CHAT, start="now-2m")).of("a").known
    assert not (await api.viewer.figures(CHAT, start="now-2m")).known
    await api.app.state.upkeep.roll_up(api.clock())
    (caught_up,) = (await api.viewer.pools()).items
    assert (caught_up.figures_behind_seconds, caught_up.slo_attainment) == (0.0, 0.0)
    assert await api.app.state.upkeep.rollup_lag(api.clock()) == 0.0


async def test_a_late_sample_of_an_old_second_is_no_lag(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", InstanceState.SERVING)))
    now = api.clock()
    await api.router.post_report(a_report("r1", at=now.timestamp(), loads=(a_load("a", int(now.timestamp()) - 30),)))
    await api.app.state.upkeep.roll_up(now)
    await api.router.post_report(a_report("r2", at=now.timestamp(), loads=(a_load("a", int(now.timestamp()) - 900),)))
    assert await api.app.state.upkeep.rollup_lag(now) == 0.0
    assert (await api.viewer.pools()).items[0].figures_behind_seconds == 0.0
