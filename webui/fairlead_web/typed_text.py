"""Reads what people type into forms: numbers, and YAML as JSON has it. Pure."""

from collections.abc import Iterator
from itertools import count
from math import isfinite
from typing import Any

import yaml

MOST_DIGITS = 15
"""More than any number here has, and fewer than Python and JavaScript read exactly."""
MOST_VALUES = 100_000
"""More than any document here has; aliases make billions of a few lines."""


def whole_number(text: str) -> int | None:
    """The whole number, without a sign; None for another text, also for one of very many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def number(text: str) -> int | float:
    """The number, a whole one as such. Raises ValueError for another text, and for what is not finite."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return int(text) if text.removeprefix("-").isdecimal() else value


def read_yaml(text: str) -> Any:
    """The document as JSON has it: an instant without quotes stays text.

    Raises YAMLError, also for a date that does not exist, and for what holds itself, is nested without end, or is made
    huge by aliases.
    """
    try:
        return _as_json(yaml.safe_load(text), count(1))
    except ValueError as error:
        raise yaml.MarkedYAMLError(problem=str(error)) from error
    except RecursionError as error:
        raise yaml.MarkedYAMLError(problem="it holds itself, or is nested too deeply") from error


def _as_json(value: Any, numbers: Iterator[int]) -> Any:
    if next(numbers) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES:,} values")
    if isinstance(value, dict):
        return {str(name): _as_json(item, numbers) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item, numbers) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if hasattr(value, "hour") else str(value)
