"""JSON merge patches. Pure."""

from collections.abc import Mapping
from typing import Any


def without_nulls(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without nulls, because a null in a document means that the field is left out. Only a patch
    needs nulls.

    Nulls in objects within lists are also removed, because a server drops them from a merge patch (evanphx/json-patch).
    """
    return {name: drop_nulls(value) for name, value in document.items() if value is not None}


def drop_nulls(value: Any) -> Any:
    """Return a value of a document without nulls in its objects; items of lists keep their position."""
    if isinstance(value, Mapping):
        return without_nulls(value)
    return [drop_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that turns `old` into `new`; empty when they are equal."""
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
