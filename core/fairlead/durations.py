"""Durations as people write them in a pool: `500ms`, `5s`, `30m`, `1h30m`."""

import re

from fairlead.errors import InvalidInput

DURATION_PATTERN = r"^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h))+)$"
"""The pattern of a duration. The CRD has the same pattern, so that a bad duration is refused when the pool is
applied.
"""

_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_WHOLE = re.compile(DURATION_PATTERN)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


def parse_duration(text: object, field: str) -> float:
    """Return the seconds in a duration such as `1h30m`.

    Raises InvalidInput naming `field` for anything else, including plain numbers except `0`.
    """
    if not isinstance(text, str) or _WHOLE.fullmatch(text) is None:
        raise InvalidInput(field, text, "write a duration with a unit, such as 500ms, 5s, 30m or 1h")
    # Divided once at the end, so that 700ms gives 0.7 exactly and not the float next to it.
    return sum(float(amount) * _MILLISECONDS[unit] for amount, unit in _PART.findall(text)) / 1000


def format_duration(seconds: float) -> str:
    """Return the shortest usual spelling: 0.02 → `20ms`, 0.0005 → `0.5ms`, 5 → `5s`, 5400 → `1h30m`.

    Parsing the result gives the same value back, to the microsecond.
    """
    microseconds = round(seconds * 1_000_000)
    parts = []
    for unit, size in (("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000)):
        amount, microseconds = divmod(microseconds, size)
        if amount:
            parts.append(f"{amount}{unit}")
    if microseconds:
        parts.append(f"{microseconds / 1000:.15g}ms")
    return "".join(parts) or "0s"
