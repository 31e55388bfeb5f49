"""The DualMap section: that it can be written, and the arithmetic behind its figures."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from reproductions import dualmap
from reproductions import dualmap_prose as prose
from reproductions.dualmap_candidates import knee
from reproductions.dualmap_claims import Measured, signed, verdict
from reproductions.dualmap_elasticity import Run, measured_rate, pools, with_rates
from reproductions.dualmap_homes import Step, key_moves, session_moves, total
from reproductions.dualmap_rates import NAMES, gain, relative
from reproductions.dualmap_setup import DUALMAP, Results, Study, crossing, studies
from reproductions.runs import workload
from reproductions.sections import Context

from fairlead_simulator.experiments.arrival_plans import ArrivalPlan, plan_jobs
from fairlead_simulator.experiments.cells import CellResult
from fairlead_simulator.simulation.jobs import Job, Phase

NOTHING = Step(sessions=0, moved=0, staying=0, strayed=0)


def quick(docs: Path) -> Context:
    return Context(docs=docs, seeds=1, quick=True, say=lambda _: None)


def attaining(shares: dict[str, list[float]]) -> Results:
    """Results at 1×, 2× … of one seed that know nothing but attainment."""
    cells = {
        (label, float(number)): [cast(CellResult, SimpleNamespace(figures=SimpleNamespace(attainment=share)))]
        for label, of_label in shares.items()
        for number, share in enumerate(of_label, start=1)
    }
    return Results(cells)


def job(index: int, at: float, session: str, instance: str, phase: Phase = Phase.FINISHED) -> Job:
    made = Job(index=index, arrives_at=at, input_tokens=1, output_tokens=1, blocks=(), session=session)
    made.instance, made.phase = instance, phase
    return made


def test_the_section_has_a_table_per_question_and_all_its_plots(tmp_path: Path) -> None:
    text = dualmap.SECTION.write(quick(tmp_path))
    headings = re.findall(r"^### (.*)$", text, re.MULTILINE)
    parts = re.split(r"^### .*$", text, flags=re.MULTILINE)
    assert len(headings) == 7
    assert all(re.search(r"^\| ---", part, re.MULTILINE) for part in parts)
    linked = re.findall(r"\]\((images/benchmarks/dualmap-[a-z-]+\.png)\)", text)
    assert len(linked) == len(set(linked)) == 4
    assert all((tmp_path / image).stat().st_size > 10_000 for image in linked)
    assert not re.search(r"\b(nan|inf)\b", text)


def test_goodput_is_where_attainment_crosses_ninety_percent() -> None:
    assert crossing([(1.0, 1.0), (2.0, 0.8)]) == pytest.approx(1.5)
    assert crossing([(1.0, 0.95), (2.0, 0.92), (3.0, 0.42), (4.0, 0.95)]) == pytest.approx(2.04)


def test_goodput_outside_the_rates_run_is_none_or_the_last() -> None:
    assert crossing([(1.0, 0.89), (2.0, 0.95)]) == 0.0
    assert crossing([(1.0, 0.95), (2.0, 0.9)]) == 2.0
    assert crossing([]) == 0.0


def test_capacity_is_compared_with_the_best_baseline_of_each_rate() -> None:
    shares = {"dualmap": [1.0, 0.9, 0.3], **{name: [0.9, 0.1, 0.1] for name in NAMES}}
    found = gain(attaining({**shares, "preble": [1.0, 0.5, 0.4], "min-ttft": [1.0, 0.6, 0.0]}))
    assert found.capacity == pytest.approx(0.5)
    assert (found.capacity_at, found.shares) == (2.0, (0.9, 0.6))
    assert found.best_goodput == "min-ttft"
    assert found.goodput == pytest.approx(2.0 / 1.25 - 1)


def test_relative_gains_and_their_verdicts() -> None:
    assert (relative(3.0, 2.0), relative(3.0, 0.0)) == (0.5, 0.0)
    assert (signed(0.126), signed(-0.2)) == ("+13 %", "-20 %")
    assert verdict(0.5, 0.5, 0.4) == "reproduces"
    assert verdict(0.1, 0.5, 0.4) == "only with the code's queue"
    assert verdict(0.5, 0.1, 0.4) == "only with one queue for all"
    assert verdict(0.1, 0.1, 0.4) == "does not reproduce"


def crowded(shares: dict[str, float], hits: float) -> Measured:
    """All policies at 0.9× with everything in time, and at 1.5× with these shares; `dualmap` has so many hits there."""
    cells = {
        (label, multiple): [
            cast(CellResult, SimpleNamespace(figures=SimpleNamespace(attainment=share, hit_rate=hit, load_cv=1.0))),
        ]
        for label, last in shares.items()
        for multiple, share, hit in ((0.9, 1.0, 0.5), (1.5, last, hits))
    }
    study = cast(Study, SimpleNamespace(title="T", ideal_hit_rate=1.0))
    return Measured(study=study, same=Results(cells), published=Results(cells))


def test_the_text_on_an_overload_claims_only_what_came_out_of_both_workloads() -> None:
    bad = dict.fromkeys(NAMES, 0.1) | {"dualmap": 0.2, "cache-affinity": 0.3, "preble": 0.1, "fairlead": 0.9}
    told = prose.same_queue((crowded(bad, 0.3), crowded(bad, 0.3)))
    assert "policies that balance badly (`cache-affinity`) still have instances with short queues" in told
    assert "as `fairlead` shows" in told
    assert "Hits fall there" in told
    mixed = prose.same_queue((crowded(bad, 0.3), crowded(dict.fromkeys(bad, 0.2), 0.5)))
    assert mixed.endswith("Past saturation the policies come out otherwise from one workload to the other.")


def test_a_knee_needs_most_of_the_gain_at_the_second_candidate() -> None:
    assert knee((0.3, 0.1, 0.04))
    assert knee((0.3, -0.1, -0.1))
    assert not knee((0.3, 0.1, 0.1))
    assert not knee((-0.1, -0.2, 0.0))


def test_sessions_are_judged_by_their_last_instance_before_the_step_and_their_first_after() -> None:
    jobs = [
        job(0, 1.0, "moves", "a"),
        job(1, 2.0, "moves", "b"),
        job(2, 6.0, "moves", "a"),
        job(3, 7.0, "moves", "b"),
        job(4, 3.0, "stays", "a"),
        job(5, 8.0, "stays", "a"),
        job(6, 4.0, "loses", "c"),
        job(7, 9.0, "loses", "a"),
        job(8, 4.0, "refused", "a"),
        job(9, 5.5, "refused", "b", Phase.REFUSED),
        job(10, 4.0, "ends", "a"),
        job(11, 0.1, "early", "a"),
        job(12, 9.0, "early", "b"),
    ]
    assert session_moves(jobs, 5.0, (0.5, 10.0), None) == Step(sessions=3, moved=2, staying=3, strayed=2)
    assert session_moves(jobs, 5.0, (0.5, 10.0), {"a", "b"}) == Step(sessions=3, moved=2, staying=2, strayed=1)


def test_steps_of_several_seeds_add_up() -> None:
    one = Step(sessions=4, moved=3, staying=2, strayed=1)
    assert total([one, one, NOTHING]) == Step(sessions=8, moved=6, staying=4, strayed=2)


def test_refused_requests_are_not_in_time_and_have_no_ttft() -> None:
    found = Run(label="x", requests=((0.0, 1.0), (1.0, None), (2.0, 6.0), (3.0, 2.0)), up=NOTHING, down=NOTHING)
    assert found.attainment(0.0, 10.0) == 0.5
    assert found.ttft_p90(0.0, 2.0) == 1.0
    assert (found.attainment(5.0, 10.0), found.ttft_p90(1.0, 2.0)) == (None, None)


def test_each_part_of_a_stretched_workload_has_its_rate_and_a_plan_of_the_mean_rate_keeps_it() -> None:
    loaded = workload("conversation", requests=200, max_input=None)
    stretched = with_rates(loaded, [(20, 100, 2.0), (100, 200, 5.0)])
    assert stretched.seconds[:20] == loaded.seconds[:20]
    rate = measured_rate(stretched, 20)
    arrivals = [one.arrives_at for one in plan_jobs(stretched, ArrivalPlan(rate=rate, warmup=20, warmup_rate=1.0, spread="even"))]
    assert (arrivals[99] - arrivals[20]) == pytest.approx(79 / 2.0)
    assert (arrivals[199] - arrivals[100]) == pytest.approx(99 / 5.0)
    assert (arrivals[100] - arrivals[99]) == pytest.approx(1 / 2.0)


def test_doubling_the_pool_moves_half_of_the_places_and_only_to_new_instances(tmp_path: Path) -> None:
    study, _ = studies(quick(tmp_path))
    few, many = pools(study)
    assert (len(few), len(many)) == (4, 8)
    found = key_moves(few, many, "distinct")
    assert found.needless == 0.0
    assert found.owners == pytest.approx(0.5, abs=0.08)
    assert found.places == pytest.approx(0.5, abs=0.08)
    assert found.kept == pytest.approx(1 - 6 / 28, abs=0.08)
    assert key_moves(few, many, "paper").needless > 0.0
    assert key_moves(many, many, "distinct").places == 0.0


def test_both_workloads_are_measured_after_the_warm_up_with_their_own_ids_for_every_seed(tmp_path: Path) -> None:
    for study in studies(quick(tmp_path)):
        assert 0.0 < study.ideal_hit_rate < 1.0
        assert study.saturation > 0.0
        variant = DUALMAP
        first, second = (study.cell(variant, 1.0, seed).spec.first_table().instances[0].id for seed in range(2))
        assert first != second
        assert not replace(variant, policy="min-ttft").hashes


def test_results_are_means_over_seeds() -> None:
    results = attaining({"a": [0.4]})
    figures: Any = SimpleNamespace(attainment=0.8)
    two = Results({("a", 1.0): [*results.cells["a", 1.0], cast(CellResult, SimpleNamespace(figures=figures))]})
    assert two.mean("a", 1.0, "attainment") == pytest.approx(0.6)
    assert two.attainments("a", 1.0) == [0.4, 0.8]
    assert two.with_others(results).mean("a", 1.0, "attainment") == pytest.approx(0.4)
