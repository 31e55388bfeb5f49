"""Reads YAML in the same way with every Python version. PyYAML's own limits depend on the interpreter, so this module
sets fixed ones.
"""

from typing import Any

import yaml

MOST_VALUES = 100_000
"""Maximum number of values in a document. No real document has as many, but YAML merges can make billions of values
from a few lines.
"""
MOST_DIGITS = 100
"""Maximum number of characters of a whole number. No useful number has more, and Python refuses to read much longer
ones.
"""


def read_yaml(content: bytes) -> Any:
    """Return the value of a document. Raises YAMLError, also for bytes that are not UTF-8 and for a document that is
    nested too deeply.
    """
    return yaml.load(content, Loader=BoundedLoader)  # noqa: S506 - a kind of SafeLoader


def complaint(error: yaml.YAMLError) -> str:
    """Return the position and the reason of an error in a document: `line 2, column 5: expected ',' or ']', but got
    '}'`.
    """
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + (problem or "it has a character that YAML does not allow")


def _refused(problem: str, mark: yaml.Mark | None = None) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=mark)


class BoundedLoader(yaml.SafeLoader):
    """A SafeLoader that limits depth and merges while it reads. Its errors have the position of the fault."""

    deepest = 64
    _level = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._level += 1
        if self._level > self.deepest + 1:  # a value in the deepest list is one more
            raise _refused(f"it is nested deeper than {self.deepest} levels", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MOST_VALUES:
            raise _refused(f"it has more than {MOST_VALUES:,} values", node.start_mark)

    def construct_plain(self, node: yaml.Node) -> Any:
        """Return the value that SafeLoader gives a number, a boolean or a date."""
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
