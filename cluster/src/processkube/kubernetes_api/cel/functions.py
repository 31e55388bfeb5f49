"""The functions that Kubernetes adds to CEL, written for cel-python: for strings, lists, regular expressions,
quantities and URLs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from celpy import celtypes

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d+))?$")


def parse_quantity(text: str) -> Decimal:
    """Return the number that a quantity stands for: `500m` is 0.5, `1Gi` is 1073741824. Raises ValueError."""
    found = _QUANTITY.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity; write a number with an optional suffix such as m, k or Gi")
    number = Decimal(found[1])
    if found[3]:
        return number * Decimal(10) ** int(found[3])
    return number * _SUFFIXES[found[2] or ""]


def _quantity(text: Any) -> celtypes.DoubleType:
    return celtypes.DoubleType(float(parse_quantity(str(text))))


def _is_quantity(text: Any) -> celtypes.BoolType:
    return celtypes.BoolType(_QUANTITY.match(str(text)) is not None)


def _is_url(text: Any) -> celtypes.BoolType:
    parts = urlsplit(str(text))
    return celtypes.BoolType(bool(parts.scheme and (parts.netloc or parts.path)))


def _text(function: Callable[..., str]) -> Callable[..., Any]:
    return lambda *arguments: celtypes.StringType(function(*arguments))


def _index_of(where: Any, what: Any, start: int = 0) -> celtypes.IntType:
    if isinstance(where, str):
        return celtypes.IntType(where.find(what, start))
    return celtypes.IntType(next((index for index, item in enumerate(where) if item == what), -1))


def _last_index_of(where: Any, what: Any) -> celtypes.IntType:
    if isinstance(where, str):
        return celtypes.IntType(where.rfind(what))
    return celtypes.IntType(next((len(where) - 1 - index for index, item in enumerate(where[::-1]) if item == what), -1))


def _split(text: str, separator: str, limit: int = -1) -> celtypes.ListType:
    if limit == 0:
        return celtypes.ListType([])
    parts = list(text) if separator == "" else text.split(separator, limit - 1 if limit > 0 else -1)
    return celtypes.ListType([celtypes.StringType(part) for part in parts])


def _find_all(text: str, pattern: str) -> celtypes.ListType:
    return celtypes.ListType([celtypes.StringType(found.group(0)) for found in re.finditer(pattern, text)])


def _find(text: str, pattern: str) -> celtypes.StringType:
    found = re.search(pattern, text)
    return celtypes.StringType(found.group(0) if found else "")


def _is_sorted(items: Any) -> celtypes.BoolType:
    return celtypes.BoolType(all(left <= right for left, right in pairwise(items)))


def _total(items: Any) -> Any:
    total: Any = items[0] if items else celtypes.IntType(0)
    for item in items[1:]:
        total = total + item
    return total


def _compare(left: Any, right: Any) -> celtypes.IntType:
    return celtypes.IntType((left > right) - (left < right))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "lowerAscii": _text(str.lower),
    "upperAscii": _text(str.upper),
    "trim": _text(str.strip),
    "replace": _text(lambda text, old, new, count=-1: text.replace(old, new, count)),
    "substring": _text(lambda text, start, end=None: text[start:end]),
    "charAt": _text(lambda text, index: text[index : index + 1]),
    "join": _text(lambda items, separator="": separator.join(items)),
    "split": _split,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "find": _find,
    "findAll": _find_all,
    "isSorted": _is_sorted,
    "sum": _total,
    "min": lambda items: min(items),
    "max": lambda items: max(items),
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "isLessThan": lambda left, right: celtypes.BoolType(left < right),
    "isGreaterThan": lambda left, right: celtypes.BoolType(left > right),
    "compareTo": _compare,
    "isURL": _is_url,
}
