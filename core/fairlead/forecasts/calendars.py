"""`spec.scaling.forecast`: whether schedules are proposed, the time zone in which days begin, and the special days."""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import ClassVar
from zoneinfo import ZoneInfo

from fairlead.schedules.zones import parse_zone
from fairlead.schemas.shapes import Rule, duration, listing, number, text

MAX_DAYS = 64
"""Maximum number of days in a pool's calendar."""


class ForecastMode(StrEnum):
    """The way in which Fairlead uses a forecast."""

    DISABLED = "Disabled"
    ADVISE = "Advise"


class Weekday(StrEnum):
    """The weekday whose demand is expected on a certain date."""

    MONDAY = "Monday"
    TUESDAY = "Tuesday"
    WEDNESDAY = "Wednesday"
    THURSDAY = "Thursday"
    FRIDAY = "Friday"
    SATURDAY = "Saturday"
    SUNDAY = "Sunday"

    @property
    def number(self) -> int:
        """The weekday's number: 0 for Monday, as in `date.weekday`."""
        return tuple(Weekday).index(self)


def parse_day(text_: str) -> date:
    """Return a date such as 2026-12-25. Raises ValueError with a remedy."""
    try:
        return date.fromisoformat(text_)
    except ValueError:
        raise ValueError("write a date that exists, such as 2026-12-25") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarDay:
    """A date whose demand differs from the usual demand of its weekday: a holiday, or a one-time peak. Later forecasts
    ignore the recorded demand of this date.
    """

    RULES: ClassVar = (
        Rule(
            cel="has(self.like) || self.times != 1.0",
            holds=lambda day: day.like is not None or day.times != 1.0,
            field="like",
            message="a day must differ from its weekday; write like, such as Sunday, or times, such as 2",
        ),
    )

    day: date = text(
        "The date, in the forecast's time zone.",
        pattern="^2[01][0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$",
        max_length=10,
        convert=parse_day,
    )
    like: Weekday | None = text(
        "The weekday whose demand the day has: Sunday for most holidays.", None, enum=tuple(one.value for one in Weekday), convert=Weekday
    )
    times: float = number("The day's demand as a multiple of the weekday's demand.", 1, minimum=0, maximum=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSpec:
    """The settings of the schedules that are proposed from the pool's recorded demand."""

    mode: ForecastMode = text(
        "Disabled: nothing is proposed; Advise: schedules that would have been better in the last week are proposed as a plan, once a day.",
        ForecastMode.DISABLED.value,
        enum=tuple(mode.value for mode in ForecastMode),
        convert=ForecastMode,
    )
    time_zone: ZoneInfo = text(
        "Time zone in which the days and weeks of its demand repeat, by its name in the IANA database.",
        "UTC",
        pattern="^[A-Za-z][A-Za-z0-9_+/-]*$",
        max_length=64,
        convert=parse_zone,
    )
    leave_after_seconds: float = duration(
        "Time for which demand must be outside of the forecast's band before schedules that follow the forecast are suspended.",
        "45m",
        minimum=900.0,
        maximum=86400.0,
    )
    calendar: tuple[CalendarDay, ...] = listing(
        CalendarDay, "Days that are unlike their weekday: holidays, and peaks that come once.", (), key="day", max_items=MAX_DAYS
    )


def by_date(days: Iterable[CalendarDay]) -> Mapping[date, CalendarDay]:
    """Return the calendar's days by their dates."""
    return {one.day: one for one in days}
