"""The maximum cost of a call in a rule, in CEL's cost units. A simple step costs 1, and reading a text costs 0.1 per
character.

The module follows github.com/google/cel-go/checker/cost.go and k8s.io/apiserver/pkg/cel/library/cost.go, without the
functions of the authorizer, of IPs and of CIDRs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ENDLESS = 2**64 - 1
"""A cost or a size without a bound."""

CREATE_LIST, CREATE_MAP, CREATE_STRUCT = 10, 30, 40

_TRAVERSAL = 0.1
_REGEX = 0.25
_FORMAT_REGEX_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class Size:
    """The minimum and the maximum length of a text, a list or a map; 1 for scalars."""

    least: int
    most: int

    def union(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN_SIZE = Size(0, ENDLESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A target or an argument of a call, as the cost formulas need it.

    `item_most`: the maximum length of the texts in a list; None if the list's items are not texts.
    """

    size: Size
    is_list: bool = False
    may_be_bytes: bool = False
    is_map: bool = False
    item_most: int | None = None
    literal: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """The cost of a call, without the costs of its target and its arguments. `size` is the size of the call's result;
    None if the formula does not determine it.
    """

    cost: int
    size: Size | None = None


def bounded(amount: int) -> int:
    return min(amount, ENDLESS)


def scaled(amount: int, factor: float) -> int:
    return ENDLESS if amount >= ENDLESS else bounded(math.ceil(amount * factor))


def equality(left: Size, right: Size) -> int:
    """Return the cost of comparing two values. It grows with the length of the shorter value, because the comparison
    ends there.
    """
    return scaled(min(left.most, right.most), _TRAVERSAL)


def concatenation(left: Operand, right: Operand) -> CallCost:
    size = Size(bounded(left.size.least + right.size.least), bounded(left.size.most + right.size.most))
    return CallCost(cost=1 if left.is_list else scaled(size.most, _TRAVERSAL), size=size)


def call_cost(function: str, target: Operand | None, arguments: Sequence[Operand]) -> CallCost:
    """Return the cost of a call by its function's formula. Functions without a formula cost 1, because their time
    hardly depends on their operands.
    """
    formula = _FORMULAS.get(function)
    found = formula(target, arguments) if formula is not None else None
    return found if found is not None else CallCost(cost=1)


_Formula = Callable[[Operand | None, Sequence[Operand]], CallCost | None]


def _per_item(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None:
        return None
    if not target.is_list:
        return CallCost(cost=scaled(target.size.most, _TRAVERSAL))
    item = 1 if target.item_most is None else bounded(1 + scaled(target.item_most, _TRAVERSAL))
    return CallCost(cost=bounded(target.size.most * item))


def _copy(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    return None if target is None else CallCost(cost=scaled(target.size.most, _TRAVERSAL), size=target.size)


def _parse(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    return CallCost(cost=scaled(arguments[0].size.most, _TRAVERSAL)) if arguments else None


def _to_text(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if not arguments or not arguments[0].may_be_bytes:
        return None
    most = arguments[0].size.most
    return CallCost(cost=max(1, scaled(most, _TRAVERSAL)), size=Size(arguments[0].size.least // 4, most))


def _prefix(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    return None if target is None else _parse(target, arguments)


def _matches(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None or not arguments:
        return None
    return CallCost(cost=bounded(scaled(bounded(target.size.most + 1), _TRAVERSAL) * scaled(arguments[0].size.most, _REGEX)))


def _find(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    found = _matches(target, arguments)
    return None if found is None or target is None else CallCost(cost=found.cost, size=Size(0, target.size.most))


def _contains(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None or not arguments:
        return None
    return CallCost(cost=bounded(scaled(target.size.most, _TRAVERSAL) * scaled(arguments[0].size.most, _TRAVERSAL)))


def _replace(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None or len(arguments) < 2:
        return None
    old, new = arguments[0].size, arguments[1].size
    if old.least == 0:
        most = bounded(bounded(target.size.most + 1) * new.most + target.size.most)
    elif new.most <= old.least:
        most = target.size.most
    else:
        most = bounded(math.ceil(target.size.most / old.least) * new.most)
    return CallCost(cost=scaled(target.size.most, 2 * _TRAVERSAL), size=Size(0, most))


def _split(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None:
        return None
    limit = arguments[1].literal if len(arguments) > 1 else None
    most = limit if isinstance(limit, int) else target.size.most
    return CallCost(cost=scaled(target.size.most, 2 * _TRAVERSAL), size=Size(0, most))


def _join(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if target is None:
        return None
    most = bounded(target.size.most * (ENDLESS if target.item_most is None else target.item_most))
    if arguments:
        most = bounded(most + bounded(arguments[0].size.most * max(0, target.size.most - 1)))
    return CallCost(cost=scaled(most, _TRAVERSAL), size=Size(0, most))


def _validate(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    if not arguments:
        return None
    return CallCost(cost=scaled(scaled(arguments[0].size.most, _TRAVERSAL), _FORMAT_REGEX_CHARACTERS * _REGEX))


def _in(target: Operand | None, arguments: Sequence[Operand]) -> CallCost | None:
    return CallCost(cost=arguments[1].size.most) if len(arguments) == 2 and not arguments[1].is_map else None


_FORMULAS: Mapping[str, _Formula] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _per_item),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _copy),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver", "url", "bytes"), _parse),
    **dict.fromkeys(("startsWith", "endsWith"), _prefix),
    **dict.fromkeys(("find", "findAll"), _find),
    "string": _to_text,
    "matches": _matches,
    "contains": _contains,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "validate": _validate,
    "@in": _in,
}
