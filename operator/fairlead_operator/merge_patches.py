"""JSON merge patches. Pure."""

from collections.abc import Mapping
from typing import Any


def without_nulls(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without nulls: a null means "left out", and only a patch may say it."""
    return {name: without_nulls(value) if isinstance(value, Mapping) else value for name, value in document.items() if value is not None}


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that turns `old` into `new`; empty when they are equal."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = merge_patch(before, value)
            if inner:
                patch[name] = inner
        elif before != value or name not in old:
            patch[name] = value
    return patch
