"""Cron expressions of five fields, with the meaning that a Kubernetes CronJob gives them.

CronJob reads them with github.com/robfig/cron: `N/S` means from N to the field's end in steps of S, Sunday is 0 and
never 7, `?` is `*`, and when neither the day of month nor the weekday is `*`, a day that matches either of them
matches.
"""

import re
from dataclasses import dataclass, field
from datetime import date

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ITEM = re.compile(r"(?P<any>[*?])|(?P<first>[0-9]+|[a-z]{3})(?:-(?P<last>[0-9]+|[a-z]{3}))?", re.ASCII)

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def _whole(text: str) -> int | None:
    """Return the number in the text. If the text has very many digits, only the first digits are read; the number is
    then still out of every range used here.
    """
    return int(text.lstrip("0")[:9] or "0") if text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        if text in self.names:
            return self.least + self.names.index(text)
        if (number := _whole(text)) is None:
            known = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
            raise ValueError(f"the {self.name} {text!r} is not a number from {self.least} to {self.most}{known}")
        if not self.least <= number <= self.most:
            hint = "; Sunday is 0" if self.name == "weekday" and number == 7 else ""
            raise ValueError(f"the {self.name} {text} is not from {self.least} to {self.most}{hint}")
        return number

    def values(self, text: str) -> frozenset[int]:
        return frozenset().union(*(self._item(item) for item in text.lower().split(",")))

    def _item(self, text: str) -> range:
        span, slash, step = text.partition("/")
        found = _ITEM.fullmatch(span)
        if found is None:
            raise ValueError(f"the {self.name} {text!r} is not *, a number, range (1-5) or step (*/15)")
        every = _whole(step) if slash else 1
        if not every:
            raise ValueError(f"the {self.name} {text!r} needs a whole number of at least 1 after the /, as in */15")
        if found["any"]:
            first, last = self.least, self.most
        else:
            first = self.number(found["first"])
            last = self.number(found["last"]) if found["last"] else self.most if slash else first
        if first > last:
            raise ValueError(f"the {self.name} {text!r} runs backwards; split it, such as {first}-{self.most},{self.least}-{last}")
        return range(first, last + 1, every)


_FIELDS = (
    _Field(name="minute", least=0, most=59),
    _Field(name="hour", least=0, most=23),
    _Field(name="day of month", least=1, most=31),
    _Field(name="month", least=1, most=12, names=_MONTHS),
    _Field(name="weekday", least=0, most=6, names=_WEEKDAYS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A cron expression; prints as it was written. Weekdays count from Sunday, 0."""

    text: str
    minutes: tuple[int, ...] = field(compare=False)
    hours: tuple[int, ...] = field(compare=False)
    days: frozenset[int] = field(compare=False)
    months: frozenset[int] = field(compare=False)
    weekdays: frozenset[int] = field(compare=False)
    either_day: bool = field(compare=False)
    """Whether a day matches if either its day of month or its weekday matches, because neither field is `*`."""

    def __str__(self) -> str:
        return self.text

    @property
    def every_hour(self) -> bool:
        """Whether the cron starts in every hour; it then counts real hours, not wall-clock hours."""
        return len(self.hours) == 24

    def matches(self, day: date) -> bool:
        """Return whether the cron has starts on this day of the calendar."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week


def parse_cron(text: str) -> Cron:
    """Read a cron expression. Raises ValueError with one line that says what is wrong and what to write."""
    words = MACROS.get(text.strip().lower(), text).split()
    if len(words) != len(_FIELDS):
        raise ValueError("write five fields: minute, hour, day of month, month and weekday, such as '0 8 * * 1-5' or '30 22 * * fri'")
    minutes, hours, days, months, weekdays = (one.values(word) for one, word in zip(_FIELDS, words, strict=True))
    either_day = not any(_is_any(word) for word in (words[2], words[4]))
    if not either_day and not any(min(days) <= _LONGEST[month - 1] for month in months):
        named = " or ".join(_MONTHS[month - 1].capitalize() for month in sorted(months))
        raise ValueError(f"there is no day {min(days)} in {named}; write a day that exists")
    return Cron(
        text=text,
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=weekdays,
        either_day=either_day,
    )


def _is_any(word: str) -> bool:
    """Return whether a CronJob treats the field as "any"; a field with a step larger than 1 does not count as "any"."""
    return any(item.partition("/")[0] in {"*", "?"} and item.partition("/")[2] in {"", "1"} for item in word.split(","))
