"""The result of a plan's simulation: figures if the simulated pool resembles the real one and neither chance nor the
traffic decides, otherwise the reason why nothing can be known.
"""

from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers

from fairlead_api.simulations.expected_figures import Recorded, Trialled, figures_of
from fairlead_client.resources.expectations import Quantity
from fairlead_client.simulation_jobs import PartFigures, RunFigures
from fairlead_testing.examples import examples

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
PLANNED = replace(FIGURES, attainment=0.9, hit_rate=0.4, refused_share=0.0, served=1000, sessions_moved=100)
LIKE = Recorded(attainment=0.78, hit_rate=0.55, sessions_moved=4)


def trialled(*changes: dict[str, Any], recorded: Recorded = LIKE) -> Trialled:
    """Return six runs: two seeds without and with the plan, then the plan at two rates. `changes` are made to the first
    run.
    """
    runs = [FIGURES, PLANNED, FIGURES, PLANNED, PLANNED, PLANNED]
    all_changes = [*changes, *({} for _ in range(len(runs) - len(changes)))]
    changed = [replace(run, **change) for run, change in zip(runs, all_changes, strict=True)]
    return Trialled(figures=changed, recorded=recorded, measured_seconds=1800.0)


def parts(*attainments: float) -> dict[str, list[PartFigures]]:
    return {"parts": [PartFigures(attainment=one, refused_share=0.0, hit_rate=0.4) for one in attainments]}


def unknown(found: Trialled) -> dict[Quantity, str | None]:
    return {one.quantity: one.unknown for one in figures_of(found)}


def test_figures_are_means_over_the_seeds() -> None:
    figures = {one.quantity: one for one in figures_of(trialled({}, {}, {"attainment": 0.7}, {"sessions_moved": 104}))}
    assert figures[Quantity.ATTAINMENT].before == pytest.approx(0.71)
    assert figures[Quantity.ATTAINMENT].after == pytest.approx(0.9)
    assert (figures[Quantity.SESSIONS_MOVED].before, figures[Quantity.SESSIONS_MOVED].after) == (2, 102)
    assert set(unknown(trialled()).values()) == {None}


def test_what_one_seed_finds_and_another_does_not_cannot_be_known() -> None:
    found = unknown(trialled({}, {}, {}, {"attainment": 0.6, "sessions_moved": 60}))
    assert found[Quantity.ATTAINMENT] == "chance decides: one seed gives 60.0 %, another 90.0 %"
    assert found[Quantity.SESSIONS_MOVED] == "chance decides: one seed gives 60, another 100"
    assert found[Quantity.HIT_RATE] is None


def test_few_sessions_more_or_less_are_no_chance() -> None:
    few = [{"sessions_moved": count} for count in (1, 4, 0, 2)]
    assert unknown(trialled({}, few[0], {}, few[1], *few[2:]))[Quantity.SESSIONS_MOVED] is None


def test_how_many_of_few_sessions_move_is_chance_also_where_the_seeds_agree() -> None:
    found = unknown(trialled({}, {"sessions_moved": 60}, {}, {"sessions_moved": 60}, {"sessions_moved": 60}, {"sessions_moved": 60}))
    assert found[Quantity.SESSIONS_MOVED] == "too few sessions move (about 60) to predict how many"


def test_what_another_rate_of_requests_changes_cannot_be_known() -> None:
    found = unknown(trialled({}, {}, {}, {}, {"attainment": 0.95}, {"attainment": 0.4, "refused_share": 0.3}))
    assert (
        found[Quantity.ATTAINMENT]
        == "the request rate decides: 90.0 % at the recorded rate, 95.0 % at 0.8 times the rate and 40.0 % at 1.25 times the rate"
    )
    assert "0.0 % at the recorded rate" in str(found[Quantity.REFUSED_SHARE])
    assert found[Quantity.HIT_RATE] is None


def test_what_differs_from_part_to_part_of_the_requests_cannot_be_known_of_others() -> None:
    def found(*attainments: float) -> str | None:
        both = parts(*attainments)
        return unknown(trialled({}, both, {}, both))[Quantity.ATTAINMENT]

    assert found(0.9, 0.85, 0.95, 0.88, 0.92) is None
    assert found(1.0, 0.5, 1.0, 1.0, 1.0) == "the traffic decides: one fifth of the time gives 50.0 %, another 100.0 %"
    by_session = {"session_parts": parts(1.0, 0.5, 1.0, 1.0, 1.0)["parts"]}
    assert "one fifth of the sessions" in str(unknown(trialled({}, by_session, {}, by_session))[Quantity.ATTAINMENT])
    assert unknown(trialled({}, parts(1.0, 0.0), {}, parts(1.0, 0.0)))[Quantity.ATTAINMENT] is None, "so few parts tell nothing"


@examples(20)
@given(mean=floats(0.3, 0.8), spread=floats(0.0, 0.3), seed=integers(0, 1000))
def test_a_figure_that_fails_for_other_requests_of_the_kind_is_told_as_known_in_one_case_of_ten_at_most(
    mean: float, spread: float, seed: int
) -> None:
    source = Random(seed)
    held = told = 0
    for _ in range(300):
        these, others = ([source.gauss(mean, spread) for _ in range(5)] for _ in range(2))
        run = {"attainment": fmean(these), **parts(*these)}
        [figure] = [one for one in figures_of(trialled({}, run, {}, run, run, run)) if one.quantity is Quantity.ATTAINMENT]
        told += figure.unknown is None
        held += figure.unknown is None and abs(fmean(others) - fmean(these)) <= max(0.01, 0.25 * fmean(these))
    assert told - held <= 0.13 * 300


def test_a_simulated_pool_that_is_not_like_the_real_one_says_nothing_of_it() -> None:
    found = unknown(trialled(recorded=Recorded(attainment=0.5, hit_rate=0.2, sessions_moved=30)))
    assert (
        found[Quantity.ATTAINMENT] == "the simulated pool is not like this one: 80.0 % in time without the change, but 50.0 % were recorded"
    )
    assert found[Quantity.REFUSED_SHARE] == found[Quantity.ATTAINMENT]
    assert "50.0 % of prompt tokens from caches without the change, but 20.0 % were recorded" in str(found[Quantity.HIT_RATE])
    assert (
        found[Quantity.SESSIONS_MOVED]
        == "the simulated pool is not like this one: 2 sessions moved without the change, but 30 were recorded"
    )


def test_a_pool_of_which_nothing_was_recorded_cannot_be_compared() -> None:
    found = unknown(trialled(recorded=Recorded()))
    assert "not recorded" in str(found[Quantity.ATTAINMENT])
    assert "not recorded" in str(found[Quantity.HIT_RATE])
