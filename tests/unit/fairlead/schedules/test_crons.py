"""Crons mean the same as in a CronJob's schedule. Their starts are compared with those of APScheduler's trigger."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger
from hypothesis import given
from hypothesis import strategies as st

from fairlead.schedules.crons import parse_cron
from fairlead.schedules.starts import starts_after, starts_until
from fairlead.schedules.wording import cron_words, dst_note
from fairlead.schedules.zones import parse_zone
from fairlead_testing.examples import examples

UTC_ZONE = ZoneInfo("UTC")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> str:
    """Return a strategy for a cron field: *, a step, numbers or a range, also with a step."""
    first, last = sorted((draw(st.integers(least, most)), draw(st.integers(least, most))))
    spelled = ["*", f"*/{draw(st.integers(1, most - least))}", f"{first}", f"{first}-{last}", f"{first},{last}"]
    if first < last:
        spelled.append(f"{first}-{last}/{draw(st.integers(1, last - first))}")
    return draw(st.sampled_from(spelled))


def of_apscheduler(minute: str, hour: str, day: str, month: str, weekday: str) -> CronTrigger:
    """Return APScheduler's trigger for a cron. It counts weekdays from Monday, so they are given by name."""
    names = ",".join(DAYS[number] for number in sorted(parse_cron(f"0 0 * * {weekday}").weekdays))
    return CronTrigger(minute=minute, hour=hour, day=day, month=month, day_of_week=names, timezone=UTC)


def starts_of_apscheduler(trigger: CronTrigger, after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    last = after
    while len(found) < count:
        start = trigger.get_next_fire_time(last, last.replace(microsecond=1))
        if start is None:
            break
        found.append(start.astimezone(UTC))
        last = start
    return found


@examples(60)
@given(fields(0, 59), fields(0, 23), fields(1, 28), fields(1, 12), fields(0, 6), st.integers(0, 10 * 366 * 1440))
def test_starts_are_those_of_apscheduler(minute: str, hour: str, day: str, month: str, weekday: str, later: int) -> None:
    after = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=later)
    cron = parse_cron(f"{minute} {hour} {day} {month} {weekday}")
    found = list(islice(starts_after(cron, UTC_ZONE, after), 5))
    both = [of_apscheduler(minute, hour, day, month, weekday)]
    if cron.either_day:
        both = [of_apscheduler(minute, hour, day, month, "*"), of_apscheduler(minute, hour, "*", month, weekday)]
    expected = sorted({start for trigger in both for start in starts_of_apscheduler(trigger, after, 5)})[:5]
    assert found[: len(expected)] == expected[: len(found)]
    assert found, "every such cron starts within eight years"
    assert list(islice(starts_until(cron, UTC_ZONE, found[-1], after), 5)) == found[::-1]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("@daily", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("0 8 ? * MON-FRI", "0 8 * * 1-5"),
        ("5/20 * * * *", "5-59/20 * * * *"),
        ("0 0 1 jan,JUL *", "0 0 1 1,7 *"),
        ("  0  8 * * *  ", "0 8 * * *"),
    ],
)
def test_one_meaning_has_several_spellings(text: str, same: str) -> None:
    after = datetime(2026, 5, 1, tzinfo=UTC)
    assert list(islice(starts_after(parse_cron(text), UTC_ZONE, after), 40)) == list(
        islice(starts_after(parse_cron(same), UTC_ZONE, after), 40)
    )
    assert str(parse_cron(text)) == text


def test_a_step_takes_the_any_from_a_day_as_in_a_cron_job() -> None:
    assert parse_cron("0 0 */2 * 1").either_day
    assert not parse_cron("0 0 */1 * 1").either_day
    assert not parse_cron("0 0 13 * *").either_day


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 0 30 2 *", "there is no day 30 in Feb"),
        ("0 0 31 4,6,9,11 ?", "there is no day 31 in Apr or Jun or Sep or Nov"),
        ("61 * * * *", "the minute 61 is not from 0 to 59"),
        ("0 24 * * *", "the hour 24 is not from 0 to 23"),
        ("0 0 0 * *", "the day of month 0 is not from 1 to 31"),
        ("0 0 * foo *", "the month 'foo' is not a number from 1 to 12, or jan to dec"),
        ("0 0 * * 7", "Sunday is 0"),
        ("0 0 * * fri-mon", "runs backwards"),
        ("*/0 * * * *", "needs a whole number of at least 1 after the /"),
        ("0 8 * *", "write five fields"),
        ("0 0 8 * * *", "write five fields"),
        ("@reboot", "write five fields"),
        ("", "write five fields"),
        ("L * * * *", "not *, a number, range"),
        ("1,,2 * * * *", "not *, a number, range"),
        ("٣ * * * *", "not *, a number, range"),
    ],
)
def test_a_cron_that_cannot_be_is_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse_cron(text)
    assert words in str(refused.value)


def test_the_29th_of_february_is_found_over_a_century_without_it() -> None:
    after = datetime(2096, 3, 1, tzinfo=UTC)
    assert next(starts_after(parse_cron("0 0 29 2 *"), UTC_ZONE, after)) == datetime(2104, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize("text", ["Europe/Berln", "../UTC", "localtime", "right/UTC", "posix/UTC", "Mars/Olympus", "/etc/passwd", "Europe"])
def test_an_unknown_zone_is_refused_with_the_nearest(text: str) -> None:
    with pytest.raises(ValueError, match="IANA") as refused:
        parse_zone(text)
    assert text != "Europe/Berln" or "perhaps Europe/Berlin" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 8 * * 1-5", "at 08:00, Monday to Friday"),
        ("30 22 * * *", "at 22:30, every day"),
        ("*/15 * * * *", "every 15 minutes"),
        ("* * * * *", "every minute"),
        ("5 * * * *", "every hour at 05 minutes past"),
        ("0 6,18 1 * *", "at 06:00 and 18:00, on day 1 of the month"),
        ("0 0 13 * 5", "at 00:00, on day 13 of the month or Friday"),
        ("0 0 * * 6,0", "at 00:00, Saturday and Sunday"),
        ("0 0 * 6-8 *", "at 00:00, every day, in June to August"),
        ("*/10 8-17 * * 1-5", "at 00, 10, 20, 30, 40 and 50 minutes past in the hours 08 to 17, Monday to Friday"),
        ("* 3 * * *", "every minute in the hours 03, every day"),
    ],
)
def test_a_cron_is_said_in_words(text: str, words: str) -> None:
    assert cron_words(parse_cron(text)) == words


def test_the_note_on_daylight_saving_time_knows_which_zones_have_it() -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    daily, hourly = parse_cron("30 2 * * *"), parse_cron("*/20 * * * *")
    assert "does not change" in dst_note(daily, ZoneInfo("Asia/Tokyo"), now)
    assert "changes its clocks: a start at a skipped time happens when" in dst_note(daily, ZoneInfo("Australia/Lord_Howe"), now)
    assert "a skipped hour has none, and a repeated hour has them both times" in dst_note(hourly, ZoneInfo("Europe/Berlin"), now)


@given(
    st.sampled_from(["{}", "*/{}", "{}-5", "1-{}", "{}/2"]),
    st.text("0123456789²١५x", max_size=6) | st.integers(4000, 6000).map("9".__mul__),
)
def test_a_number_that_no_field_can_have_is_refused_in_words_of_ours(form: str, number: str) -> None:
    try:
        parse_cron(f"{form.format(number)} * * * *")
    except ValueError as error:
        told = str(error)
    else:
        told = "the minute"
    assert told.startswith("the minute") or "fields" in told
