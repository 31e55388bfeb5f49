"""Instants are read as RFC 3339 defines them, and the same on every Python version."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instants import read_instant

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=st.none() | ZONES), st.sampled_from("Tt "))
def test_every_instant_that_is_written_is_read_again(instant: datetime, separator: str) -> None:
    assert read_instant(instant.isoformat(separator)) == instant


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-02-03", datetime(2026, 2, 3)),  # noqa: DTZ001 - it has no zone
        ("2026-02-03T10:00:00Z", datetime(2026, 2, 3, 10, tzinfo=UTC)),
        ("2026-02-03t10:00:00z", datetime(2026, 2, 3, 10, tzinfo=UTC)),
        ("2026-02-03T10:00+02:00", datetime(2026, 2, 3, 8, tzinfo=UTC)),
        ("2026-02-03T10+0200", datetime(2026, 2, 3, 8, tzinfo=UTC)),
        ("2026-02-03 10:00:00.123456789Z", datetime(2026, 2, 3, 10, 0, 0, 123456, tzinfo=UTC)),
    ],
)
def test_instants_are_read_as_people_write_them(text: str, instant: datetime) -> None:
    found = read_instant(text)
    assert (found, found.tzinfo is None) == (instant, instant.tzinfo is None)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2026-02-30",
            "2026-02-30T00:00:00Z",
            "2026-13-01",
            "2026-00-01",
            "0000-01-01",
            "10000-01-01",
            "2026-02-29",
            "2026-W08",
            "20260203",
        ),
        *(
            "2026-02-03T24:00:00Z",
            "2026-02-03 24:00",
            "2026-02-03T24",
            "2026-02-03T25:00:00Z",
            "2026-02-03T10:60:00Z",
            "2026-02-03T10:00:60Z",
        ),
        *("2026-02-03T10:00:00+24:00", "2026-02-03T10:00:00+2", "2026-02-03T10:00:00 Z", "２０２６-02-03", "", "now", "2026-02-03\n"),
    ],
)
def test_what_does_not_exist_or_is_written_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_instant(text)


@given(st.text("0123456789-:.,TtZz +", max_size=30))
def test_no_text_names_hour_24(text: str) -> None:
    try:
        read_instant(text)
    except ValueError:
        return
    assert text[11:13] != "24"
