"""Figures beside budgets: percentiles, slopes, and the words about pages that failed."""

import pytest
from benchmarks.web_budgets.budgets import Line, percentile, slope
from benchmarks.web_budgets.viewers import Watched, Watching


def test_a_page_that_nobody_could_open_is_a_failure_and_no_stream() -> None:
    seen = Watched(
        pages={"/": Watching(first_bytes=[10.0], streamed=4000, seconds=2.0), "/sessions": Watching()},
        failures=["/sessions: ConnectError"],
    )
    told = {line.what: line for line in seen.lines()}
    assert set(told) == {"TTFB as the viewers had it", "stream of /, a viewer", "failures that viewers saw"}
    assert told["stream of /, a viewer"].figure == 2.0
    assert told["failures that viewers saw"].missed


def test_where_nobody_got_anything_failures_are_all_there_is() -> None:
    (line,) = Watched(failures=["/: ConnectError"] * 3).lines()
    assert (line.figure, line.told) == (3, "/: ConnectError")


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert percentile(list(map(float, range(1, 101))), 0.95) == 95.0
    assert percentile([7.0], 0.95) == 7.0


def test_a_slope_comes_with_the_range_in_which_it_likely_is() -> None:
    assert slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == (2.0, 0.0)
    grown, likely = slope([(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (3.0, 1.0)])
    assert grown == pytest.approx(0.2)
    assert likely > 0.2


def test_a_figure_that_says_nothing_is_not_missed() -> None:
    line = Line(what="heap", figure=9.0, unit="MB/h", most=5.0, unsure=True)
    assert not line.missed
    assert str(line).endswith("| unsure |")
