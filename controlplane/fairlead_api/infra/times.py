"""Times: Unix times that operators and routers may send, and times that people write in queries. Pure."""

import re
from datetime import UTC, datetime, timedelta

from fairlead.errors import InvalidInput
from fairlead.instants import read_instant

LATEST = 1e11
"""The largest time in Unix seconds that every clock and column here can hold (the year 5138)."""


def check_time(field_name: str, seconds: float) -> None:
    """Raises InvalidInput for a time that no clock and no column can hold."""
    if not 0 <= seconds <= LATEST:
        raise InvalidInput(field_name, seconds, "give Unix seconds, such as 1700000000.0")


def check_instant(field_name: str, written: object, instant: datetime) -> datetime:
    """The instant. Raises InvalidInput outside the years 2000 to 2199: in the years 1 and 9999, a week earlier or
    later, or the same hour in another time zone, may not exist.
    """
    if not 2000 <= instant.year < 2200:
        raise InvalidInput(field_name, written, "write a time of the years 2000 to 2199")
    return instant


_RELATIVE = re.compile(r"now(?:-(\d{1,6})([smhd]))?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_time(field: str, text: str, now: datetime) -> datetime:
    """The time that `text` denotes. Raises InvalidInput naming `field`."""
    match = _RELATIVE.fullmatch(text.strip())
    try:
        if match:
            found = now - timedelta(seconds=int(match[1]) * _UNITS[match[2]] if match[1] else 0)
        else:  # a plus in a query is read as a space
            found = read_instant(text.strip().replace(" ", "+") if "T" in text else text.strip())
            found = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(field, text, "write RFC 3339 (2026-11-21T10:00:00Z) or now-15m, now-1h, now-7d") from error
    return check_instant(field, text, found)


def parse_range(start: str | None, end: str | None, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Start and end of a range, None if not given. Raises InvalidInput if the start is after the end."""
    begun = parse_time("from", start, now) if start is not None else None
    ended = parse_time("to", end, now) if end is not None else None
    if begun is not None and ended is not None and begun >= ended:
        raise InvalidInput("from", start, f"write a time before `to` ({end})")
    return begun, ended
