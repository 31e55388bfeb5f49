"""Computes the type, the maximum cost and the faults of a rule, only from its text and the declared types.

It follows cel-go's type checker and cost estimator, because the real server uses both when a definition is created. An
expression that this module does not know counts as valid. A function without a signature in `signatures` has the type
`unknown`, which matches every type, and costs as much as a simple step.

Not implemented: optional values, two-variable macros, cel.bind, the functions in `UNSUPPORTED`, and checks of literal
arguments (regular expressions, durations).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import lark

from processkube.kubernetes_api.cel import costs, types
from processkube.kubernetes_api.cel.costs import Size, bounded
from processkube.kubernetes_api.cel.parts import (
    LOST,
    NOWHERE,
    Part,
    Tree,
    arguments_of,
    end_of,
    innermost,
    start_of,
    text_length,
    token_of,
)
from processkube.kubernetes_api.cel.signatures import (
    KNOWN,
    TYPE_NAMES,
    UNSUPPORTED,
    UNSUPPORTED_NAMESPACES,
    arithmetic,
    is_any,
    ordered,
    result_of,
    same,
)
from processkube.kubernetes_api.cel.types import BOOL, DYN, INT, STRING, UNKNOWN, CelType

_LITERALS = {
    "FLOAT_LIT": types.DOUBLE,
    "INT_LIT": INT,
    "UINT_LIT": types.UINT,
    "STRING_LIT": STRING,
    "MLSTRING_LIT": STRING,
    "BYTES_LIT": types.BYTES,
    "BOOL_LIT": BOOL,
    "NULL_LIT": types.NULL,
}
_RELATIONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "in": "in"}
_SUMS = {"addition_add": "+", "addition_sub": "-", "multiplication_mul": "*", "multiplication_div": "/", "multiplication_mod": "%"}
_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of the check of a rule.

    `problems` are compile errors as the real server prints them. If there are any, `type` and `cost` have no meaning.
    """

    type: CelType
    cost: int
    problems: tuple[str, ...]


def check_expression(tree: Tree, text: str, root: CelType) -> Checked:
    """Return the type, the cost and the problems of a parsed rule. `root` is the type of `self` and `oldSelf`."""
    walk = _Walk(text=text, root=root)
    part = walk.visit(tree)
    return Checked(type=part.type, cost=part.cost, problems=tuple(walk.problems))


