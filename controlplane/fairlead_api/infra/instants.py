"""The times that operators and routers may send, and people may write."""

from datetime import datetime

from fairlead.errors import InvalidInput

LATEST = 1e11
"""The largest time in Unix seconds that every clock and column here can hold (the year 5138)."""


def check_time(field_name: str, seconds: float) -> None:
    """Raises InvalidInput for a time that no clock and no column can hold."""
    if not 0 <= seconds <= LATEST:
        raise InvalidInput(field_name, seconds, "give Unix seconds, such as 1700000000.0")


def check_instant(field_name: str, written: object, instant: datetime) -> datetime:
    """The instant that was written so. Raises InvalidInput towards the years 1 and 9999: at both ends a week earlier or
    later is none, and neither is the same hour in another time zone.
    """
    if not 2000 <= instant.year < 2200:
        raise InvalidInput(field_name, written, "write a time of the years 2000 to 2199")
    return instant
