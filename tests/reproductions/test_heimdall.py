from itertools import pairwise
from pathlib import Path

import pytest
from reproductions import heimdall
from reproductions.heimdall_runs import (
    MINMAX,
    PREAMBLE_BLOCK,
    PRECISE,
    RANDOM,
    SHAPE,
    SMALL,
    Observed,
    Setting,
    Task,
    climbing_rate,
    mean_of,
    percentiles,
    prompts,
    run_task,
)
from reproductions.sections import Context

from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, plan_jobs
from fairlead_simulator.workloads.prefix_groups import PrefixGroupShape

SMALL_SHAPE = PrefixGroupShape(groups=40)


def run(ttft: tuple[float, ...], attainment: float = 1.0) -> Observed:
    return Observed(ttft=ttft, attainment=attainment, hit_rate=0.5, busiest=0.25)


def test_the_section_has_a_table_per_claim_and_its_plot(tmp_path: Path) -> None:
    text = heimdall.write(Context(docs=tmp_path, seeds=2, quick=True, say=lambda _: None))
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### Random against precise",
        "### Everyone",
        "### Where the min-max score goes wrong: a cold pool",
        "### What reproduces",
    ]
    assert text.count("| --- |") == 4
    assert "| published | 4.46 | 9.29 | 17.96 | 0.22 | 0.72 | 1.11 | 20 | 13 | 16 |" in text
    assert "| nan |" not in text
    assert (tmp_path / "images/benchmarks/heimdall-ttft.png").stat().st_size > 10_000
    assert "(images/benchmarks/heimdall-ttft.png)" in text


def test_the_climb_keeps_the_rates_it_was_drawn_with() -> None:
    loaded = prompts(SMALL_SHAPE, 0)
    groups = SMALL_SHAPE.groups
    plan = ArrivalPlan(rate=climbing_rate(loaded, groups), warmup=groups, warmup_rate=SMALL_SHAPE.warmup_rate, spread="even")
    arrivals = [job.arrives_at for job in plan_jobs(loaded, plan)][groups:]
    drawn = loaded.seconds[groups:]
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    assert gaps == pytest.approx([later - earlier for earlier, later in pairwise(drawn)], abs=1e-9)
    tenth = len(gaps) // 10
    assert sum(gaps[:tenth]) > 3 * sum(gaps[-tenth:])


def test_each_prompt_comes_once_and_the_first_of_each_group_warms_the_pool_up() -> None:
    rows = prompts(SHAPE, 3).rows
    assert len({row.hash_ids for row in rows}) == len(rows) == SHAPE.groups * SHAPE.prompts_per_group
    assert len({row.hash_ids[0] for row in rows[: SHAPE.groups]}) == SHAPE.groups


def test_a_preamble_is_one_block_common_to_all_and_nothing_else_changes() -> None:
    plain, common = prompts(SMALL_SHAPE, 1), prompts(SMALL_SHAPE, 1, preamble=True)
    assert {row.hash_ids[0] for row in common.rows} == {PREAMBLE_BLOCK}
    assert [row.hash_ids[1:] for row in common.rows] == [row.hash_ids[1:] for row in plain.rows]
    assert common.seconds == plain.seconds
    assert all(PREAMBLE_BLOCK not in row.hash_ids for row in plain.rows)


def test_precise_routing_reuses_what_random_routing_computes_again() -> None:
    setting = Setting(engine=SMALL, climb=0.5)
    random, precise = (run_task(Task(setting=setting, contender=one, shape=SMALL_SHAPE, seed=0)) for one in (RANDOM, PRECISE))
    assert precise.hit_rate > 0.8 > 2 * random.hit_rate
    assert percentiles([precise])[2] < percentiles([random])[2] / 2


def test_a_common_block_gathers_cold_groups_by_the_minmax_score_only() -> None:
    busiest = {one.label: run_task(Task(setting=heimdall.WORST, contender=one, shape=SHAPE, seed=0)).busiest for one in (PRECISE, MINMAX)}
    assert busiest[MINMAX.label] > 1.5 * busiest[PRECISE.label]


def test_percentiles_are_means_over_runs_that_served_somebody() -> None:
    runs = [run((1.0, 2.0, 3.0, 4.0)), run((3.0, 4.0, 5.0, 6.0)), run(())]
    assert percentiles(runs) == (3.0, 4.0, 5.0, 5.0)
    assert percentiles([run(())]) == (0.0, 0.0, 0.0, 0.0)
    assert mean_of([run((), 0.5), run((), 1.0)], "attainment") == 0.75


def test_the_verdict_follows_the_factors() -> None:
    published = (20.0, 13.0, 16.0)
    assert heimdall.verdict_on((25.0, 35.0, 34.0), published) == "Reproduces"
    assert heimdall.verdict_on((162.0, 35.0, 34.0), published).startswith("The direction")
    assert heimdall.verdict_on((25.0, 0.9, 34.0), published) == "Does not reproduce"


def test_the_text_on_a_cold_pool_follows_its_figures() -> None:
    assert "not drawn in" in heimdall.ours_when_cold(0.99, 1.0, 0.8)
    assert "drawn in too (70.0 % in time)" in heimdall.ours_when_cold(0.7, 1.0, 0.6)
