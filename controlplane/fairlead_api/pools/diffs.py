"""Differences of two JSON documents as a list of {op, path, before, after}; paths are JSON pointers. Pure."""

from collections.abc import Mapping
from typing import Any


def diff(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """Return the changes from `before` to `after`, each at the deepest path that differs. A list whose items have no
    names is compared as a whole.
    """
    if before == after and type(before) is type(after):
        return []
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [
            change
            for key in sorted({*before, *after})
            for change in _member(before, after, key, f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}")
        ]
    named = _by_name(before), _by_name(after)
    if named[0] is not None and named[1] is not None:
        return diff(named[0], named[1], path)
    return [{"op": "replace", "path": path or "/", "before": before, "after": after}]


def _member(before: Mapping[str, Any], after: Mapping[str, Any], key: str, path: str) -> list[dict[str, Any]]:
    if key not in before:
        return [{"op": "add", "path": path, "before": None, "after": after[key]}]
    if key not in after:
        return [{"op": "remove", "path": path, "before": before[key], "after": None}]
    return diff(before[key], after[key], path)


def _by_name(items: Any) -> dict[str, Any] | None:
    """Return the items of a list by name; None unless it is a list of objects with distinct `name`s."""
    if (
        not isinstance(items, list)
        or not items
        or not all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in items)
    ):
        return None
    found = {item["name"]: item for item in items}
    return found if len(found) == len(items) else None
