"""Times in the forms in which people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from fairlead.errors import InvalidInput
from fairlead_api.infra.times import parse_range, parse_time

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("now", NOW),
        ("now-90s", NOW - timedelta(seconds=90)),
        ("now-7d", NOW - timedelta(days=7)),
        ("2026-11-21T09:00:00Z", NOW - timedelta(hours=1)),
        ("2026-11-21T11:00:00 02:00", NOW - timedelta(hours=1)),
        ("2026-11-21T09:00:00", NOW - timedelta(hours=1)),
    ],
)
def test_times_are_read_as_people_write_them(text: str, found: datetime) -> None:
    assert parse_time("from", text, NOW) == found


@pytest.mark.parametrize("text", ["", "yesterday", "now-1y", "now-999999d", "2026-13-01T00:00:00Z", "now+1h"])
def test_a_time_that_cannot_be_read_names_its_field(text: str) -> None:
    with pytest.raises(InvalidInput, match="RFC 3339"):
        parse_time("to", text, NOW)
    with pytest.raises(InvalidInput, match="before"):
        parse_range("now", "now-1h", NOW)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "1999-12-31T23:59:59Z", "2200-01-01T00:00:00Z", "9999-12-31", "now-99999d"])
def test_a_time_beyond_all_that_can_be_counted_from_names_the_years_that_can(text: str) -> None:
    with pytest.raises(InvalidInput, match=f"from: '{text}' cannot be used; write a time of the years 2000 to 2199"):
        parse_time("from", text, NOW)
