"""Reads instants as people and programs write them (RFC 3339, ISO 8601), in the same way on every version of Python."""

import re
from datetime import UTC, datetime, timedelta

_WRITTEN = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d)(:\d\d(?::\d\d(?:[.,]\d+)?)?)?([Zz]|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII)


def read_instant(text: str) -> datetime:
    """Return the instant that a text describes.

    The instant has no time zone if the text has none; a date alone means its midnight. Raises ValueError for any other
    text and for an instant that does not exist, such as hour 24 (RFC 3339, section 5.6), which newer interpreters would
    read as the next day.
    """
    found = _WRITTEN.fullmatch(text)
    if found is None or found[2] == "24":
        raise ValueError("write RFC 3339, such as 2026-12-01T07:00:00Z")
    day, hour, rest, offset = found.groups()
    return datetime.fromisoformat(day if hour is None else f"{day}T{hour}{rest or ''}{(offset or '').upper()}")


TIME_WANTED = "RFC 3339 (2026-11-21T10:00:00Z) or now-15m, now-1h, now-7d"
_RELATIVE = re.compile(r"now(?:-(\d{1,6})([smhd]))?", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read_time(text: str, now: datetime) -> datetime:
    """Return the time in UTC for a text that people write: `now-15m`, or an instant, which is read as UTC if it has no
    time zone.

    Raises ValueError or OverflowError for any other text.
    """
    text = text.strip()
    if relative := _RELATIVE.fullmatch(text):
        return now - timedelta(seconds=int(relative[1]) * _UNITS[relative[2]] if relative[1] else 0)
    found = read_instant(text.replace(" ", "+") if "T" in text else text)  # a plus in a query is read as a space
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


def is_usual(instant: datetime) -> bool:
    """Return whether the instant is in the years 2000 to 2199. Near the years 1 and 9999, the times one week earlier or
    later may not exist, nor the same time in another time zone.
    """
    return 2000 <= instant.year < 2200
