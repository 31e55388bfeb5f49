"""The forecast: for each quarter of an hour, the median of the same quarter in the last weeks, scaled to the level of
the last days, with a band of 90 %.

A median over weeks ignores a single outage or peak; the days of the calendar are left out. The width of the band comes
from the errors of forecasts for past weeks, each made from the data before its week. Without three weeks of record
there is no forecast (`missing_days`). The alternatives that were tried are in docs/decisions/0049.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from fairlead.forecasts.calendars import CalendarDay
from fairlead.forecasts.records import PER_DAY, PER_WEEK, WEEK, Series, by_days, local_quarters

LEAST_DAYS = 21
"""Minimum number of recorded days for a forecast. With three weeks, the median ignores one unusual week."""
WEEKS = 6
"""Number of the newest weeks from which a forecast is made."""
COVERAGE = 0.9
"""Share of the quarters of an hour that should be within the band."""
_RECORDED = 0.8
"""Share of a day's quarters that must be recorded for the day to count."""
_LEVEL_BOUNDS = (0.6, 1.6)
_ODD = (0.5, 2.0)
"""The lower and the upper limit of the median ratio of a past day's demand to its forecast. A day outside these limits
was an outage or a peak.
"""
_ORIGINS = 3
"""Number of past weeks whose forecast errors determine the band."""
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A forecast in quarters of an hour from `start` on, in the unit of its series, with the limits of its band."""

    start: datetime
    middle: Series
    low: Series
    high: Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The recorded days of one series, by local date, without the special days of the pool's calendar."""

    days: Mapping[date, Series]
    calendar: Mapping[date, CalendarDay]
    zone: ZoneInfo

    def before(self, day: date) -> "Known":
        """Return the recorded days before `day`."""
        return Known(days={one: values for one, values in self.days.items() if one < day}, calendar=self.calendar, zone=self.zone)


Forecaster = Callable[[Known, date], Series | None]
"""A function that returns the usual demand of a day, computed from the known earlier days; None if no earlier day is
known.
"""


def known_of(values: Series, start: datetime, zone: ZoneInfo, calendar: Mapping[date, CalendarDay]) -> Known:
    """Return the days of a series that were recorded."""
    days = {
        day: found for day, found in by_days(values, start, zone).items() if np.isfinite(found).mean() >= _RECORDED and day not in calendar
    }
    return Known(days=days, calendar=calendar, zone=zone)


def missing_days(known: Known) -> int:
    """Return the number of further days that must be recorded before a forecast can be made; 0 if enough days are
    recorded.
    """
    return max(0, LEAST_DAYS - len(known.days) - len(known.calendar.keys() & _span(known)))


def _span(known: Known) -> set[date]:
    if not known.days:
        return set()
    first, last = min(known.days), max(known.days)
    return {first + _DAY * number for number in range((last - first).days + 1)}


def last_week(known: Known, day: date) -> Series | None:
    """Return the seasonal naive forecast: the newest recorded day of the same weekday."""
    past = _same_weekday(known, day.weekday(), day, 1)
    return past[0] if past else None


def median_of_weeks(known: Known, day: date) -> Series | None:
    """Return the median of the same weekday in the last weeks, smoothed over three quarters."""
    past = _same_weekday(known, day.weekday(), day, WEEKS)
    return None if not past else _smooth(_middle(past))


def at_level(known: Known, day: date) -> Series | None:
    """Return the median of weeks, multiplied by the level of the last seven recorded days (`level`). So the forecast
    follows demand that grows or shrinks. None if no median is known.
    """
    usual = median_of_weeks(known, day)
    return None if usual is None else usual * level(known)


def level(known: Known) -> float:
    """Return the level of the last seven recorded days: their demand divided by the medians of the weeks before these
    days.
    """
    ratios = []
    for day in sorted(known.days)[-7:]:
        usual = median_of_weeks(known.before(day), day)
        total = 0.0 if usual is None else float(np.nansum(usual))
        if total > 0:
            ratios.append(float(np.nansum(known.days[day])) / total)
    return float(np.clip(np.median(ratios), *_LEVEL_BOUNDS)) if len(ratios) >= 3 else 1.0


def _same_weekday(known: Known, weekday: int, before: date, most: int) -> list[Series]:
    days = sorted((day for day in known.days if day.weekday() == weekday and day < before), reverse=True)
    return [known.days[day] for day in days[:most]]


