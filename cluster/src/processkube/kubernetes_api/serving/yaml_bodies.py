"""Reads YAML as the real server does: JSON is read as JSON, and other text as sigs.k8s.io/yaml converts it to JSON.

Plain scalars are read as by `resolve` of go-yaml 2, which kubectl and the server use. These are mostly the rules of
YAML 1.1.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from processkube.kubernetes_api.objects.objects import DEEPEST, decode, with_64_bit_integers
from processkube.yaml_documents import MOST_DIGITS, BoundedLoader, complaint

_TAG = "tag:yaml.org,2002:"
_TRUE, _FALSE = ("y", "yes", "true", "on"), ("n", "no", "false", "off")
_BOOLEANS = {form: word in _TRUE for word in (*_TRUE, *_FALSE) for form in (word, word.capitalize(), word.upper())}
_KINDS = {**dict.fromkeys(_BOOLEANS, "bool"), **dict.fromkeys(("", "~", "null", "Null", "NULL"), "null"), "<<": "merge"}
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_INTEGER = re.compile(r"([-+]?)(0[bB][01]+|0[oO]?[0-7]+|0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FRACTION = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+)?")
_WHOLE_BELOW = 1e21
"""Go writes floats below this bound without an exponent. A whole float below it therefore looks like an integer in
JSON, and is read as an integer.
"""


class _Loader(BoundedLoader):
    """A loader that differs from PyYAML's own: it reads `1e-05` and `0o7` as numbers, `y` as true, and dates and `1:30`
    as text.
    """

    deepest = DEEPEST

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return _TAG + (_KINDS.get(value) or ("float" if _number(value) is not None else "str"))
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]


def _number(text: str) -> int | float | None:
    """Return the number that a plain scalar stands for; None if it is not a number."""
    if _NOT_FINITE.fullmatch(text):
        return float(text.lower().replace(".", ""))
    plain = text.replace("_", "")
    if text[:1] in "+-0123456789" or _FRACTION.fullmatch(text):
        if (found := _INTEGER.fullmatch(plain)) and len(plain) <= MOST_DIGITS:
            digits = found[2]
            value = int(found[1] + digits, 8 if digits[:1] == "0" and digits.isdigit() else 0)
            if -(2**63) <= value < 2**64:
                return value
        if _FLOAT.fullmatch(plain) and math.isfinite(number := float(plain)):
            return number
    return None


def _construct_number(_loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
    if (found := _number(node.value)) is None:
        raise yaml.constructor.ConstructorError(problem=f"cannot decode {node.value!r} as a number", problem_mark=node.start_mark)
    return found


_Loader.add_constructor(f"{_TAG}int", _construct_number)
_Loader.add_constructor(f"{_TAG}float", _construct_number)
_Loader.add_constructor(f"{_TAG}bool", lambda _loader, node: _BOOLEANS.get(node.value, node.value))


def read_yaml(body: bytes) -> Any:
    """Return the JSON value of a body. Raises ValueError if the body is malformed."""
    try:
        return decode(body)
    except ValueError:
        pass  # it is YAML proper
    try:
        return with_64_bit_integers(_as_json(yaml.load(body, Loader=_Loader)))  # noqa: S506 - a kind of SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(complaint(error)) from error


def _as_json(value: Any, level: int = 1) -> Any:
    match value:
        case dict() | list() if level > DEEPEST:
            raise ValueError("exceeded max depth")
        case dict():
            return {_key(name): _as_json(member, level + 1) for name, member in value.items()}
        case list():
            return [_as_json(member, level + 1) for member in value]
        case float():
            if not math.isfinite(value):
                raise ValueError(f"json: unsupported value: {value}")
            return int(value) if value.is_integer() and abs(value) < _WHOLE_BELOW else value
        case str():
            value.encode()  # refuses half of a surrogate pair, which no JSON has
            return value
        case None | bool() | int():
            return value
    raise ValueError(f"{type(value).__name__} has no form in JSON")


def _key(name: Any) -> str:
    match _as_json(name):
        case bool(found):
            return "true" if found else "false"
        case str() | int() | float() as found:
            return str(found)
    raise ValueError(f"unsupported map key: {name!r}")
