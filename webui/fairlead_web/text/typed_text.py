"""Reads numbers that people type into forms. Pure."""

import re
from math import isfinite

MOST_DIGITS = 15
"""Maximum number of digits: more than any number here has, and few enough for Python and JavaScript to read exactly."""


_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")


def ungrouped(text: str) -> str:
    """Remove the commas between thousands, which pages show: `2,500.00` → `2500.00`. Any other text is unchanged, so
    that `2,5` is still refused as a mistake.
    """
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text


def whole_number(text: str) -> int | None:
    """Return a whole number without a sign; None for any other text, including one with very many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def number(text: str) -> int | float:
    """Return the number, as an int if it is whole. Raises ValueError for another text, and for a number that is not
    finite.
    """
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return int(text) if text.removeprefix("-").isdecimal() else value
