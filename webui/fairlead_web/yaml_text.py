"""JSON documents as readable YAML, and line diffs of two of them. Pure. Writing only: one fixed, safe style, no YAML library in the web process."""

import difflib
import json
import re
from typing import Any

from fairlead_web.contexts.pools import DiffLine

_PLAIN = re.compile(r"[A-Za-z/_][A-Za-z0-9 /._%@-]*|\d+(?:ms|s|m|h)")
_FIRST = (
    "name",
    "type",
    "model",
    "replicas",
    "roles",
    "engine",
    "routing",
    "policy",
    "parameters",
    "slo",
    "earlyRejection",
    "mode",
    "drain",
)
_WORDS_WITH_MEANING = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"})


def yaml_text(document: Any) -> str:
    """The document as block-style YAML, keys in the order people write a spec: storage keeps none."""
    return "\n".join(_lines(document, 0)) + "\n"


def _place(key: object) -> tuple[int, str]:
    name = str(key)
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST)), name


def yaml_diff(before: Any, after: Any, context: int = 4) -> list[DiffLine]:
    """Unified diff of two documents as YAML; empty when they are equal."""
    lines: list[DiffLine] = []
    diff = difflib.unified_diff(yaml_text(before).splitlines(), yaml_text(after).splitlines(), n=context, lineterm="")
    for index, line in enumerate(diff):
        if index < 2:
            continue
        if line.startswith("@@"):
            if lines:
                lines.append(DiffLine(kind="gap", text=" ⋯"))
            continue
        kind = {"+": "added", "-": "removed"}.get(line[0], "same")
        lines.append(DiffLine(kind=kind, text=line))
    return lines


def _lines(value: Any, depth: int) -> list[str]:
    pad = "  " * depth
    if isinstance(value, dict) and value:
        lines = []
        for key, item in sorted(value.items(), key=lambda item: _place(item[0])):
            if isinstance(item, (dict, list)) and item:
                lines += [f"{pad}{_scalar(str(key))}:", *_lines(item, depth + (1 if isinstance(item, dict) else 0))]
            else:
                lines.append(f"{pad}{_scalar(str(key))}: {_scalar(item)}")
        return lines
    if isinstance(value, list) and value:
        lines = []
        for item in value:
            inner = _lines(item, depth + 1) if isinstance(item, (dict, list)) and item else [f"{pad}  {_scalar(item)}"]
            lines += [f"{pad}- {inner[0][len(pad) + 2 :]}", *inner[1:]]
        return lines
    return [f"{pad}{_scalar(value)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS_WITH_MEANING and not value.endswith(" "):
        return value
    return "".join(
        character if character.isprintable() else f"\\U{ord(character):08x}" for character in json.dumps(value, ensure_ascii=False)
    )
