"""Times: Unix times in messages of operators and routers, and times that people write in queries. Pure."""

from datetime import datetime

from fairlead.errors import InvalidInput
from fairlead.instants import TIME_WANTED, is_usual, read_time

LATEST = 1e11
"""The latest time, in Unix seconds, that every clock and column in Fairlead can hold (the year 5138)."""


def check_time(field_name: str, seconds: float) -> None:
    """Raises InvalidInput for a time that a clock or a column cannot hold."""
    if not 0 <= seconds <= LATEST:
        raise InvalidInput(field_name, seconds, "give Unix seconds, such as 1700000000.0")


def check_instant(field_name: str, written: object, instant: datetime) -> datetime:
    """Return `instant`, which a request gives as `written` in the field `field_name`. Raises InvalidInput if the
    instant is outside the years 2000 to 2199.
    """
    if not is_usual(instant):
        raise InvalidInput(field_name, written, "write a time of the years 2000 to 2199")
    return instant


def parse_time(field: str, text: str, now: datetime) -> datetime:
    """Return the time that `text` means. Raises InvalidInput, which names `field`."""
    try:
        found = read_time(text, now)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(field, text, f"write {TIME_WANTED}") from error
    return check_instant(field, text, found)


def parse_range(start: str | None, end: str | None, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Parse the start and the end of a range; the result is None for a missing start or end. Raises InvalidInput if the
    start is not before the end.
    """
    begun = parse_time("from", start, now) if start is not None else None
    ended = parse_time("to", end, now) if end is not None else None
    if begun is not None and ended is not None and begun >= ended:
        raise InvalidInput("from", start, f"write a time before `to` ({end})")
    return begun, ended
