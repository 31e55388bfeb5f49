"""Describes a cron expression in words, and the effect of daylight saving time on it."""

from collections.abc import Collection, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from fairlead.schedules.crons import Cron

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_FEW = 6


def cron_words(cron: Cron) -> str:
    """Return a cron in words, such as `at 08:00, Monday to Friday`."""
    return ", ".join(part for part in (_times(cron), _days(cron), _months(cron)) if part)


def dst_note(cron: Cron, zone: ZoneInfo, instant: datetime) -> str:
    """Return a sentence about the effect of the zone's clock changes on starts of the cron, for one year after an
    instant.
    """
    offsets = {datetime.fromtimestamp(instant.timestamp() + day * 86400, zone).utcoffset() for day in range(366)}
    if len(offsets) == 1:
        return f"{zone.key} does not change its clocks in the coming year."
    starts = "a start at a skipped time happens when the clock has moved on; a start at a repeated time happens the first time"
    if cron.every_hour:
        starts = "starts of every hour follow elapsed time, so a skipped hour has none, and a repeated hour has them both times"
    return f"{zone.key} changes its clocks: {starts}. A window keeps its length in elapsed time."


def _times(cron: Cron) -> str:
    minutes, hours = cron.minutes, cron.hours
    if len(hours) == 24:
        if len(minutes) == 60:
            return "every minute"
        step = _step(minutes, 60)
        if step is not None and len(minutes) > 1:
            return f"every {step} minutes"
        return f"every hour at {_listed([f'{minute:02}' for minute in minutes])} minutes past"
    if len(hours) * len(minutes) <= _FEW:
        return f"at {_listed([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    past = "every minute" if len(minutes) == 60 else f"at {_listed([f'{minute:02}' for minute in minutes])} minutes past"
    return f"{past} in the hours {_listed(_spans(hours, [f'{hour:02}' for hour in range(24)]))}"


def _days(cron: Cron) -> str:
    every_day, every_weekday = len(cron.days) == 31, len(cron.weekdays) == 7
    of_month = f"on day {_listed(_spans(sorted(cron.days), [str(day) for day in range(32)]))} of the month"
    of_week = _listed(_spans(sorted(cron.weekdays, key=lambda day: (day - 1) % 7), _WEEKDAYS))
    if cron.either_day:
        return f"{of_month} or {of_week}" if not every_day and not every_weekday else "every day"
    if every_day and every_weekday:
        return "" if cron.every_hour else "every day"
    return of_week if every_day else of_month if every_weekday else f"{of_month} if it is {of_week}"


def _months(cron: Cron) -> str:
    return "" if len(cron.months) == 12 else f"in {_listed(_spans(sorted(cron.months), ('', *_MONTHS)))}"


def _step(values: Sequence[int], size: int) -> int | None:
    """Return the step of values that run from 0 through the whole field, as in */15; None for other values."""
    step = size // len(values)
    return step if list(values) == list(range(0, size, step)) and size % step == 0 else None


def _spans(values: Sequence[int], names: Sequence[str]) -> list[str]:
    """Write three or more neighbouring values as a range, such as `Monday to Friday`."""
    found: list[list[int]] = []
    for value in values:
        if found and value == (found[-1][-1] + 1) % (7 if names is _WEEKDAYS else len(names)):
            found[-1].append(value)
        else:
            found.append([value])
    return [
        part for run in found for part in ([f"{names[run[0]]} to {names[run[-1]]}"] if len(run) > 2 else [names[value] for value in run])
    ]


def _listed(words: Collection[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
