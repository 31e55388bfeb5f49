"""Writes objects as documents from which they could be read, and lists the differences between two documents."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from fairlead.durations import format_duration
from fairlead.schemas.shapes import Shape, document_name, shape_of


def written(value: Any) -> dict[str, Any]:
    """Return the document of an object whose fields were made by `shapes`, with every default; None values are left
    out.

    Reading the document gives the object back.
    """
    values = ((document_name(item), shape_of(item), getattr(value, item.name)) for item in fields(value))
    return {name: _written(shape, one) for name, shape, one in values if one is not None}


def _written(shape: Shape, value: Any) -> Any:
    if shape.kind == "object":
        return written(value)
    if shape.kind == "list":
        return [written(item) for item in value]
    if shape.kind == "texts":
        return [_text(item) for item in value]
    if shape.kind == "duration":
        return format_duration(value)
    return _text(value) if shape.kind == "string" else value


def _text(value: object) -> str:
    """Return a value as text: unchanged if it is text, an instant as RFC 3339 in UTC."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


def differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> dict[str, tuple[Any, Any]]:
    """Return, by path, the values before and after (None: absent) of every field that differs between two documents.

    Example: `{"session.ttl": ("30m", "1h")}`.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for name in (*before, *(name for name in after if name not in before)):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found |= differences(old, new, f"{path}{name}.")
        elif old != new:
            found[f"{path}{name}"] = (old, new)
    return found
