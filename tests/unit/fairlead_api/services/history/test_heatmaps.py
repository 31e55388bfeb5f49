"""The grid of a heatmap."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_api.services.history.heatmaps import MAX_COLUMNS, grid

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)


@given(st.integers(1, 400 * 86400), st.integers(1, MAX_COLUMNS))
def test_a_grid_covers_its_range_with_no_more_columns_than_asked(seconds: int, columns: int) -> None:
    if seconds / columns > 80000:
        return
    start = NOW - timedelta(seconds=seconds)
    try:
        found = grid(start, NOW, columns)
    except InvalidInput:
        assert columns < 2 or seconds / (columns - 1) > 80000
        return
    assert found.columns <= columns
    assert found.start <= start
    assert found.end >= NOW
    assert int(found.start.timestamp()) % found.step == 0
