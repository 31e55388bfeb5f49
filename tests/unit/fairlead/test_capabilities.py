"""Figures of engines: the better source wins, and only what was observed may refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import UNKNOWN, Figure, Source, best, declared, spread_of

FIGURES = st.builds(
    Figure, value=st.floats(0.1, 1e6), source=st.sampled_from([one for one in Source if one is not Source.UNKNOWN])
) | st.just(UNKNOWN)


@given(st.lists(FIGURES, max_size=5))
def test_the_figure_of_the_best_source_is_chosen(figures: list[Figure]) -> None:
    order = [Source.MEASURED, Source.FITTED, Source.DECLARED, Source.UNKNOWN]
    assert best(*figures).source is min((one.source for one in figures), key=order.index, default=Source.UNKNOWN)


def test_what_is_declared_was_not_observed() -> None:
    assert declared(6250.0).observed is None
    assert Figure(value=5000.0, source=Source.FITTED).observed == 5000.0
    assert declared(None) == UNKNOWN


def test_a_value_without_a_source_is_no_figure() -> None:
    with pytest.raises(ValueError, match="source unknown has the value 3"):
        Figure(value=3.0)
    with pytest.raises(ValueError, match="source measured has the value None"):
        Figure(source=Source.MEASURED)


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(0.1, 1e4)), min_size=1, max_size=50))
def test_quantiles_are_observed_values_in_order(weighed: list[tuple[float, float]]) -> None:
    spread = spread_of(weighed)
    assert spread is not None
    assert spread.p10 <= spread.p50 <= spread.p90
    assert {spread.p10, spread.p50, spread.p90} <= {value for value, _ in weighed}


def test_a_quantile_goes_by_weight() -> None:
    spread = spread_of([(1.0, 1.0), (1.0, 1.0), (9.0, 98.0)])
    assert spread is not None
    assert spread.p50 == 9.0
    assert spread_of([(float("nan"), 1.0), (2.0, 0.0)]) is None
