"""Reads what people type into forms: whole numbers, and YAML as JSON has it. Pure."""

from typing import Any

import yaml

MOST_DIGITS = 15
"""More than any number here has, and fewer than Python and JavaScript read exactly."""


def whole_number(text: str) -> int | None:
    """The whole number, without a sign; None for another text, also for one of very many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def read_yaml(text: str) -> Any:
    """The document as JSON has it: an instant without quotes stays text.

    Raises YAMLError, also for a date that does not exist and for what holds itself or is nested without end.
    """
    try:
        return _as_json(yaml.safe_load(text))
    except ValueError as error:
        raise yaml.MarkedYAMLError(problem=str(error)) from error
    except RecursionError as error:
        raise yaml.MarkedYAMLError(problem="it holds itself, or is nested too deeply") from error


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if hasattr(value, "hour") else str(value)