def _middle(days: Sequence[Series]) -> Series:
    stacked = np.vstack(days)
    found = np.full(PER_DAY, np.nan)
    some = np.isfinite(stacked).any(axis=0)
    found[some] = np.nanmedian(stacked[:, some], axis=0)
    return found


def _smooth(day: Series) -> Series:
    filled = np.interp(np.arange(PER_DAY), np.flatnonzero(np.isfinite(day)), day[np.isfinite(day)])
    around = np.pad(filled, 1, mode="edge")
    smoothed: Series = (around[:-2] + 2 * around[1:-1] + around[2:]) / 4
    return smoothed


def forecast(known: Known, start: datetime, quarters: int = PER_WEEK, by: Forecaster = at_level, *, usual: bool = False) -> Band:
    """Return the forecast from `start` on. With `usual`, the calendar is ignored. Callers check `missing_days`
    first.
    """
    past = known.before(start.astimezone(known.zone).date())
    middle = _expected(past, start, quarters, by, {} if usual else known.calendar)
    below, above = _errors(past, by)
    scale = middle + _floor(past)
    return Band(start=start, middle=middle, low=np.maximum(0.0, middle + min(0.0, below) * scale), high=middle + max(0.0, above) * scale)


def _expected(past: Known, start: datetime, quarters: int, by: Forecaster, calendar: Mapping[date, CalendarDay]) -> Series:
    days: dict[date, Series] = {}
    found = np.zeros(quarters)
    for place, (day, quarter) in enumerate(local_quarters(start, quarters, past.zone)):
        if day not in days:
            days[day] = _day(past, day, by, calendar)
        found[place] = days[day][quarter]
    return found


def _day(past: Known, day: date, by: Forecaster, calendar: Mapping[date, CalendarDay]) -> Series:
    entry = calendar.get(day)
    like = day
    if entry is not None and entry.like is not None:
        like = day + _DAY * ((entry.like.number - day.weekday()) % 7)
    found = by(past, like)
    usual = np.zeros(PER_DAY) if found is None else np.nan_to_num(found)
    return usual if entry is None else usual * entry.times


def _floor(known: Known) -> float:
    """Return a tenth of the mean demand. An error is divided by the forecast plus this value, because near zero demand
    errors do not shrink in proportion to demand.
    """
    values = np.concatenate(list(known.days.values())) if known.days else np.zeros(1)
    return 0.1 * float(np.nanmean(values)) if np.isfinite(values).any() else 0.0


def _errors(known: Known, by: Forecaster) -> tuple[float, float]:
    """Return the lower and the upper quantile of past errors that bound the band. The errors are of forecasts made
    before each of the last weeks; each error is divided by the forecast plus `_floor`.
    """
    errors: list[Series] = []
    for day in sorted(known.days)[-7 * _ORIGINS :]:
        origin = max(known.days) + _DAY - WEEK * (1 + (max(known.days) - day).days // 7)
        expected = by(known.before(origin), day)
        if expected is None or is_odd(known.days[day], expected):
            continue
        errors.append((known.days[day] - expected) / np.maximum(expected + _floor(known), 1e-9))
    told = np.concatenate(errors) if errors else np.zeros(0)
    told = told[np.isfinite(told)]
    if not len(told):
        return -0.5, 0.5
    tail = (1 - COVERAGE) / 2
    return float(np.quantile(told, tail)), float(np.quantile(told, 1 - tail))


def is_odd(day: Series, expected: Series) -> bool:
    """Return whether a day differed so much from its forecast that it was an outage or a peak, and does not help to
    forecast other days.
    """
    some = np.isfinite(day) & (expected > 0)
    if not some.any():
        return True
    ratio = float(np.median(day[some] / expected[some]))
    return not _ODD[0] <= ratio <= _ODD[1]


def mean_error(known: Known, by: Forecaster, weeks: int) -> float:
    """Return the mean absolute error of the forecasts made before each of the last weeks, divided by the mean demand. 0
    = perfect.
    """
    off, total = 0.0, 0.0
    for day in sorted(known.days)[-7 * weeks :]:
        origin = max(known.days) + _DAY - WEEK * (1 + (max(known.days) - day).days // 7)
        expected = by(known.before(origin), day)
        if expected is not None:
            off += float(np.nansum(np.abs(known.days[day] - expected)))
            total += float(np.nansum(known.days[day]))
    return off / total if total else 0.0
