"""What a plan's simulation says: figures where the simulated pool is like the real one and chance does not decide, else
why nothing can be known.
"""

from dataclasses import replace

import pytest

from fairlead_api.services.simulations.expectations import Kept, Recorded, Trialled, expectation_of, figures_of
from fairlead_client.resources.expectations import ExpectationState, Quantity
from fairlead_client.simulation_jobs import RunFigures

FIGURES = RunFigures(
    number=0,
    requests_per_second=10.0,
    requests=1000,
    served=900,
    failed=0,
    attainment=0.72,
    refused_share=0.1,
    ttft_p50=0.2,
    ttft_p90=1.0,
    ttft_p99=2.0,
    tpot_p90=0.03,
    hit_rate=0.5,
    ideal_hit_rate=0.7,
    migrations=3,
    reroutes=0,
    sessions_moved=2,
)
PLANNED = replace(FIGURES, attainment=0.9, hit_rate=0.4, refused_share=0.0, served=1000, sessions_moved=40)
LIKE = Recorded(attainment=0.78, hit_rate=0.55)


def trialled(*changes: dict[str, float], recorded: Recorded = LIKE) -> Trialled:
    """Two seeds, each as it is and as planned; `changes` to the four runs."""
    runs = [FIGURES, PLANNED, FIGURES, PLANNED]
    changed = [replace(run, **change) for run, change in zip(runs, changes or ({}, {}, {}, {}), strict=True)]  # type: ignore[arg-type]
    return Trialled(figures=changed, recorded=recorded, measured_seconds=1800.0)


def unknown(found: Trialled) -> dict[Quantity, str | None]:
    return {one.quantity: one.unknown for one in figures_of(found)}


def test_figures_are_means_over_the_seeds() -> None:
    figures = {one.quantity: one for one in figures_of(trialled({}, {}, {"attainment": 0.7}, {"sessions_moved": 44}))}
    assert figures[Quantity.ATTAINMENT].before == pytest.approx(0.71)
    assert figures[Quantity.ATTAINMENT].after == pytest.approx(0.9)
    assert (figures[Quantity.SESSIONS_MOVED].before, figures[Quantity.SESSIONS_MOVED].after) == (2, 42)
    assert set(unknown(trialled()).values()) == {None}


def test_what_one_seed_finds_and_another_does_not_cannot_be_known() -> None:
    found = unknown(trialled({}, {}, {}, {"attainment": 0.6, "sessions_moved": 20}))
    assert found[Quantity.ATTAINMENT] == "chance decides: one seed gives 60.0%, another 90.0%"
    assert found[Quantity.SESSIONS_MOVED] == "chance decides: one seed gives 20, another 40"
    assert found[Quantity.HIT_RATE] is None


def test_few_sessions_more_or_less_are_no_chance() -> None:
    assert unknown(trialled({}, {"sessions_moved": 1}, {}, {"sessions_moved": 4}))[Quantity.SESSIONS_MOVED] is None


def test_how_many_of_few_sessions_move_is_chance_also_where_the_seeds_agree() -> None:
    found = unknown(trialled({}, {"sessions_moved": 18}, {}, {"sessions_moved": 18}))
    assert found[Quantity.SESSIONS_MOVED] == "chance decides how many of so few move: about 18"


def test_a_simulated_pool_that_is_not_like_the_real_one_says_nothing_of_it() -> None:
    found = unknown(trialled(recorded=Recorded(attainment=0.5, hit_rate=0.2)))
    assert found[Quantity.ATTAINMENT] == "the simulated pool is not like this one: 80.0% in time as it is, where 50.0% were recorded"
    assert found[Quantity.REFUSED_SHARE] == found[Quantity.ATTAINMENT]
    assert "50.0% of prompt tokens from caches as it is, where 20.0% were recorded" in str(found[Quantity.HIT_RATE])
    assert found[Quantity.SESSIONS_MOVED] is None


def test_a_pool_of_which_nothing_was_recorded_cannot_be_compared() -> None:
    found = unknown(trialled(recorded=Recorded()))
    assert "was not recorded" in str(found[Quantity.ATTAINMENT])
    assert "was not recorded" in str(found[Quantity.HIT_RATE])


def test_a_plan_says_how_far_its_simulation_is_and_why_there_is_none() -> None:
    kept = Kept(state="running", error=None, start=None, end=None, done=10, total=4000, found=None, notes=[])
    at_work = expectation_of("p1", kept)
    assert (at_work.state, at_work.done, at_work.requests, at_work.figures) == (ExpectationState.RUNNING, 10, 1000, [])
    refused = expectation_of("p1", replace(kept, state="failed", error="3 requests were recorded", total=0))
    assert (refused.state, refused.reason, refused.requests) == (ExpectationState.UNKNOWN, "3 requests were recorded", None)
    assert expectation_of("p1", replace(kept, state="done")).state is ExpectationState.UNKNOWN, "an older version simulated it"
    done = expectation_of("p1", replace(kept, state="done", found=trialled()))
    assert (done.state, done.measured_seconds, done.seeds) == (ExpectationState.DONE, 1800.0, [0, 1])
