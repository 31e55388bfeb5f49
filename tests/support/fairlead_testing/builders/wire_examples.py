"""Makes an example of a wire type from its fields, and finds where a JSON document differs from its type."""

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

EXAMPLE_TIME = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


def example(kind: Any, name: str = "") -> Any:
    """Return a value of the type, always the same. `name` is the field that gets the value; the field `pool` gets
    `default/chat`.
    """
    if kind is str:
        return "default/chat" if name == "pool" else name
    if kind in _PLAIN:
        return _PLAIN[kind]
    if get_origin(kind) in (Union, UnionType):
        return example(next(one for one in get_args(kind) if one is not NoneType), name)
    if get_origin(kind) in (list, tuple):
        return [example(get_args(kind)[0], name)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if is_dataclass(get_origin(kind) or kind):
        made = get_origin(kind) or kind
        return made(**{field: example(of, field) for field, of in _fields(kind).items()})
    return {}


def differences(document: Any, kind: Any, where: str = "") -> list[str]:
    """Return the paths of fields in the document that are missing, unknown or of another kind than in the type.

    A field with a default counts as missing too if the document does not have it.
    """
    if kind is Any:
        return []
    if get_origin(kind) in (Union, UnionType):
        if document is None and NoneType in get_args(kind):
            return []
        return min((differences(document, one, where) for one in get_args(kind) if one is not NoneType), key=len)
    if get_origin(kind) in (list, tuple):
        if not isinstance(document, list):
            return [f"{where} is not a list"]
        return [found for index, item in enumerate(document) for found in differences(item, get_args(kind)[0], f"{where}[{index}]")]
    if get_origin(kind) is dict or kind is dict:
        return [] if isinstance(document, dict) else [f"{where} is not an object"]
    if is_dataclass(get_origin(kind) or kind):
        if not isinstance(document, dict):
            return [f"{where} is not an object"]
        known = _fields(kind)
        found = [f"{where}.{name} is missing" for name in known.keys() - document.keys()]
        found += [f"{where}.{name} is unknown" for name in document.keys() - known.keys()]
        return found + [
            one for name in known.keys() & document.keys() for one in differences(document[name], known[name], f"{where}.{name}")
        ]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [] if document in {one.value for one in kind} else [f"{where} is {document!r}, none of {kind.__name__}"]
    return (
        []
        if isinstance(document, _JSON[kind]) and (kind is bool or not isinstance(document, bool))
        else [f"{where} is {document!r}, no {kind}"]
    )


_PLAIN: dict[Any, Any] = {int: 1, float: 0.5, bool: True, datetime: EXAMPLE_TIME, Any: None}
_JSON: dict[Any, Any] = {int: int, float: (int, float), bool: bool, str: str, datetime: str}


def _fields(kind: Any) -> dict[str, Any]:
    """Return the type of each field. Parameters of a generic type such as Page[SloVersion] are replaced by their
    types.
    """
    made = get_origin(kind) or kind
    filled = dict(zip(getattr(made, "__parameters__", ()), get_args(kind), strict=False))
    hints = get_type_hints(made)
    return {field.name: _filled(hints[field.name], filled) for field in fields(made)}


def _filled(kind: Any, filled: dict[Any, Any]) -> Any:
    if kind in filled:
        return filled[kind]
    parts = getattr(kind, "__parameters__", ())
    return kind[tuple(filled.get(part, part) for part in parts)] if parts else kind
