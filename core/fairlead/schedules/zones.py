"""Time zones by their names in the IANA database."""

from difflib import get_close_matches
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

_UNLIKE = ("posix", "right", "localtime", "factory")
"""Folders of the database that hold no place names. `right/` counts leap seconds; the content of the others depends on
the machine.
"""


@cache
def known_zones() -> frozenset[str]:
    """Return the names of all zones in this machine's database. The names are read once and kept, because reading them
    opens a thousand files.
    """
    return frozenset(available_timezones())


def parse_zone(text: str) -> ZoneInfo:
    """Return the zone of this name. Raises ValueError with the nearest known names if the name is unknown."""
    if not text.lower().startswith(_UNLIKE):
        try:
            return ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    near = get_close_matches(text, known_zones(), n=3, cutoff=0.6)
    hint = f"perhaps {' or '.join(near)}" if near else "such as Europe/Berlin, America/New_York or UTC"
    raise ValueError(f"write a time zone of the IANA database, {hint}")
