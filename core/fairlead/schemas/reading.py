"""Reads a document into a class whose fields were made by `shapes`, and checks it by the shapes and rules of the CRD's
schema.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, replace
from math import isfinite
from typing import Any, TypeVar

from fairlead.durations import parse_duration
from fairlead.errors import InvalidInput
from fairlead.schemas.shapes import Shape, document_name, shape_of

Document = TypeVar("Document")


def read(
    of: type[Document],
    document: object,
    path: str,
    *,
    named: Callable[[Field[Any]], str] = document_name,
    owner: str | None = None,
) -> Document:
    """Build `of` from a document found at `path`, with defaults for fields that are left out or null.

    `named` maps a field to its name in the document. `owner` names the object in error messages if the path does not.
    Raises InvalidInput, which names the exact field, for unknown, missing, mistyped and out-of-bounds fields, and for
    broken rules. Transition rules, which compare with the previous document, are only checked by Kubernetes.
    """
    if not isinstance(document, Mapping):
        raise InvalidInput(path, document, "write an object with fields")
    known = {named(item): item for item in fields(of)}  # type: ignore[arg-type]  # every Document is a dataclass of shaped fields
    for name in document:
        if name not in known:
            raise InvalidInput(f"{path}.{name}", document[name], f"remove it; the fields of {owner or path} are {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, item in known.items():
        shape = shape_of(item)
        if document.get(name) is not None:
            values[item.name] = _read_value(shape, document[name], f"{path}.{name}")
        elif shape.default is MISSING:
            sentence = shape.description.rstrip(".")
            raise InvalidInput(f"{path}.{name}", None, f"it is required; write the {sentence[0].lower()}{sentence[1:]}")
    built = of(**values)
    for rule in getattr(of, "RULES", ()):
        if rule.holds is not None and not rule.holds(built):
            field, value = rule.fault(built) if rule.fault is not None else (rule.field, document.get(rule.field))
            raise InvalidInput(f"{path}.{field}", value, rule.message)
    return built


def _read_value(shape: Shape, value: object, path: str) -> Any:
    if shape.kind == "object" and shape.of is not None:
        return read(shape.of, value, path)
    if shape.kind == "list" and shape.of is not None:
        return _read_list(shape, shape.of, value, path)
    if shape.kind == "texts":
        return tuple(_read_text(shape, item, f"{path}[{index}]") for index, item in enumerate(_items(shape, value, path)))
    if shape.kind == "labels":
        return _read_labels(shape, value, path)
    if shape.kind in {"free", "verbatim"}:
        if not isinstance(value, Mapping):
            raise InvalidInput(path, value, f"write {shape.wanted}")
        _check(shape.schema or {}, value, path)
        return dict(value)
    if shape.kind == "boolean":
        if not isinstance(value, bool):
            raise InvalidInput(path, value, f"write {shape.wanted}")
        return value
    if shape.kind in {"integer", "number", "duration"}:
        return _read_number(shape, value, path)
    return _read_text(shape, value, path)


def _read_list(shape: Shape, of: type[Any], value: object, path: str) -> tuple[Any, ...]:
    items = tuple(read(of, item, f"{path}[{index}]") for index, item in enumerate(_items(shape, value, path)))
    keys = [getattr(item, shape.list_key) for item in items]
    if len(set(keys)) < len(keys):
        raise InvalidInput(path, [str(key) for key in keys], f"give every item another {shape.list_key}")
    return items


def _read_labels(shape: Shape, value: object, path: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput(path, value, f"write {shape.wanted}")
    if len(value) > shape.max_items:
        raise InvalidInput(path, value, f"write at most {shape.max_items} of them")
    each = replace(shape, kind="string")
    return {name: _read_text(each, one, f"{path}.{name}") for name, one in value.items()}


def _items(shape: Shape, value: object, path: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not shape.min_items <= len(value) <= shape.max_items:
        raise InvalidInput(path, value, f"write a list of {shape.min_items} to {shape.max_items} items")
    return value


def _read_number(shape: Shape, value: object, path: str) -> float | int:
    amount: float | int
    if shape.kind == "duration":
        amount = parse_duration(value, path)
    elif isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InvalidInput(path, value, f"write {shape.wanted}")
    elif shape.kind == "integer":
        if value != int(value):
            raise InvalidInput(path, value, f"write {shape.wanted}")
        amount = int(value)
    else:
        amount = float(value)
    if (shape.minimum is not None and amount < shape.minimum) or (shape.maximum is not None and amount > shape.maximum):
        raise InvalidInput(path, value, f"write {shape.wanted}")
    return amount


def _read_text(shape: Shape, value: object, path: str) -> Any:
    if not isinstance(value, str) or (shape.enum and value not in shape.enum):
        raise InvalidInput(path, value, f"write {shape.wanted}")
    if shape.max_length is not None and len(value) > shape.max_length:
        raise InvalidInput(path, value, f"write at most {shape.max_length} characters")
    if shape.pattern and re.search(_as_in_kubernetes(shape.pattern), value) is None:
        raise InvalidInput(path, value, f"write text that matches {shape.pattern}")
    try:
        return shape.convert(value) if shape.convert else value
    except ValueError as error:
        raise InvalidInput(path, value, str(error)) from error


def _as_in_kubernetes(pattern: str) -> str:
    """Return the pattern, changed so that `$` has the same meaning as in Kubernetes; Python's `$` also matches before a
    final newline.
    """
    return pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern


_TYPES = {"object": Mapping, "array": list, "string": str}
_WANTED = {"object": "an object", "array": "a list", "string": "text (in quotes, if it looks like a number)"}


def _check(schema: Mapping[str, Any], value: object, path: str) -> None:
    """Check a value that is kept verbatim against its schema.

    The schema may use only these keywords, and all of them are checked: type, required, properties,
    additionalProperties, maxProperties, items, minItems and minLength.
    """
    kind = schema.get("type")
    if kind is not None and not isinstance(value, _TYPES[kind]):
        raise InvalidInput(path, value, f"write {_WANTED[kind]}")
    if isinstance(value, Mapping):
        for name in schema.get("required", ()):
            if value.get(name) is None:
                raise InvalidInput(f"{path}.{name}", None, "it is required; write it")
        _check_members(schema, value, path)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            raise InvalidInput(path, value, f"write a list of at least {schema['minItems']} items")
        for index, item in enumerate(value):
            _check(schema.get("items", {}), item, f"{path}[{index}]")
    elif isinstance(value, str) and len(value) < schema.get("minLength", 0):
        raise InvalidInput(path, value, f"write at least {schema['minLength']} characters")


def _check_members(schema: Mapping[str, Any], value: Mapping[str, Any], path: str) -> None:
    if len(value) > schema.get("maxProperties", len(value)):
        raise InvalidInput(path, f"{len(value)} members", f"write at most {schema['maxProperties']}")
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, member in value.items():
        if member is not None:
            _check(known.get(name, others), member, f"{path}.{name}")
