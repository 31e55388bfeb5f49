"""Shows changes: fields before and after as rows, and unified diffs of two documents as YAML. Pure."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead_web.text.formats import plain
from fairlead_web.text.yaml_text import yaml_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One changed field with its text before and after. `step` is the signed difference if both values are numbers,
    otherwise empty.
    """

    path: str
    before: str
    after: str
    step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line of a unified diff. `kind` is same, added, removed or gap."""

    kind: str
    text: str


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[Change]:
    """Return the fields that differ, by dotted path. Nested objects are compared field by field."""
    found: list[Change] = []
    for name in [*before, *(name for name in after if name not in before)]:
        here = f"{path}.{name}" if path else str(name)
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += changes_between(old, new, here)
        elif old != new:
            found.append(Change(path=here, before=_text(old), after=_text(new)))
    return found


def changes_of(diff: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Convert a diff from the API (`path` as a JSON pointer, `before`, `after`) to rows with dotted paths."""
    return [
        Change(
            path=str(item.get("path", "")).strip("/").replace("/", ".").replace("~1", "/").replace("~0", "~"),
            before=_text(item.get("before")),
            after=_text(item.get("after")),
            step=step(item.get("before"), item.get("after")),
        )
        for item in diff
    ]


def _text(value: Any) -> str:
    """Format a value as text: lists and objects as YAML with several lines, and other values on one line."""
    return yaml_text(value).strip() if value and isinstance(value, dict | list) else plain(value)


def step(before: Any, after: Any) -> str:
    """Return `+2` or `-3` for two numbers; empty for other values."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (before, after))
    return f"{after - before:+g}" if numbers else ""


def yaml_diff(before: Any, after: Any, context: int = 4) -> list[DiffLine]:
    """Return the unified diff of two documents as YAML, with `context` lines around each change; empty if they are
    equal.
    """
    lines: list[DiffLine] = []
    diff = difflib.unified_diff(yaml_text(before).splitlines(), yaml_text(after).splitlines(), n=context, lineterm="")
    for index, line in enumerate(diff):
        if index < 2:  # the two lines that name files
            continue
        if line.startswith("@@"):
            if lines:
                lines.append(DiffLine(kind="gap", text=" ⋯"))
            continue
        kind = {"+": "added", "-": "removed"}.get(line[0], "same")
        lines.append(DiffLine(kind=kind, text=line))
    return lines