@dataclass(slots=True, kw_only=True)
class _Walk:
    text: str
    root: CelType
    scopes: list[tuple[str, CelType, CelType]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def visit(self, node: Tree) -> Part:
        handler = _HANDLERS.get(str(node.data))
        if handler is not None and len(node.children) >= _LEAST_CHILDREN.get(str(node.data), 1):
            return handler(self, node)
        return self.visit(node.children[0]) if node.children else self.unknown(start_of(node))

    def unknown(self, at: int) -> Part:
        return Part(type=UNKNOWN, cost=0, at=at)

    def refuse(self, at: int, message: str) -> None:
        before = self.text[:at]
        line, column = before.count("\n"), at - (before.rfind("\n") + 1)
        shown = self.text.splitlines()[line] if self.text else ""
        self.problems.append(f"ERROR: <input>:{line + 1}:{column + 1}: {message}\n | {shown}\n | {'.' * column}^")

    def mismatch(self, at: int, function: str, *parts: Part, target: Part | None = None) -> None:
        listed = ", ".join(str(part.type) for part in parts)
        whom = f"{target.type}.({listed})" if target is not None else f"({listed})"
        self.refuse(at, f"found no matching overload for '{function}' applied to '{whom}'")

    def require_bool(self, part: Part) -> None:
        if not same(part.type, BOOL):
            self.refuse(part.at, f"expected type 'bool' but found '{part.type}'")

    # --- operators ---

    def ternary(self, node: Tree) -> Part:
        condition, then, otherwise = (self.visit(child) for child in node.children)
        at = self.text.find("?", end_of(node.children[0]))
        if not (same(condition.type, BOOL) and same(then.type, otherwise.type)):
            self.mismatch(at, "_?_:_", condition, then, otherwise)
        cost = bounded(condition.cost + max(then.cost, otherwise.cost))
        known = otherwise.type if is_any(then.type) else then.type
        return Part(type=known, cost=cost, at=at, size=then.sized().union(otherwise.sized()))

    def logic(self, node: Tree) -> Part:
        left, right = (self.visit(child) for child in node.children)
        sign = "||" if node.data == "conditionalor" else "&&"
        at = self.text.find(sign, end_of(node.children[0]))
        self.require_bool(left)
        self.require_bool(right)
        return Part(type=BOOL, cost=bounded(left.cost + right.cost), at=at)

    def relation(self, node: Tree) -> Part:
        operator, right_node = node.children
        sign = _RELATIONS[str(operator.data).removeprefix("relation_")]
        left, right = self.visit(operator.children[0]), self.visit(right_node)
        at = self.text.find(sign, end_of(operator.children[0]))
        spent = bounded(left.cost + right.cost)
        if sign == "in":
            return self.containment(at, left, right, spent)
        if sign in {"==", "!="}:
            if not same(left.type, right.type):
                self.mismatch(at, f"_{sign}_", left, right)
            return Part(type=BOOL, cost=bounded(spent + costs.equality(left.sized(), right.sized())), at=at)
        if not ordered(left.type, right.type):
            self.mismatch(at, f"_{sign}_", left, right)
        of_text = any(part.type.kind in {"string", "bytes"} for part in (left, right)) or (is_any(left.type) and is_any(right.type))
        return Part(type=BOOL, cost=bounded(spent + (costs.equality(left.sized(), right.sized()) if of_text else 1)), at=at)

    def containment(self, at: int, left: Part, right: Part, spent: int) -> Part:
        wanted = {"list": right.type.element, "map": STRING}.get(right.type.kind, None if is_any(right.type) else types.NULL)
        if wanted is not None and not same(left.type, wanted):
            self.mismatch(at, "@in", left, right)
        price = costs.call_cost("@in", None, (left.operand(), right.operand())).cost
        return Part(type=BOOL, cost=bounded(spent + price), at=at)

    def arithmetic(self, node: Tree) -> Part:
        operator, right_node = node.children
        sign = _SUMS[operator.data]
        left, right = self.visit(operator.children[0]), self.visit(right_node)
        at = self.text.find(sign, end_of(operator.children[0]))
        found = arithmetic(sign, left.type, right.type)
        if found is None:
            self.mismatch(at, f"_{sign}_", left, right)
            return Part(type=UNKNOWN, cost=0, at=at)
        spent = bounded(left.cost + right.cost)
        if sign == "+" and found.kind in {"string", "bytes", "list", "unknown"}:
            price = costs.concatenation(left.operand(), right.operand())
            return Part(type=found, cost=bounded(spent + max(1, price.cost)), at=at, size=price.size)
        return Part(type=found, cost=bounded(spent + 1), at=at)

    def negation(self, node: Tree) -> Part:
        operator, inner = node.children
        part = self.visit(inner)
        at = start_of(operator)
        if operator.data == "unary_not":
            if not same(part.type, BOOL):
                self.mismatch(at, "!_", part)
            return Part(type=BOOL, cost=bounded(part.cost + 1), at=at)
        if part.literal is not None:
            return replace(part, at=at)
        if not (is_any(part.type) or part.type.kind in {"int", "double"}):
            self.mismatch(at, "-_", part)
        return Part(type=part.type, cost=bounded(part.cost + 1), at=at)

    # --- values ---

    def literal(self, node: Tree) -> Part:
        token = token_of(node, 0)
        kind = _LITERALS.get(token.type, UNKNOWN)
        length = text_length(str(token)) if kind.kind in {"string", "bytes"} else 1
        value: object = int(str(token), 0) if kind is INT else str(token)
        return Part(type=kind, cost=0, at=start_of(node), size=Size(length, length), literal=value)

    def identifier(self, node: Tree) -> Part:
        name, at = str(node.children[-1]), start_of(node)
        for known, kind, place in reversed(self.scopes):
            if known == name:
                return Part(type=kind, cost=1, at=at, place=place)
        if name in {"self", "oldSelf"}:
            return Part(type=self.root, cost=1, at=at, place=self.root)
        if name in UNSUPPORTED_NAMESPACES:
            self.refuse(at, f"'{name}' is not supported by this server")
        elif name not in TYPE_NAMES:
            self.refuse(at, f"undeclared reference to '{name}' (in container '')")
        return Part(type=CelType(kind="type") if name in TYPE_NAMES else UNKNOWN, cost=1, at=at, place=self.root)

    def list_literal(self, node: Tree) -> Part:
        parts = [self.visit(child) for child in arguments_of(node)]
        element = next((part.type for part in parts if not is_any(part.type)), DYN if not parts else parts[0].type)
        for part in parts:
            if not same(part.type, element):
                self.refuse(part.at, f"expected type '{element}' but found '{part.type}'")
        cost = bounded(costs.CREATE_LIST + sum(part.cost for part in parts))
        item_size = reduce(Size.union, (part.sized() for part in parts)) if parts else None
        return Part(type=types.list_of(element), cost=cost, at=start_of(node), size=Size(len(parts), len(parts)), item_size=item_size)

    def map_literal(self, node: Tree) -> Part:
        parts = [self.visit(child) for child in arguments_of(node)]
        element = parts[1].type if len(parts) > 1 and all(same(part.type, parts[1].type) for part in parts[1::2]) else DYN
        cost = bounded(costs.CREATE_MAP + sum(part.cost for part in parts))
        count, sizes = len(parts) // 2, [part.sized() for part in parts[1::2]]
        item_size = reduce(Size.union, sizes) if sizes else None
        return Part(type=CelType(kind="map", element=element), cost=cost, at=start_of(node), size=Size(count, count), item_size=item_size)

    def structure(self, node: Tree) -> Part:
        spent = sum(self.visit(child).cost for child in arguments_of(node, skip=1) if isinstance(child, lark.Tree))
        return Part(type=UNKNOWN, cost=bounded(costs.CREATE_STRUCT + spent), at=start_of(node))

    def select(self, node: Tree) -> Part:
        operand, token = self.visit(node.children[0]), token_of(node, 1)
        name, at = str(token), self.text.rfind(".", 0, token.start_pos or 0)
        found = self.member_type(operand.type, name, at)
        steps = 1 if operand.type.kind in {"object", "map"} else 0
        return Part(type=found, cost=bounded(operand.cost + steps), at=at, place=self.place_of(operand, operand.place.fields.get(name)))

    def member_type(self, owner: CelType, name: str, at: int) -> CelType:
        if owner.kind == "object":
            if name not in owner.fields:
                self.refuse(at, f"undefined field '{name}'")
            return owner.fields.get(name, UNKNOWN)
        if owner.kind == "map":
            return owner.element or UNKNOWN
        if not is_any(owner):
            self.refuse(at, f"type '{owner}' does not support field selection")
            return UNKNOWN
        return owner if owner.kind == "unknown" else DYN

    def place_of(self, container: Part, inner: CelType | None) -> CelType:
        """Return the declared data that an expression reads when it takes a member or an item from `container`:
        `inner`, or `LOST` if the schema does not declare this data.

        If `container` is a computed value, the expression counts as reading the root, as in the real estimator.
        """
        return self.root if container.place == NOWHERE else (inner or LOST)

    def index(self, node: Tree) -> Part:
        container, key = (self.visit(child) for child in node.children)
        at = self.text.find("[", end_of(node.children[0]))
        key_type = {"list": INT, "map": STRING}.get(container.type.kind)
        if (key_type is None and not is_any(container.type)) or (key_type is not None and not same(key.type, key_type)):
            self.mismatch(at, "_[_]", container, key)
        found = container.type.element or (UNKNOWN if container.type.kind == "unknown" else DYN)
        cost = bounded(container.cost + key.cost + 1)
        return Part(type=found, cost=cost, at=at, size=container.item_size, place=self.place_of(container, container.place.element))

    # --- calls ---

    def global_call(self, node: Tree) -> Part:
        token, nodes = token_of(node, 0), arguments_of(node, skip=1)
        name, at = str(token), self.text.find("(", token.end_pos or 0)
        if name == "has":
            return self.presence(nodes, at)
        parts = [self.visit(child) for child in nodes]
        spent = bounded(sum(part.cost for part in parts))
        if name == "dyn" and parts:
            return Part(type=DYN, cost=bounded(spent + 1), at=at, size=parts[0].sized(), item_size=parts[0].item_size)
        return self.call(name, at, None, parts, spent)

    def presence(self, nodes: list[Tree], at: int) -> Part:
        node = innermost(nodes[0]) if len(nodes) == 1 else None
        if node is None or node.data != "member_dot":
            self.refuse(start_of(nodes[0]) if nodes else at, "invalid argument to has() macro")
            return Part(type=BOOL, cost=0, at=at)
        owner = self.visit(node.children[0])
        self.member_type(owner.type, str(node.children[1]), at)
        return Part(type=BOOL, cost=owner.cost, at=at)

    def member_call(self, node: Tree) -> Part:
        token, nodes = token_of(node, 1), arguments_of(node, skip=2)
        name, at = str(token), self.text.find("(", token.end_pos or 0)
        target = self.visit(node.children[0])
        if name in _MACROS:
            return self.macro(name, at, target, nodes)
        parts = [self.visit(child) for child in nodes]
        return self.call(name, at, target, parts, bounded(target.cost + sum(part.cost for part in parts)))

    def call(self, name: str, at: int, target: Part | None, parts: list[Part], spent: int) -> Part:
        if name in UNSUPPORTED:
            self.refuse(at, f"'{name}' is not supported by this server")
        elif name not in KNOWN and (target is None or target.type is not UNKNOWN):
            self.refuse(at, f"undeclared reference to '{name}' (in container '')")
        found = result_of(name, None if target is None else target.type, [part.type for part in parts])
        if found is None:
            self.mismatch(at, name, *parts, target=target)
            found = UNKNOWN
        price = costs.call_cost(name, None if target is None else target.operand(), [part.operand() for part in parts])
        return Part(type=found, cost=bounded(spent + price.cost), at=at, size=price.size)

    def macro(self, name: str, at: int, target: Part, nodes: list[Tree]) -> Part:
        if len(nodes) != (3 if name == "map" and len(nodes) == 3 else 2):
            self.refuse(at, f"{name}() with two variables is not supported by this server")
            return self.unknown(at)
        variable = innermost(nodes[0])
        if variable.data != "ident":
            self.refuse(start_of(variable), "argument must be a simple name")
            return self.unknown(at)
        item, place = self.iterated(target)
        self.scopes.append((str(variable.children[0]), item, place))
        steps = [self.visit(child) for child in nodes[1:]]
        self.scopes.pop()
        times = target.sized().most
        once, around, found, size = _MACRO_COSTS[name](steps, item)
        if name in {"all", "exists"}:
            self.require_bool(steps[0])
        elif not same(steps[0].type, BOOL) and (name != "map" or len(steps) > 1):
            kept = INT if name == "exists_one" else found
            self.refuse(at, f"found no matching overload for '_?_:_' applied to '({steps[0].type}, {kept}, {kept})'")
        cost = bounded(target.cost + around + bounded(times * once))
        return Part(type=found, cost=cost, at=at, size=target.sized() if size is None else size)

    def iterated(self, target: Part) -> tuple[CelType, CelType]:
        """Return the type of the variable of a macro over `target`, and the declared data that this variable reads."""
        match target.type.kind:
            case "list":
                return target.type.element or UNKNOWN, self.place_of(target, target.place.element)
            case "map":
                return STRING, self.place_of(target, STRING if target.place.element is not None else None)
        if not is_any(target.type):
            self.refuse(target.at, f"expression of type '{target.type}' cannot be range of a comprehension (must be list, map, or dynamic)")
            return UNKNOWN, LOST
        return target.type, self.place_of(target, None)


_MacroCost = Callable[[list[Part], CelType], tuple[int, int, CelType, Size | None]]
"""A function that returns the cost of a macro, from the macro's step expressions and the type of its variable. It
returns four values: the cost of one iteration, the cost outside of the loop, the type of the result, and the size of
the result (None: the size of the iterated data).
"""

_ONE = Size(1, 1)
_MACRO_COSTS: Mapping[str, _MacroCost] = {
    "all": lambda steps, item: (steps[0].cost + 3, 1, BOOL, _ONE),
    "exists": lambda steps, item: (steps[0].cost + 4, 1, BOOL, _ONE),
    "exists_one": lambda steps, item: (steps[0].cost + 2, 2, BOOL, _ONE),
    "filter": lambda steps, item: (steps[0].cost + costs.CREATE_LIST + 3, costs.CREATE_LIST + 1, types.list_of(item), None),
    "map": lambda steps, item: (sum(one.cost for one in steps) + costs.CREATE_LIST + 2, costs.CREATE_LIST + 1, types.list_of(steps[-1].type), None),
}  # fmt: skip

_HANDLERS: Mapping[str, Callable[[_Walk, Tree], Part]] = {
    "expr": _Walk.ternary,
    "conditionalor": _Walk.logic,
    "conditionaland": _Walk.logic,
    "relation": _Walk.relation,
    "addition": _Walk.arithmetic,
    "multiplication": _Walk.arithmetic,
    "unary": _Walk.negation,
    "literal": _Walk.literal,
    "ident": _Walk.identifier,
    "dot_ident": _Walk.identifier,
    "list_lit": _Walk.list_literal,
    "map_lit": _Walk.map_literal,
    "member_object": _Walk.structure,
    "member_dot": _Walk.select,
    "member_index": _Walk.index,
    "ident_arg": _Walk.global_call,
    "dot_ident_arg": _Walk.global_call,
    "member_dot_arg": _Walk.member_call,
}
_LEAST_CHILDREN = {
    "expr": 3,
    "list_lit": 0,
    "map_lit": 0,
    **dict.fromkeys(("conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary"), 2),
}
"""Kind of a node → the minimum number of children of a node that is an operation of this kind.

The grammar wraps each expression in one node per level of precedence. A node with fewer children is only such a
wrapper, and no operation.
"""
