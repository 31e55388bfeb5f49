"""Forecasts of demand: the data they learn from, the data that must not mislead them, and the width of their band."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.forecasts.calendars import CalendarDay, Weekday
from fairlead.forecasts.records import PER_DAY, PER_WEEK, Series
from fairlead.forecasts.seasonal import Known, at_level, forecast, known_of, last_week, mean_error, median_of_weeks, missing_days
from fairlead.schedules.zones import parse_zone
from fairlead_testing.builders.demand import MONDAY, SHAPES, Traffic, day_of
from fairlead_testing.examples import examples

BERLIN = parse_zone("Europe/Berlin")
WEEK = timedelta(weeks=1)


def known(load: Series, *calendar: CalendarDay) -> Known:
    return known_of(load, MONDAY, BERLIN, {one.day: one for one in calendar})


traffics = st.builds(
    Traffic,
    shape=st.sampled_from(sorted(SHAPES)),
    weeks=st.just(6),
    growth=st.floats(0.95, 1.08),
    noise=st.floats(0.0, 0.25),
    zone=st.just("Europe/Berlin"),
    seed=st.integers(0, 99),
)


@examples(100)
@given(traffics)
def test_no_limit_of_a_band_is_negative_and_they_are_in_order(traffic: Traffic) -> None:
    band = forecast(known(traffic.load()), traffic.end)
    assert (band.low >= 0).all()
    assert (band.low <= band.middle).all()
    assert (band.middle <= band.high).all()
    assert np.isfinite(band.high).all()


@examples(50)
@given(traffics, st.integers(0, 3))
def test_what_came_later_changes_no_forecast(traffic: Traffic, days: int) -> None:
    load, start = traffic.load(), traffic.end - timedelta(days=7 + days)
    until = len(load) - (7 + days) * PER_DAY
    changed = load.copy()
    changed[until:] = 0.0
    assert (forecast(known(load), start).high == forecast(known(changed), start).high).all()


@examples(50)
@given(traffics, st.permutations(range(6)))
def test_the_order_of_the_weeks_changes_no_median(traffic: Traffic, order: list[int]) -> None:
    utc = parse_zone("UTC")
    weeks = traffic.load().reshape(6, PER_WEEK)
    found = [median_of_weeks(known_of(of.ravel(), MONDAY, utc, {}), traffic.end.date()) for of in (weeks, weeks[order])]
    assert found[0] is not None
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_nine_in_ten_quarters_of_unseen_weeks_are_within_the_band(shape: str) -> None:
    within = []
    for seed in range(6):
        load = Traffic(shape=shape, weeks=7, seed=seed).load()
        band = forecast(known(load), MONDAY + 6 * WEEK)
        seen = load[6 * PER_WEEK :]
        within.append(np.mean((seen >= band.low) & (seen <= band.high)))
    assert 0.82 <= np.mean(within) <= 0.97


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("growth", [1.0, 1.04])
def test_it_is_nearer_than_the_week_before(shape: str, growth: float) -> None:
    load = known(Traffic(shape=shape, weeks=9, growth=growth).load())
    assert mean_error(load, at_level, 3) < 0.9 * mean_error(load, last_week, 3)


@pytest.mark.parametrize("odd", ["outages", "peaks"])
def test_an_outage_or_a_peak_that_came_once_fools_no_forecast(odd: str) -> None:
    plain = Traffic(weeks=6)
    day = day_of(plain, 5, 2)
    fooled = replace(plain, outages=(day,)) if odd == "outages" else replace(plain, peaks=(day,))
    usual, found = (forecast(known(one.load()), plain.end) for one in (plain, fooled))
    assert found.middle == pytest.approx(usual.middle, rel=0.15, abs=0.3)


def test_a_holiday_of_the_calendar_is_forecast_as_the_day_it_is_like() -> None:
    traffic = Traffic(weeks=6, noise=0.0, zone="Europe/Berlin")
    wednesday = day_of(traffic, 6, 2)
    band = forecast(known(traffic.load(), CalendarDay(day=wednesday, like=Weekday.SUNDAY)), traffic.end)
    of_day = {number: band.middle[number * PER_DAY - 8 : (number + 1) * PER_DAY - 8] for number in (1, 2, 6)}
    assert of_day[2][:88].max() == pytest.approx(of_day[6][:88].max(), rel=0.01)
    assert of_day[2].max() < 0.4 * of_day[1].max()


def test_a_past_holiday_of_the_calendar_is_not_learnt_from() -> None:
    plain = Traffic(weeks=4, noise=0.0)
    holiday = day_of(plain, 3, 2)
    off = replace(plain, holidays=(holiday,)).load()
    entry = CalendarDay(day=holiday, like=Weekday.SUNDAY)
    assert forecast(known(off, entry), plain.end).middle == pytest.approx(forecast(known(plain.load()), plain.end).middle)


def test_a_peak_of_the_calendar_is_its_weekday_times_a_number() -> None:
    traffic = Traffic(weeks=5, noise=0.0)
    day = day_of(traffic, 5, 1)
    usual = forecast(known(traffic.load()), traffic.end).middle
    band = forecast(known(traffic.load(), CalendarDay(day=day, times=3.0)), traffic.end)
    tuesday = slice(PER_DAY - 8, 2 * PER_DAY - 8)
    assert band.middle[tuesday] == pytest.approx(3 * usual[tuesday])


@pytest.mark.parametrize(("days", "missing"), [(1, 20), (9, 12), (20, 1), (21, 0), (40, 0)])
def test_too_short_a_record_says_how_many_days_are_missing(days: int, missing: int) -> None:
    load = Traffic(weeks=6).load()[: days * PER_DAY]
    assert missing_days(known(load)) == missing, "the first two hours of the first local day are not recorded, which is little"


def test_days_that_were_hardly_recorded_do_not_count() -> None:
    load = Traffic(weeks=4).load()
    load[10 * PER_DAY : 10 * PER_DAY + 60] = np.nan
    assert len(known(load).days) == len(known(Traffic(weeks=4).load()).days) - 1
