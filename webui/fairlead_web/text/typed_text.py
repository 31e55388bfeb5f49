"""Reads numbers that people type into forms. Pure."""

from math import isfinite

MOST_DIGITS = 15
"""Maximum number of digits: more than any number here has, and few enough for Python and JavaScript to read exactly."""


def whole_number(text: str) -> int | None:
    """A whole number without a sign; None for any other text, including one with very many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def number(text: str) -> int | float:
    """The number, an int if it is whole. Raises ValueError for another text, and for a number that is not finite."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return int(text) if text.removeprefix("-").isdecimal() else value
