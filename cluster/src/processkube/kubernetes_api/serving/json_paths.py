"""The part of kubectl's JSONPath that printer columns use: members, indexes, wildcards, and filters that compare for
equality.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_STEP = re.compile(
    r"""\.\.(?P<deep>[\w-]+)
      | \.?\[\?\(\s*@\.(?P<filter_path>[\w.\\/-]+)\s*(?P<operator>==|!=)\s*(?P<quote>["'])(?P<filter_value>.*?)(?P=quote)\s*\)\]
      | \[(?P<index>-?\d+)\]
      | \[(?P<all>\*)\]
      | \[(?P<bracket>["'])(?P<quoted>.*?)(?P=bracket)\]
      | \.(?P<star>\*)
      | \.(?P<name>(?:\\.|[^.\[\]\\])+)""",
    re.VERBOSE,
)

Step = tuple[str, str, str, bool]
"""A step of a path: (kind of the step, name or path, wanted value, is_equal). A filter keeps the items that equal the
wanted value if is_equal (`==`), and otherwise the other items (`!=`).
"""


@cache
def parse(path: str) -> tuple[Step, ...]:
    """Return the steps of a path. Raises ValueError for a path that this server does not support."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    steps: list[Step] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise ValueError(f"JSON path {path!r} is not understood at {text[position:]!r}")
        position = found.end()
        if found["filter_path"]:
            steps.append(("filter", found["filter_path"], found["filter_value"], found["operator"] == "=="))
        elif found["index"]:
            steps.append(("index", found["index"], "", True))
        elif found["all"] or found["star"]:
            steps.append(("all", "", "", True))
        elif found["deep"]:
            steps.append(("deep", found["deep"], "", True))
        else:
            name = found["quoted"] if found["quoted"] is not None else re.sub(r"\\(.)", r"\1", found["name"])
            steps.append(("name", name, "", True))
    return tuple(steps)


def find(value: Any, path: str) -> list[Any]:
    """Return all values at a path; empty if a step leads nowhere."""
    found = [value]
    for step in parse(path):
        found = [inner for outer in found for inner in _follow(outer, step)]
    return found


def _follow(value: Any, step: Step) -> list[Any]:
    kind, name, wanted, equal = step
    match kind:
        case "name":
            return [value[name]] if isinstance(value, dict) and name in value else []
        case "index":
            index = int(name)
            return [value[index]] if isinstance(value, list) and -len(value) <= index < len(value) else []
        case "all":
            return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
        case "deep":
            return _descend(value, name)
    items = value if isinstance(value, list) else []
    return [item for item in items if (_member(item, name) == wanted) == equal]


def _member(item: Any, path: str) -> Any:
    for name in path.split("."):
        item = item.get(name) if isinstance(item, dict) else None
    return item


def _descend(value: Any, name: str) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    here = [value[name]] if isinstance(value, dict) and name in value else []
    return here + [found for member in inner for found in _descend(member, name)]
