"""The sentences on a decision's page follow from its numbers."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fairlead.routing.contracts.weighing import Better, Term, Unit
from fairlead.routing.explanations.forecasts import forecast
from fairlead.routing.explanations.margins import Margin, Standing
from fairlead_client.resources.load_explanations import LoadExplanation, WindowFigure
from fairlead_testing.builders.wire_examples import example
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.drawing.explained_figures import figure_rows, forecast_remark, margin_figure, sum_of_parts

DECISION = World(now=datetime(2026, 11, 21, 10, 0, tzinfo=UTC)).decisions()[0]
COST = Term(name="total", words="cost", unit=Unit.SECONDS, better=Better.LOWER)


def margin(standing: Standing, chosen: float, other: float, *, by_rule: bool = True) -> Margin:
    return Margin(standing=standing, term=COST, other="b", chosen_value=chosen, other_value=other, by_rule=by_rule)


def test_a_margin_has_unit_direction_and_the_other_ones_name() -> None:
    won = margin_figure(margin(Standing.AHEAD, 1.2, 1.53))
    assert (won.words, won.value, won.note, won.level) == ("Margin in cost", "330 ms", "1.20 s against 1.53 s on b, lower is better", "")


def test_a_narrow_margin_is_not_rounded_to_zero() -> None:
    assert margin_figure(margin(Standing.AHEAD, 1.0, 1.0000004)).value == "0.0004 ms"


def test_a_chosen_one_that_was_behind_is_never_shown_as_ahead() -> None:
    lost = margin_figure(margin(Standing.BEHIND, 7.178, 6.886, by_rule=False))
    assert (lost.words, lost.value, lost.level) == ("Behind in cost", "292 ms", "warn")
    assert lost.note == "7.18 s against 6.89 s on b, lower is better; the rule overrides it"
    assert margin_figure(margin(Standing.EQUAL, 1.0, 1.0)).value == "none"


@pytest.mark.parametrize(
    ("predicted", "came", "words"),
    [
        (123.1, 3.59, "The prediction was bad: 123.1 s predicted, 3.59 s real, 119.5 s sooner, 34.3 times."),
        (1.0, 4.0, "The prediction was bad: 1.00 s predicted, 4.00 s real, 3.00 s later, 4.0 times."),
        (1.0, 1.4, ""),
    ],
)
def test_a_bad_prediction_is_remarked_on_and_a_good_one_is_not(predicted: float, came: float, words: str) -> None:
    assert forecast_remark(forecast(predicted, came, None, elsewhere=False)) == words
    assert forecast_remark(None) == ""


def test_the_parts_of_a_score_are_told_as_its_sum() -> None:
    chosen = DECISION.candidates[0]
    told = sum_of_parts(DECISION, chosen)
    assert told.endswith(" cost")
    recorded = [part for part in DECISION.parts if part in chosen.terms]
    assert told.count(" + ") == len(recorded) - 1 == 3, "a part that was not recorded counts nothing"
    assert sum_of_parts(DECISION, replace(chosen, total=None)) == ""
    assert sum_of_parts(replace(DECISION, parts=[]), chosen) == ""


def test_a_figure_has_its_limit_and_whoever_is_over_it_is_marked() -> None:
    world = example(LoadExplanation)
    tpot = WindowFigure(
        metric="tpot_p95",
        unit="seconds",
        maximum=0.1,
        mean=0.1,
        before=None,
        others=0.132,
        others_count=3,
        others_over=3,
        limit=0.1,
    )
    (row,) = figure_rows(replace(world, metric="tpot_p95", figures=[tpot]))
    assert (row.limit, row.here, row.others) == ("100 ms", "100 ms", "132 ms")
    assert (row.over, row.others_over) == (False, True)
