"""Durations as texts and as seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.durations import format_duration, parse_duration
from fairlead.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("5s", 5), ("30m", 1800), ("1h", 3600), ("1h30m", 5400), ("0", 0), ("1.5s", 1.5)]
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text, "f") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 s", "5d", "5s ", "5s\n", 5, None])
def test_anything_else_is_refused_by_name(text: object) -> None:
    with pytest.raises(InvalidInput, match=r"spec\.x"):
        parse_duration(text, "spec.x")


@given(st.integers(0, 10**9))
def test_what_is_formatted_reads_the_same(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000), "f") == pytest.approx(milliseconds / 1000)
