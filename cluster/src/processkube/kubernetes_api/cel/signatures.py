"""The types that may be combined in rules: in comparisons, in arithmetic, and in calls of the functions known here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from celpy.evaluation import base_functions

from processkube.kubernetes_api.cel import types
from processkube.kubernetes_api.cel.functions import FUNCTIONS
from processkube.kubernetes_api.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, UNKNOWN, CelType

UNSUPPORTED = (
    frozenset(
        {"bind", "cidr", "isCIDR", "ip", "isIP", "containsIP", "containsCIDR", "prefixLength", "masked", "family", "isCanonical", "named"}
        | {"validate", "semver", "isSemver", "authorizer", "check", "reverse", "format", "quote", "sets", "intersects", "equivalent"}
        | {"optional", "of", "none", "ofNonZeroValue", "orValue", "or", "value", "hasValue", "optMap", "optFlatMap", "slice", "flatten"}
        | {"transformList", "transformMap", "transformMapEntry", "existsOne", "url", "getHost", "getHostname", "getPort", "getScheme"}
        | {"getEscapedPath", "getQuery", "sign", "asInteger", "isInteger", "asApproximateFloat", "add", "sub", "base64", "encode", "decode"}
    )
    - FUNCTIONS.keys()
)
"""Functions of the real server that this server cannot evaluate."""

UNSUPPORTED_NAMESPACES = frozenset({"format", "optional", "cel", "sets", "math", "strings", "base64", "ip", "authorizer"})
"""Prefixes of functions that this server cannot evaluate, such as `sets` in `sets.contains(…)`."""

KNOWN = base_functions.keys() | FUNCTIONS.keys()

TYPE_NAMES = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "list", "map", "null_type", "string", "timestamp", "type", "uint"}
    | {"google", "optional_type"}
)

_NULLABLE = frozenset({"object", "duration", "timestamp"})
_NUMBERS = frozenset({"int", "uint", "double"})
_ORDERED = frozenset({"bool", "bytes", "duration", "string", "timestamp"}) | _NUMBERS
_SUMS: Mapping[tuple[str, str, str], CelType] = {
    ("+", "duration", "duration"): DURATION,
    ("+", "timestamp", "duration"): TIMESTAMP,
    ("+", "duration", "timestamp"): TIMESTAMP,
    ("-", "duration", "duration"): DURATION,
    ("-", "timestamp", "duration"): TIMESTAMP,
    ("-", "timestamp", "timestamp"): DURATION,
    ("+", "string", "string"): STRING,
    ("+", "bytes", "bytes"): BYTES,
}
_TEXTS = types.list_of(STRING)


def is_any(kind: CelType) -> bool:
    """Return whether the type matches every type. This is so if the type is known only during evaluation, or if this
    server cannot determine it.
    """
    return kind.kind in {"dyn", "unknown"}


def same(left: CelType, right: CelType) -> bool:
    """Return whether two types match, so that their values may be compared for equality or used in place of each
    other.
    """
    if is_any(left) or is_any(right):
        return True
    if left.kind != right.kind:
        return "null" in {left.kind, right.kind} and bool({left.kind, right.kind} & _NULLABLE)
    if left.kind in {"list", "map"}:
        return same(left.element or UNKNOWN, right.element or UNKNOWN)
    return True


def ordered(left: CelType, right: CelType) -> bool:
    """Return whether `<`, `<=`, `>` and `>=` accept values of these two types.

    These operators are the only ones that accept numbers of two different kinds.
    """
    if is_any(left) or is_any(right):
        return True
    return (left.kind == right.kind and left.kind in _ORDERED) or {left.kind, right.kind} <= _NUMBERS


def arithmetic(sign: str, left: CelType, right: CelType) -> CelType | None:
    """Return the type of the result of the operator `sign` on two types; None if the types do not have this
    operation.
    """
    if is_any(left) or is_any(right):
        known = right if is_any(left) else left
        return known if known.kind in {"int", "uint", "double", "string", "bytes", "list"} else UNKNOWN
    if left.kind == right.kind and left.kind in _NUMBERS and not (sign == "%" and left.kind == "double"):
        return CelType(kind=left.kind)
    if sign == "+" and left.kind == right.kind == "list" and same(left, right):
        return types.list_of(left.element or UNKNOWN)
    return _SUMS.get((sign, left.kind, right.kind))


_TEXT_METHODS: Mapping[str, tuple[CelType, tuple[frozenset[int], tuple[str, ...]]]] = {
    "startsWith": (BOOL, (frozenset({1}), ("string",))),
    "endsWith": (BOOL, (frozenset({1}), ("string",))),
    "contains": (BOOL, (frozenset({1}), ("string",))),
    "matches": (BOOL, (frozenset({1}), ("string",))),
    "lowerAscii": (STRING, (frozenset({0}), ())),
    "upperAscii": (STRING, (frozenset({0}), ())),
    "trim": (STRING, (frozenset({0}), ())),
    "charAt": (STRING, (frozenset({1}), ("int",))),
    "substring": (STRING, (frozenset({1, 2}), ("int", "int"))),
    "replace": (STRING, (frozenset({2, 3}), ("string", "string", "int"))),
    "split": (_TEXTS, (frozenset({1, 2}), ("string", "int"))),
    "find": (STRING, (frozenset({1}), ("string",))),
    "findAll": (_TEXTS, (frozenset({1, 2}), ("string", "int"))),
}
_CONVERSIONS: Mapping[str, CelType] = {
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "bool": BOOL,
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "isURL": BOOL,
    "isQuantity": BOOL,
    "type": CelType(kind="type"),
}
_TIME_PARTS = frozenset(
    {"getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes"}
    | {"getMonth", "getSeconds"}
)


def result_of(name: str, target: CelType | None, arguments: Sequence[CelType]) -> CelType | None:
    """Return the type of a call's result; `unknown` if the function has no signature here.

    Return None if the function does not accept operands of these types.
    """
    if name == "size":
        measured = arguments[0] if target is None and arguments else target
        return INT if measured is None or is_any(measured) or measured.kind in {"string", "bytes", "list", "map"} else None
    if target is None:
        if name == "matches":
            return BOOL if all(is_any(one) or one.kind == "string" for one in arguments) else None
        return _CONVERSIONS.get(name, UNKNOWN)
    if name in _TEXT_METHODS:
        found, (counts, kinds) = _TEXT_METHODS[name]
        fits = is_any(target) or target.kind == "string"
        fits = fits and len(arguments) in counts
        return found if fits and all(is_any(one) or one.kind == kind for one, kind in zip(arguments, kinds, strict=False)) else None
    if name in {"indexOf", "lastIndexOf"}:
        return INT if is_any(target) or target.kind in {"string", "list"} else None
    if name == "join":
        return STRING if is_any(target) or same(target, _TEXTS) else None
    if name == "isSorted":
        return BOOL if is_any(target) or target.kind == "list" else None
    if name in {"sum", "min", "max"} and target.kind == "list":
        return target.element or UNKNOWN
    if name in _TIME_PARTS:
        return INT if is_any(target) or target.kind in {"timestamp", "duration"} else None
    return UNKNOWN
