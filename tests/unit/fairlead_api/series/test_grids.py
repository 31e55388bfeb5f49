"""Ranges of time cut into steps, and values put into them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.latency_cells import EDGES, NO_TPOT, WIDTH, cell_of, quantile
from fairlead.range_steps import MOST_COVERED, STEP_SECONDS, covered, rollup_of
from fairlead_api.series.grids import Steps, in_force, line, steps
from fairlead_api.series.reading import chosen
from fairlead_client.resources.series import SERIES_METRICS, Scope

NOW = datetime(2026, 11, 23, 4, 0, 5, tzinfo=UTC)


@given(st.integers(10, 90 * 86400), st.integers(0, 30 * 86400), st.integers(2, 360))
def test_steps_cover_the_range_and_are_no_more_than_asked_for(seconds: int, ago: int, most: int) -> None:
    end = NOW - timedelta(seconds=ago)
    start = end - timedelta(seconds=seconds)
    where, whole = steps(start, end, most, NOW), covered(start, end, NOW)
    assert where.start <= whole.start <= start < whole.start + timedelta(seconds=whole.seconds)
    assert where.end >= whole.end >= end > whole.end - timedelta(seconds=whole.seconds)
    assert where.start.timestamp() % where.seconds == 0
    assert where.count <= max(most, 2) or where.seconds == 1_209_600
    if most >= MOST_COVERED:
        assert (where.start, where.end) == (whole.start, whole.end), "every chart draws what the figures count"


@given(st.integers(10, 90 * 86400), st.integers(0, 30 * 86400))
def test_what_a_range_covers_is_whole_steps_of_what_is_recorded(seconds: int, ago: int) -> None:
    end = NOW - timedelta(seconds=ago)
    start = end - timedelta(seconds=seconds)
    found = covered(start, end, NOW)
    assert (found.end - found.start).total_seconds() / found.seconds <= MOST_COVERED
    assert found.by_hours == (seconds > 6 * 3600 or start < NOW - timedelta(hours=25))


@pytest.mark.parametrize("seconds", STEP_SECONDS)
def test_steps_are_whole_numbers_of_the_coarsest_rollups_that_add_up_to_them(seconds: int) -> None:
    lengths = {"10s": 10, "1m": 60, "1h": 3600}
    coarsest = max((length, name) for name, length in lengths.items() if seconds % length == 0)
    assert rollup_of(seconds) == coarsest[1]


def test_what_begins_earlier_than_ten_seconds_are_kept_is_in_minutes() -> None:
    hour = timedelta(hours=1)
    assert steps(NOW - hour, NOW, 360, NOW).seconds == 30
    assert steps(NOW - timedelta(minutes=5), NOW, 120, NOW).seconds == 10
    early = NOW - timedelta(days=3)
    assert steps(early, early + timedelta(minutes=5), 120, NOW).seconds == 60
    with pytest.raises(InvalidInput, match="400 days"):
        steps(NOW - timedelta(days=401), NOW, 120, NOW)


def test_a_step_of_which_nothing_is_known_is_none_and_never_zero() -> None:
    where = Steps(start=NOW, seconds=10, count=4)
    assert line("requests", "requests/s", where, {0: 0.0, 3: 2.5}).values == [0.0, None, None, 2.5]


def test_a_number_holds_until_the_next_and_is_not_known_before_the_first_nor_after_now() -> None:
    where = Steps(start=NOW - timedelta(seconds=30), seconds=10, count=5)
    changes = [(NOW - timedelta(seconds=15), 4.0), (NOW - timedelta(seconds=2), 6.0)]
    found = in_force(where, changes, NOW)
    assert [found[index] for index in range(5)] == [None, 4.0, 6.0, 6.0, None]


def test_a_step_that_runs_has_lasted_only_until_now() -> None:
    where = Steps(start=NOW - timedelta(seconds=25), seconds=10, count=3)
    assert [where.lasted(index, NOW) for index in range(3)] == [10.0, 10.0, 5.0]


def test_metrics_are_told_apart_by_what_they_are_of() -> None:
    assert chosen("requests, ttft_p95,requests", Scope.FLEET) == ["requests", "ttft_p95"]
    for wrong in ("speed", "", "burn"):
        with pytest.raises(InvalidInput, match="metrics"):
            chosen(wrong, Scope.INSTANCE)
    assert chosen("burn", Scope.POOL) == ["burn"]


@given(st.lists(st.floats(0.001, 900), min_size=1, max_size=80), st.floats(0.05, 1.0))
def test_a_quantile_of_steps_is_off_by_less_than_its_step(latencies: list[float], share: float) -> None:
    counts: dict[int, int] = {}
    for latency in latencies:
        step = cell_of(latency, None) // WIDTH
        counts[step] = counts.get(step, 0) + 1
    found = quantile(counts, share)
    assert found is not None
    ordered = sorted(latencies)
    exact = ordered[min(len(ordered) - 1, max(0, -(-int(share * len(ordered) * 1e6) // 1_000_000) - 1))]
    step = cell_of(exact, None) // WIDTH
    low, high = EDGES[step - 1] if step else 0.0, EDGES[step]
    assert low - 1e-9 <= found <= high + 1e-9


def test_answers_of_one_token_have_no_part_in_a_quantile_of_tpots() -> None:
    counts = {cell_of(1.0, None) % WIDTH: 5}
    assert list(counts) == [NO_TPOT]
    assert quantile(counts, 0.95) is None
    assert quantile({}, 0.5) is None


def test_the_guide_tells_every_metric_with_its_unit() -> None:
    guide = (Path(__file__).resolve().parents[4] / "docs" / "series.md").read_text()
    for name, metric in SERIES_METRICS.items():
        scopes = ", ".join(scope for scope in Scope if scope in metric.scopes)
        assert f"| `{name}` | {metric.unit} | {scopes} | {metric.words} |" in guide
