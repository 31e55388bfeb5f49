"""Reads instants as people and programs write them (RFC 3339, ISO 8601), alike on every Python."""

import re
from datetime import datetime

_WRITTEN = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d)(:\d\d(?::\d\d(?:[.,]\d+)?)?)?([Zz]|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII)


def read_instant(text: str) -> datetime:
    """The instant, without a time zone where the text has none; a day alone is its midnight.

    Raises ValueError for another text and for an instant that does not exist: hour 24, which newer interpreters read as
    the next day, does not exist (RFC 3339, section 5.6).
    """
    found = _WRITTEN.fullmatch(text)
    if found is None or found[2] == "24":
        raise ValueError("write RFC 3339, such as 2026-12-01T07:00:00Z")
    day, hour, rest, offset = found.groups()
    return datetime.fromisoformat(day if hour is None else f"{day}T{hour}{rest or ''}{(offset or '').upper()}")
