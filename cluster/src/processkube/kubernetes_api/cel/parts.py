"""One expression of a rule while the rule is checked: its type, its cost, the data that it reads, and its position in
the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import lark

from processkube.kubernetes_api.cel import types
from processkube.kubernetes_api.cel.costs import ENDLESS, UNKNOWN_SIZE, Operand, Size
from processkube.kubernetes_api.cel.signatures import is_any
from processkube.kubernetes_api.cel.types import CelType

Tree = lark.Tree[Any]

NOWHERE = CelType(kind="nowhere")
"""The `place` of a computed value, which reads no declared data."""

LOST = CelType(kind="lost")
"""The `place` of data that the schema does not declare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One expression of a rule.

    `place` is the declared data that the expression reads. It is `NOWHERE` for a computed value, and `LOST` for data
    that the schema does not declare.
    """

    type: CelType
    cost: int
    at: int
    size: Size | None = None
    item_size: Size | None = None
    place: CelType = NOWHERE
    literal: object = None

    def sized(self) -> Size:
        if self.size is not None:
            return self.size
        if self.place not in (NOWHERE, LOST):
            return Size(0, self.place.max_elements)
        return Size(1, 1) if self.type.kind in types.SCALARS else UNKNOWN_SIZE

    def operand(self) -> Operand:
        """Return the expression in the form that the cost formulas need."""
        element = self.type.element
        item_most = None
        if element is not None and element.kind in {"string", "bytes"}:
            item_most = self.place.element.max_elements if self.place.element is not None else ENDLESS
        return Operand(
            size=self.sized(),
            is_list=self.type.kind == "list",
            may_be_bytes=self.type.kind == "bytes" or is_any(self.type),
            is_map=self.type.kind == "map",
            item_most=item_most,
            literal=self.literal,
        )


def arguments_of(node: Tree, *, skip: int = 0) -> list[Tree]:
    rest = node.children[skip:]
    return list(rest[0].children) if rest else []


def innermost(node: Tree) -> Tree:
    """Return the expression without the nodes around it that only wrap it. The grammar puts a node around an expression
    for each level of operator precedence, even if the expression has no operator of this level.

    Literals of lists and maps are not wrappers, even if they have only one element.
    """
    while len(node.children) == 1 and isinstance(node.children[0], lark.Tree) and node.data not in {"list_lit", "map_lit"}:
        node = node.children[0]
    return node


def start_of(node: Tree) -> int:
    # There is no position where the parser made a new token, as for `true`.
    return int(getattr(node.meta, "start_pos", None) or 0)


def end_of(node: Tree) -> int:
    return int(getattr(node.meta, "end_pos", None) or 0)


def text_length(literal: str) -> int:
    """Return the number of characters of a text literal's value. The prefix and the quotes do not count, and an escape
    sequence counts as one character.
    """
    found = re.match(r"([bBrR]*)('''|\"\"\"|'|\")", literal)
    if found is None:
        return len(literal)
    body = literal[found.end() : -len(found[2])]
    return len(body if "r" in found[1].lower() else re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", "c", body))


def token_of(node: Tree, index: int) -> lark.Token:
    """Return the child with this index, which the grammar guarantees to be a token."""
    token = node.children[index]
    assert isinstance(token, lark.Token)
    return token
