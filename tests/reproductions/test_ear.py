"""EAR's section: its arithmetic, and that every part of it is written."""

import re
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reproductions.ear import SECTION
from reproductions.ear_coupling import coupling_verdict
from reproductions.ear_equilibria import Equilibrium, Law, in_window, mean_curve, missing_turns, steps_of
from reproductions.ear_law import concurrency, sensitivity, slope_at_last
from reproductions.ear_policies import AFFINITY, EAR
from reproductions.ear_runs import Setting, Variant, cooldown_seconds, sessions_beyond_bound, simulate, tails
from reproductions.ear_trace import held_by_busiest, shape_of
from reproductions.sections import Context

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MigrationRecord
from fairlead.tables import PoolKey
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.run_results import RunResult
from fairlead_simulator.traces.rows import TraceRow


def test_the_worked_example_of_the_coupling_law() -> None:
    offered, alone, slope = 5.0, 1.0, 0.1
    in_flight = concurrency(offered, alone, slope)
    assert in_flight == pytest.approx(10.0)
    assert alone + slope * in_flight == pytest.approx(2.0)
    assert sensitivity(offered, in_flight, slope) == pytest.approx(20.0)
    assert concurrency(1.1 * offered, alone, slope) == pytest.approx(5.5 / (1 - 0.55)) == pytest.approx(12.2222, abs=1e-4)


def test_concurrency_diverges_as_the_coupling_nears_one() -> None:
    nearing = [concurrency(offered, 1.0, 0.1) for offered in (9.0, 9.9, 9.99, 9.999)]
    assert nearing == pytest.approx([90, 990, 9_990, 99_990])
    assert concurrency(10.0, 1.0, 0.1) == concurrency(11.0, 1.0, 0.1) == inf
    assert sensitivity(10.0, 50.0, 0.1) == sensitivity(11.0, 50.0, 0.1) == inf


@given(st.floats(0.1, 20), st.floats(0.01, 10), st.floats(0.0, 0.95))
def test_the_fixed_point_solves_the_law_and_its_derivative_is_the_sensitivity(offered: float, alone: float, coupling: float) -> None:
    slope = coupling / offered
    in_flight = concurrency(offered, alone, slope)
    assert in_flight == pytest.approx(offered * (alone + slope * in_flight))
    more, less = (concurrency((1 + step) * offered, alone, slope) for step in (1e-5, -1e-5))
    assert (more - less) / 2e-5 == pytest.approx(sensitivity(offered, in_flight, slope), rel=1e-4)


def test_the_slope_of_a_measured_curve_is_taken_at_its_last_point() -> None:
    assert slope_at_last([1.0, 2.0, 3.0, 4.0], [1.1, 1.2, 1.3, 1.4]) == pytest.approx(0.1)
    assert slope_at_last([1.0, 2.0, 4.0], [2.0, 5.0, 17.0]) == pytest.approx(8.0)


def equilibrium(factor: float, in_flight: float, offered: float) -> Equilibrium:
    return Equilibrium(variant="v", factor=factor, concurrency=in_flight, offered=offered, time=in_flight / offered)


def test_a_law_fitted_below_predicts_the_next_rate_of_a_linear_pool() -> None:
    points = [equilibrium(factor, concurrency(5 * factor, 1.0, 0.1), 5 * factor) for factor in (0.7, 0.8, 0.9, 1.0)]
    law = Law.of(points)
    assert law.coupling == pytest.approx(0.5)
    assert law.per_load == pytest.approx(20.0)
    assert law.predict(1.1) == pytest.approx(12.2222, abs=1e-4)
    assert law.predict(2.1) == inf


def test_curves_are_means_over_seeds_that_keep_littles_law() -> None:
    found = [equilibrium(1.0, 8.0, 4.0), equilibrium(1.0, 12.0, 6.0), equilibrium(0.5, 1.0, 2.0)]
    low, high = mean_curve(found, "v")
    assert (low.factor, high.factor) == (0.5, 1.0)
    assert (high.concurrency, high.offered, high.time) == (10.0, 5.0, 2.0)
    assert equilibrium(1.0, 9.0, 3.0).beyond_littles_law == pytest.approx(0.0)


def test_steps_of_a_curve_compare_what_is_predicted_and_measured_at_the_next_rate() -> None:
    factors = (0.7, 0.8, 0.9, 1.0, 1.1)
    (step,) = steps_of([equilibrium(factor, concurrency(5 * factor, 1.0, 0.1), 5 * factor) for factor in factors], 4)
    assert step.off == pytest.approx(0.0)
    assert step.uncoupled_off == pytest.approx(11 / 12.2222 - 1, rel=1e-4)
    assert step.measured_per_load == pytest.approx((12.2222 - 8.1818) / 0.2, rel=1e-4)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (1.0, "The law holds: "),
        (0.9, "The law holds only roughly: "),
        (0.4, "The law does not hold: "),
    ],
)
def test_the_verdict_on_the_law_follows_what_it_is_off_by(last: float, said: str) -> None:
    """A pool whose W grows linearly, but for the last rate, at which `last` of what the law foresees is in flight."""
    in_flight = {factor: concurrency(factor, 1.0, 0.6) for factor in (0.8, 0.9, 1.0, 1.1, 1.2)}
    in_flight[1.2] *= last
    curve = [equilibrium(factor, turns, factor) for factor, turns in in_flight.items()]
    curves = dict.fromkeys(("ear", "least-loaded"), curve)
    steps = {label: steps_of(curve, 3) for label, curve in curves.items()}
    assert coupling_verdict(curve, curves, steps).startswith(said)


