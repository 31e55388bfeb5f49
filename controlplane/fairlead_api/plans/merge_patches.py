"""JSON merge patches (RFC 7386): applies a patch to a document, and computes patches and their inverses. Pure."""

from collections.abc import Mapping
from typing import Any


def merged(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the patch applied."""
    found = dict(document)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            before = document.get(key)
            found[key] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            found[key] = value
    return found


def between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest patch that turns `before` into `after`; empty if they are equal."""
    found: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := between(old, value):
                found[key] = inner
        elif old != value or key not in before:
            found[key] = value
    return found


def inverse(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that turns the patched document back into `document`."""
    found: dict[str, Any] = {}
    for key, value in patch.items():
        before = document.get(key)
        found[key] = inverse(before, value) if isinstance(value, Mapping) and isinstance(before, Mapping) else before
    return found


def replacing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that turns `before` into exactly `after`. If `after` itself were used as the patch, fields that
    it lacks would remain.
    """
    return {**dict.fromkeys(before, None), **after}


def holds(document: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    """Return whether the document has every value that the patch sets. Fields that the patch removes are not examined,
    because the API server may have given them their defaults again.
    """
    for key, value in patch.items():
        if value is None:
            continue
        found = document.get(key)
        if isinstance(value, Mapping):
            if not isinstance(found, Mapping) or not holds(found, value):
                return False
        elif found != value:
            return False
    return True


def replaces_what_others_wrote(document: Mapping[str, Any], patch: Mapping[str, Any], back: Mapping[str, Any]) -> bool:
    """Return whether the patch replaces a whole list that somebody else has changed. `back` is the patch's inverse,
    made before that change.
    """
    for key, value in patch.items():
        present, before = document.get(key), back.get(key)
        if isinstance(value, Mapping):
            inner = present if isinstance(present, Mapping) else {}
            if replaces_what_others_wrote(inner, value, before if isinstance(before, Mapping) else {}):
                return True
        elif isinstance(value, list) and present != before:
            return True
    return False
