"""Amounts of money: written as decimals, counted in whole units, and shown with six decimals that add up."""

from collections.abc import Sequence
from decimal import Decimal

from fairlead.errors import InvalidInput

MICRO = 1_000_000
"""Micro-units in one unit of a currency. No amount is written more finely than in micro-units."""
HOUR_MICROSECONDS = 3_600_000_000
UNITS = HOUR_MICROSECONDS
"""Units in one micro-unit of a currency. With this factor, a price in micro-units per hour, multiplied by microseconds,
is a whole number of units.
"""
PRICE_PATTERN = r"^[0-9]{1,7}(\.[0-9]{1,6})?$"
CURRENCY_PATTERN = "^[A-Z]{3}$"
PRICE_WANTED = 'write an amount such as "2.50", below 10,000,000 and with at most six decimals'


def micros_of(field: str, amount: str) -> int:
    """Return a written amount in micro-units, such as 2500000 for "2.50". Raises InvalidInput naming the field."""
    whole, point, part = amount.partition(".")
    figures = whole.isascii() and whole.isdigit() and len(whole) <= 7
    if not figures or (point and not (part.isascii() and part.isdigit() and len(part) <= 6)):
        raise InvalidInput(field, amount, PRICE_WANTED)
    return int(whole) * MICRO + int(part.ljust(6, "0") or 0)


def written(micros: int) -> str:
    """Write micro-units as a decimal with six places, such as `2.500000`."""
    return f"{Decimal(micros) / MICRO:.6f}"


def read_back(amount: str) -> int:
    """Return the micro-units of an amount that `written` wrote, of any size."""
    return int(Decimal(amount) * MICRO)


def rounded(units: int) -> int:
    """Convert units to micro-units, rounding half up."""
    return (2 * units + UNITS) // (2 * UNITS)


def shown(parts: Sequence[int]) -> list[int]:
    """Return the parts of a sum in micro-units such that they add up to the rounded sum. Each part is off by less than
    a micro-unit.
    """
    before, found = 0, []
    for part in parts:
        found.append(rounded(before + part) - rounded(before))
        before += part
    return found


def apportioned(amount: int, weights: Sequence[int]) -> list[int]:
    """Divide a whole amount by weights such that the shares add up to the amount. At least one weight must not be 0."""
    total, before, found = sum(weights), 0, []
    for weight in weights:
        found.append(amount * (before + weight) // total - amount * before // total)
        before += weight
    return found