def test_turns_are_missing_where_throughput_grows_less_than_the_rate_of_sessions() -> None:
    assert missing_turns([equilibrium(0.5, 1.0, 2.0), equilibrium(1.0, 9.0, 3.6)]) == pytest.approx(0.1)


def job(index: int, arrives: float, first: float, ends: float, *, instance: str = "a", session: str = "s") -> Job:
    made = Job(index=index, arrives_at=arrives, input_tokens=10, output_tokens=2, blocks=(), session=session)
    made.instance, made.first_token_at, made.finished_at = instance, first, ends
    return made


def test_concurrency_in_a_window_counts_what_overlaps_it() -> None:
    found = in_window([job(0, 0.0, 1.0, 12.0), job(1, 14.0, 15.0, 40.0), job(2, 30.0, 31.0, 33.0)], 10.0, 20.0, "v", 1.0)
    assert found.concurrency == pytest.approx((2 + 6) / 10)
    assert found.offered == pytest.approx(0.1)
    assert found.time == pytest.approx(26.0)


def test_tails_are_of_measured_requests_by_the_instance_that_served_them() -> None:
    jobs = [
        job(0, 0.0, 99.0, 100.0),
        *(job(index, 0.0, float(index), 20.0) for index in range(1, 11)),
        job(11, 1.0, 3.0, 4.0, instance="b"),
    ]
    assert tails(jobs, 1) == (2.0, 9.0)


def test_a_session_may_move_once_and_once_more_per_cooldown_it_lives() -> None:
    def moved(session: str, at: float) -> MigrationRecord:
        pool = PoolKey(namespace="n", name="p")
        return MigrationRecord(
            id=f"{session}{at}",
            pool=pool,
            session=session,
            request="r",
            source="a",
            target="b",
            trigger=BindingReason.HOT_MIGRATION,
            at=at,
            predicted_source_ttft_seconds=1.0,
            predicted_target_ttft_seconds=0.5,
            benefit_seconds=0.5,
        )

    jobs = [job(0, 0.0, 1.0, 2.0), job(1, 59.0, 60.0, 61.0), job(2, 0.0, 1.0, 2.0, session="t"), job(3, 60.0, 61.0, 62.0, session="t")]
    twice, thrice = [moved("s", at) for at in (0.0, 30.0)], [moved("t", at) for at in (0.0, 30.0, 60.0)]
    assert sessions_beyond_bound(RunResult(jobs, migrations=twice + thrice), 30.0) == 0
    assert sessions_beyond_bound(RunResult(jobs, migrations=[*twice, moved("s", 59.0), *thrice]), 30.0) == 1


def test_only_a_policy_with_a_cooldown_is_held_to_the_bound_on_moves() -> None:
    assert cooldown_seconds(Variant(label="ear", policy="ear")) == 30.0
    assert cooldown_seconds(Variant(label="ear", policy="ear", parameters={"cooldown_seconds": 0.0})) == 0.0
    assert cooldown_seconds(Variant(label="ours", policy="fairlead")) == 0.0
    assert cooldown_seconds(Variant(label="sticky", policy="sticky")) == 0.0


def row(session: str, ids: tuple[int, ...], tokens: int, output: int = 10) -> TraceRow:
    return TraceRow(timestamp_ms=0, input_length=tokens, output_length=output, hash_ids=ids, session=session)


def test_reuse_is_told_apart_by_who_sent_the_block_first() -> None:
    rows = [row("a", (0, 10, 11), 1537), row("a", (0, 10, 11, 12), 2049), row("b", (0, 10, 20), 1537)]
    found = shape_of(rows, system_ids=1)
    assert [found.own_session, found.other_session, found.system_prompt] == pytest.approx([3 / 5, 1 / 5, 1 / 5])
    assert found.ideal_hits == pytest.approx(5 * 512 / (1537 + 2049 + 1537))
    assert found.input_per_output == pytest.approx((1537 + 2049 + 1537) / 30)


def test_the_busiest_sessions_are_those_with_most_tokens() -> None:
    held = [1] * 98 + [51, 151]
    assert held_by_busiest(held, 0.01) == pytest.approx(151 / 300)
    assert held_by_busiest(held, 0.02) == pytest.approx(202 / 300)
    assert held_by_busiest([3, 1], 0.01) == pytest.approx(0.75)


def test_migration_cools_the_worst_instance_in_a_small_closed_loop() -> None:
    affine, ear = (
        simulate(Setting(variant=variant, rate=4.5, seed=0, closed_loop=True, requests=1200, settled_seconds=1000.0))
        for variant in (AFFINITY, EAR)
    )
    assert affine.moves_most == 0 < ear.moves_most
    assert ear.beyond_bound == 0
    assert ear.tails[-1] < affine.tails[-1]


def test_every_part_of_the_section_is_written(tmp_path: Path) -> None:
    text = SECTION.write(Context(docs=tmp_path, seeds=1, quick=True, say=lambda _: None))
    assert re.findall(r"^### (.+)$", text, re.MULTILINE) == ["The trace", "Policies", "Thresholds", "Coupling of load and latency"]
    assert len(re.findall(r"^\|(?: ?-+:? ?\|)+$", text, re.MULTILINE)) == 6
    plots = re.findall(r"!\[[^]]+\]\((.+?)\)", text)
    assert len(plots) == 3
    assert all((tmp_path / plot).stat().st_size > 10_000 for plot in plots)
    assert "nan" not in text
