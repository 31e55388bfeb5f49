"""Reads numbers that people type into forms. Pure."""

import re
from math import isfinite

MOST_DIGITS = 15
"""Maximum number of digits of a typed number: more than any such number needs, and few enough for Python and JavaScript
to read exactly.
"""


_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")


def ungrouped(text: str) -> str:
    """Return the text without commas between thousands, as pages show them: `2,500.00` → `2500.00`. A comma at another
    place is kept, so that `2,5` is refused as a mistake.
    """
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text


def whole_number(text: str) -> int | None:
    """Return the non-negative integer that the text contains, written without a sign; None for any other text,
    including one with too many digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def number(text: str) -> int | float:
    """Return the number that the text contains, as an int if it is an integer. Raises ValueError for other text, and
    for a number that is not finite.
    """
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return int(text) if text.removeprefix("-").isdecimal() else value
