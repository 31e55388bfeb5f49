"""Figures of engines: the better source wins, and only observed figures may cause refusals."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import (
    SAME_TIME_SECONDS,
    UNKNOWN,
    EngineCapability,
    Figure,
    FigureWords,
    Source,
    Spread,
    agreed,
    best,
    declared,
    in_words,
    recalled,
    source_words,
    spread_of,
)

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


@given(st.lists(st.builds(Figure, value=st.floats(1.0, 1e5), source=st.just(Source.MEASURED), samples=st.integers(1, 500)), min_size=1))
def test_several_routers_agree_on_a_figure_between_theirs_in_any_order(figures: list[Figure]) -> None:
    found = agreed(figures)
    values = [one.value or 0.0 for one in figures]
    assert found.value is not None
    assert min(values) * 0.999 <= found.value <= max(values) * 1.001
    assert found.value == pytest.approx(agreed(figures[::-1]).value)
    assert found.samples == sum(one.samples for one in figures)


SEEN = st.builds(
    Figure, value=st.floats(1.0, 1e5), source=st.just(Source.MEASURED), samples=st.integers(1, 500), age_seconds=st.floats(0.0, 6e5)
)


@given(st.lists(SEEN, min_size=1), SEEN)
def test_what_a_router_saw_long_before_the_others_has_no_say(figures: list[Figure], old: Figure) -> None:
    """An idle router remembers engines as they were, even if it saw many requests then."""
    newest = min(one.age_seconds or 0.0 for one in figures)
    old = replace(old, age_seconds=newest + SAME_TIME_SECONDS + 1.0 + (old.age_seconds or 0.0))
    assert agreed([*figures, old]) == agreed(figures) == agreed([old, *figures])


@given(st.lists(SEEN, min_size=1), SEEN)
def test_a_router_that_does_not_say_when_it_saw_something_has_no_say_beside_those_that_do(figures: list[Figure], unaged: Figure) -> None:
    unaged = replace(unaged, age_seconds=None)
    assert agreed([*figures, unaged]) == agreed(figures) == agreed([unaged, *figures])
    assert agreed([unaged, UNKNOWN]).value == pytest.approx(unaged.value)


def test_a_router_that_measured_nothing_has_no_say() -> None:
    seen = Figure(value=9000.0, source=Source.MEASURED, samples=7, age_seconds=3.0)
    assert agreed([UNKNOWN, seen, declared(6250.0)]) == seen
    assert agreed([UNKNOWN, declared(6250.0)]) == UNKNOWN


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (Figure(value=1.0, source=Source.MEASURED, samples=41, age_seconds=20.0), "measured, 41 prefills, 20 s ago"),
        (Figure(value=1.0, source=Source.MEASURED, samples=1, age_seconds=7300.0), "measured, 1 prefill, 2 h ago"),
        (
            Figure(value=1.0, source=Source.FITTED, samples=240, age_seconds=300_000.0),
            "fitted to 240 recorded requests, fitted 3 d ago, not measured yet",
        ),
        (declared(6250.0), "declared, not measured yet"),
        (UNKNOWN, "unknown"),
    ],
)
def test_people_read_where_a_figure_comes_from(figure: Figure, words: str) -> None:
    assert source_words(figure, "prefill") == words


def test_a_figure_ages_and_all_are_read_in_their_units() -> None:
    seen = Figure(value=0.0312, source=Source.MEASURED, spread=Spread(p10=0.02, p50=0.03, p90=0.05), samples=2, age_seconds=10.0)
    known = EngineCapability(decode_step_seconds=recalled(seen, 5.0), kv_cache_tokens=declared(1_198_372))
    words = {one.name: one for one in in_words(known)}
    assert words["Decode step"] == FigureWords(
        name="Decode step", value="31.2 ms", source="measured, 2 answers, 15 s ago", spread="20.0 to 50.0"
    )
    assert words["KV cache"].value == "1,198,372 tokens"
    assert words["Prefill speed"] == FigureWords(name="Prefill speed", value="", source="unknown", spread="")
