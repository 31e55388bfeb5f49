"""Label selectors as they stand in a query of the Kubernetes API, such as `pool=chat,role in (prefill,decode),!x`."""

import re
from collections.abc import Mapping, Sequence

from fairlead.errors import InvalidInput
from fairlead.selectors import ExpressionSpec

_NAME = r"[A-Za-z0-9][-A-Za-z0-9_./]*"
_VALUE = r"[-A-Za-z0-9_.]*"
_EQUAL = re.compile(rf"\s*({_NAME})\s*(==|=|!=)\s*({_VALUE})\s*")
_SET = re.compile(rf"\s*({_NAME})\s+(in|notin)\s+\(\s*({_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_NAME})\s*")


def parsed(text: str) -> Sequence[ExpressionSpec]:
    """The requirements of a selector, all of which must hold; none for an empty one. Raises InvalidInput."""
    found, rest = [], text
    while rest.strip():
        requirement, rest = _first(rest, text)
        found.append(requirement)
        if rest and not rest.startswith(","):
            raise _unreadable(text)
        if rest and not rest[1:].strip():
            raise _unreadable(text)
        rest = rest[1:]
    return found


def holds(requirements: Sequence[ExpressionSpec], labels: Mapping[str, str]) -> bool:
    """Whether these labels meet all requirements."""
    return all(one.holds(labels) for one in requirements)


def _first(rest: str, text: str) -> tuple[ExpressionSpec, str]:
    if matched := _SET.match(rest):
        key, operator, values = matched.groups()
        several = tuple(value.strip() for value in values.split(","))
        return ExpressionSpec(key=key, operator="In" if operator == "in" else "NotIn", values=several), rest[matched.end() :]
    if matched := _EQUAL.match(rest):
        key, operator, value = matched.groups()
        return ExpressionSpec(key=key, operator="NotIn" if operator == "!=" else "In", values=(value,)), rest[matched.end() :]
    if matched := _EXISTS.match(rest):
        absent, key = matched.groups()
        return ExpressionSpec(key=key, operator="DoesNotExist" if absent else "Exists", values=()), rest[matched.end() :]
    raise _unreadable(text)


def _unreadable(text: str) -> InvalidInput:
    return InvalidInput("labelSelector", text[:200], "write requirements such as pool=chat,role in (prefill,decode)")
