"""Reads YAML that people write as JSON values, in the same way on every version of Python.

PyYAML passes on Python's own messages for impossible dates or very long integers, and its nesting limit depends on the
interpreter's stack. Here the bounds are fixed and the messages are Fairlead's own.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import yaml

from fairlead_process.json_documents import DEEPEST, not_utf8, too_deep

MOST_VALUES = 100_000
"""Maximum number of values in a document. No document of Fairlead has as many, but with aliases and merges a few lines
could make billions.
"""
MOST_DIGITS = 100
"""Maximum number of characters of a whole number: more than any usable number has, and fewer than Python refuses to
read.
"""


def read_yaml(content: str | bytes) -> Any:
    """Return the document as JSON values: a date stays text, an instant becomes RFC 3339 in UTC.

    Raises YAMLError, also for a date that does not exist, for data that is not UTF-8, and for a document that contains
    itself, nests deeper than DEEPEST levels, or is made huge by aliases.
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
    except UnicodeDecodeError as error:
        raise yaml.MarkedYAMLError(problem=not_utf8(error)) from None
    return _as_json(yaml.load(text, Loader=BoundedLoader), count(1), 1)  # noqa: S506 - a kind of SafeLoader


def complaint(error: yaml.YAMLError) -> str:
    """Say where and why a document is invalid: `line 2, column 5: expected ',' or ']', but got '}'`."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + (problem or "it has a character that YAML does not allow")


def _refused(problem: str, mark: yaml.Mark | None = None) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=mark)


class BoundedLoader(yaml.SafeLoader):
    """A SafeLoader with bounded depth and bounded merges. Its errors name the position."""

    deepest = DEEPEST
    _level = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._level += 1
        if self._level > self.deepest + 1:  # a value in the deepest list is one more
            raise _refused(too_deep(self.deepest), self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MOST_VALUES:
            raise _refused(f"it has more than {MOST_VALUES:,} values", node.start_mark)

    def construct_plain(self, node: yaml.Node) -> Any:
        """Return SafeLoader's value for a number, boolean or date."""
        kind = node.tag.rpartition(":")[2]
        if kind == "int" and len(node.value) > MOST_DIGITS:
            raise _refused(f"a number has more than {MOST_DIGITS} digits", node.start_mark)
        try:
            return yaml.SafeLoader.yaml_constructors[node.tag](self, node)
        except (ValueError, ArithmeticError, LookupError, AttributeError, yaml.constructor.ConstructorError):
            shown = node.value[:MOST_DIGITS] if isinstance(node, yaml.ScalarNode) else "a list or object"
            raise _refused(f"{shown} is {_NOUNS[kind]}", node.start_mark) from None


_NOUNS = {
    "int": "not a whole number",
    "float": "not a number",
    "bool": "neither true nor false",
    "timestamp": "not a date that exists",
    "binary": "not base64",
}
for _kind in _NOUNS:
    BoundedLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", BoundedLoader.construct_plain)


def _as_json(value: Any, numbers: Iterator[int], level: int) -> Any:
    if next(numbers) > MOST_VALUES:
        raise _refused(f"it has more than {MOST_VALUES:,} values")
    if isinstance(value, dict | list) and level > DEEPEST:
        raise _refused(f"{too_deep()}, or holds itself")
    if isinstance(value, dict):
        return {str(name): _as_json(item, numbers, level + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item, numbers, level + 1) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, datetime):
        try:
            return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%dT%H:%M:%SZ")
        except OverflowError:
            raise _refused(f"{value.isoformat()} is {_NOUNS['timestamp']} in UTC") from None
    return str(value)
