"""Time ranges are read as people type them and refused with a remedy."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_testing.examples import examples
from fairlead_web.text.time_ranges import covering_start, lifetime_start, parse_range, span_text, stamp, start_within_life

NOW = datetime(2026, 11, 21, 10, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end", "length", "live"),
    [
        (None, None, timedelta(hours=1), True),
        ("", "", timedelta(hours=1), True),
        ("2h", None, timedelta(hours=2), True),
        ("now-90m", "now", timedelta(minutes=90), True),
        ("-1h30m", "now", timedelta(minutes=90), True),
        ("now-2h", "now-1h", timedelta(hours=1), False),
        ("2026-11-21T09:00:00Z", "2026-11-21T09:30:00Z", timedelta(minutes=30), False),
        ("2026-11-21 09:00", "2026-11-21T10:30+01:00", timedelta(minutes=30), False),
        ("7d", "now", timedelta(days=7), True),
    ],
)
def test_ranges_are_read_as_people_write_them(start: str | None, end: str | None, length: timedelta, live: bool) -> None:
    found = parse_range(start, end, NOW)
    assert found.end - found.start == length
    assert found.live is live


@pytest.mark.parametrize(
    ("start", "end", "field"),
    [
        ("yesterday", None, "from"),
        ("now-1h", "soon", "to"),
        ("now", "now", "from"),
        ("now-1h", "now-2h", "from"),
        ("now-0s", "now", "from"),
        ("now-100d", "now", "from"),
        ("99999999999w", None, "from"),
        ("1970-01-01", None, "from"),
        ("9999-12-30", "9999-12-31T23:59:59", "from"),
        ("now-1h", "9999-12-31T23:59:59-05:00", "to"),
        (f"now-{'9' * 5000}s", None, "from"),
        ("<script>", None, "from"),
    ],
)
def test_a_range_that_cannot_be_read_names_the_field_and_the_remedy(start: str, end: str | None, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_range(start, end, NOW)
    assert refused.value.field == field
    assert refused.value.remedy


@given(st.text(max_size=30), st.text(max_size=30))
@examples(150)
def test_no_text_makes_anything_but_a_range_or_a_refusal(start: str, end: str) -> None:
    try:
        found = parse_range(start, end, NOW)
    except InvalidInput:
        return
    assert found.start < found.end


@given(st.integers(10, 80 * 86400))
@examples(80)
def test_span_texts_read_back_exactly(seconds: int) -> None:
    assert parse_range(f"now-{span_text(seconds)}", "now", NOW).seconds == seconds


def test_zooming_out_keeps_a_live_range_live() -> None:
    assert parse_range("now-1h", "now", NOW).zoomed_out == {"from": "now-2h", "to": "now"}


def test_zooming_out_grows_a_fixed_range_around_its_middle() -> None:
    found = parse_range("2026-11-21T09:00:00Z", "2026-11-21T09:30:00Z", NOW)
    assert found.zoomed_out == {"from": "2026-11-21T08:45:00Z", "to": "2026-11-21T09:45:00Z"}
    assert found.earlier == {"from": "2026-11-21T08:45:00Z", "to": "2026-11-21T09:15:00Z"}
    assert found.later == {"from": "2026-11-21T09:15:00Z", "to": "2026-11-21T09:45:00Z"}


def test_no_step_leads_into_the_future_or_beyond_the_longest_range() -> None:
    live = parse_range("now-80d", "now", NOW)
    assert live.zoomed_out == {"from": "now-90d", "to": "now"}
    assert live.later is None
    assert parse_range("now-90d", "now", NOW).zoomed_out is None
    recent = parse_range("2026-11-21T09:00:30Z", "2026-11-21T09:55:30Z", NOW)
    assert recent.later == {"from": "now-55m", "to": "now"}
    assert recent.zoomed_out == {"from": "2026-11-21T08:10:30Z", "to": "2026-11-21T10:00:30Z"}
    for step in (live.zoomed_out, live.earlier, recent.zoomed_out, recent.earlier, recent.later):
        assert step
        assert parse_range(step["from"], step["to"], NOW).end <= NOW


def test_a_permalink_freezes_now() -> None:
    found = parse_range(None, None, NOW)
    assert found.absolute == {"from": stamp(NOW - timedelta(hours=1)), "to": stamp(NOW)}
    assert not parse_range(found.absolute["from"], found.absolute["to"], NOW + timedelta(days=1)).live


@pytest.mark.parametrize(
    ("start", "label"), [("now-1h", "Last 1 h"), ("now-2h", "Last 2 h"), ("now-1h30m", "Last 1 h 30 min"), ("now-7d", "Last 7 d")]
)
def test_the_picker_says_the_range_in_words(start: str, label: str) -> None:
    assert parse_range(start, "now", NOW).label == label


@pytest.mark.parametrize(
    ("age_seconds", "start"), [(20, "now-2m"), (119, "now-5m"), (600, "now-15m"), (1500, "now-30m"), (1700, "now-1h"), (1e6, "now-1h")]
)
def test_what_is_young_gets_a_range_it_can_fill(age_seconds: float, start: str) -> None:
    assert lifetime_start(NOW - timedelta(seconds=age_seconds), NOW) == start


@pytest.mark.parametrize(
    ("age_seconds", "start"),
    [
        (20, "now-2m"),
        (119, "now-2m"),
        (120, "now-5m"),
        (1700, "now-30m"),
        (1800, "now-1h"),
        (7200, "now-6h"),
        (1e5, "now-7d"),
        (1e7, "now-7d"),
    ],
)
def test_a_range_that_nobody_chose_reaches_back_to_what_it_is_about(age_seconds: float, start: str) -> None:
    assert covering_start(NOW - timedelta(seconds=age_seconds), NOW) == start


@examples(100)
@given(age=st.integers(1, 40 * 86_400), start=st.sampled_from(["now-1h", "now-24h", "now-7d"]))
def test_a_range_within_a_life_is_never_longer_than_asked_and_begins_before_the_object_or_is_as_asked(age: int, start: str) -> None:
    created = NOW - timedelta(seconds=age)
    asked, found = (parse_range(one, "now", NOW).start for one in (start, start_within_life(start, created, NOW)))
    assert found >= asked
    assert found == asked or found < created
