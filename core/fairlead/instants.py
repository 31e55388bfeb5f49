"""Reads instants as people and programs write them (RFC 3339, ISO 8601), alike on every Python."""

import re
from datetime import datetime

_WRITTEN = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d)(:\d\d(?::\d\d(?:[.,]\d+)?)?)?([Zz]|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII)


def read_instant(text: str) -> datetime:
    """The instant that a text names.

    It has no time zone if the text has none; a date alone means its midnight. Raises ValueError for any other text and
    for an instant that does not exist, such as hour 24 (RFC 3339, section 5.6), which newer interpreters would read as
    the next day.
    """
    found = _WRITTEN.fullmatch(text)
    if found is None or found[2] == "24":
        raise ValueError("write RFC 3339, such as 2026-12-01T07:00:00Z")
    day, hour, rest, offset = found.groups()
    return datetime.fromisoformat(day if hour is None else f"{day}T{hour}{rest or ''}{(offset or '').upper()}")
