"""The times that operators and routers may send."""

from fairlead.errors import InvalidInput

LATEST = 1e11
"""The largest time in Unix seconds that every clock and column here can hold (the year 5138)."""


def check_time(field_name: str, seconds: float) -> None:
    """Raises InvalidInput for a time that no clock and no column can hold."""
    if not 0 <= seconds <= LATEST:
        raise InvalidInput(field_name, seconds, "give Unix seconds, such as 1700000000.0")
