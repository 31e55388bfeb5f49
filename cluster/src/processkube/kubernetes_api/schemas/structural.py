"""Checks that a schema is structural. In a structural schema, every field is declared with its type outside of `allOf`,
`anyOf`, `oneOf` and `not` (the junctors).

Only a structural schema defines how objects are pruned, defaulted and merged. The module follows
k8s.io/apiextensions-apiserver/pkg/apiserver/schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from processkube.kubernetes_api.objects.errors import Cause, forbidden_value, invalid_value, required_value
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.schemas.schemas import (
    EMBEDDED,
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE,
    RULES,
    item_schema,
)
from processkube.kubernetes_api.schemas.validation import PatternInvalid, compiled_pattern

JUNCTORS = ("allOf", "anyOf", "oneOf")

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_NO_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_OUTSIDE_ONLY = {
    "type": "empty",
    "default": "undefined",
    "title": "empty",
    "description": "empty",
    "nullable": "false",
    "additionalProperties": "undefined",
    PRESERVE: "false",
    EMBEDDED: "false",
    INT_OR_STRING: "false",
    LIST_KEYS: "empty",
    LIST_TYPE: "undefined",
    MAP_TYPE: "undefined",
    RULES: "empty",
}
"""Members of a schema that have an effect only outside of junctors → the value that they must have inside of junctors:
"empty", "undefined" or "false".
"""


def structural_faults(schema: Object, path: str) -> list[Cause]:
    """Return the faults that keep a schema from being structural, with their paths."""
    return sorted([*_invariants(schema, path, "root"), *_incomplete(schema, schema, path, path)], key=str)


def _invariants(schema: Object, path: str, level: str) -> Iterator[Cause]:
    kind, items, extra = schema.get("type"), item_schema(schema), schema.get("additionalProperties")
    if kind == "array" and items is None:
        yield required_value(f"{path}.items", "must be specified")
    if items is not None:
        yield from _invariants(items, f"{path}.items", "item")
    for name, inner in schema.get("properties", {}).items():
        if not (name == "metadata" and level == "root"):
            yield from _invariants(inner, f"{path}.properties[{name}]", "field")
    if extra is not None and level == "root":
        yield forbidden_value(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(extra, dict):
        yield from _invariants(extra, f"{path}.additionalProperties", "field")
    if schema.get(INT_OR_STRING):
        for name in (PRESERVE, EMBEDDED):
            if schema.get(name):
                yield invalid_value(f"{path}.{name}", True, f"must be false if {INT_OR_STRING} is true")
    yield from _junctor_faults(schema, path)
    yield from _type_faults(schema, path, level)
    yield from _embedded_faults(schema, path)
    if level == "root" or schema.get(EMBEDDED):
        yield from _identity_faults(schema, path, root=level == "root")


def _type_faults(schema: Object, path: str, level: str) -> Iterator[Cause]:
    kind = schema.get("type")
    if schema.get(EMBEDDED) and kind != "object":
        detail = f"must be object if {EMBEDDED} is true"
        yield invalid_value(f"{path}.type", kind, detail) if kind else required_value(f"{path}.type", detail)
    elif not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        yield required_value(f"{path}.type", _NO_TYPE[level])
    if level == "root" and kind and kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object at the root")


def _embedded_faults(schema: Object, path: str) -> Iterator[Cause]:
    if not schema.get(EMBEDDED):
        return
    if schema.get("additionalProperties") is not None:
        yield forbidden_value(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set")
    if not schema.get(PRESERVE) and not schema.get("properties"):
        yield required_value(f"{path}.properties", f"must not be empty if {EMBEDDED} is true without {PRESERVE}")


def _identity_faults(schema: Object, path: str, *, root: bool) -> Iterator[Cause]:
    """Yield the faults of apiVersion, kind and metadata. A schema may mention them with their types. At the root, it
    must not restrict metadata except for name and generateName.
    """
    properties = schema.get("properties", {})
    for name in ("kind", "apiVersion"):
        if name in properties and properties[name].get("type") != "string":
            yield invalid_value(f"{path}.properties[{name}].type", properties[name].get("type", ""), "must be string")
    if "metadata" not in properties:
        return
    metadata, at = properties["metadata"], f"{path}.properties[metadata]"
    if metadata.get("type") != "object":
        yield invalid_value(f"{at}.type", metadata.get("type", ""), "must be object")
    beyond = [name for name, value in metadata.items() if name not in {"type", "default", "properties"} and not is_unsaid(name, value)]
    if root and (beyond or not set(metadata.get("properties", {})) <= {"name", "generateName"}):
        yield forbidden_value(at, "must not specify anything other than name and generateName, but metadata is implicitly specified")


def is_unsaid(name: str, value: Any) -> bool:
    """Return whether a schema's member has no effect, because its value is null, empty or false.

    `additionalProperties` has an effect even if it is false or {}.
    """
    return value is None or value in ("", []) or (name != "additionalProperties" and (value is False or value == {}))


def _junctor_faults(schema: Object, path: str) -> Iterator[Cause]:
    """Yield the faults of a schema's junctors, and of its pattern.

    The schema of an int-or-string may list its two types in `anyOf`, either directly or in the first element of
    `allOf`.
    """
    for junctor in JUNCTORS:
        for index, part in enumerate(schema.get(junctor, ())):
            if junctor == "anyOf" and schema["anyOf"] == _INT_OR_STRING:
                continue
            skip = junctor == "allOf" and index == 0 and part.get("anyOf") == _INT_OR_STRING
            yield from _nested_faults({**part, "anyOf": []} if skip else part, f"{path}.{junctor}[{index}]")
    if isinstance(schema.get("not"), dict):
        yield from _nested_faults(schema["not"], f"{path}.not")
    if (fault := _pattern_fault(schema.get("pattern"))) is not None:
        yield invalid_value(
            f"{path}.pattern", schema["pattern"], f"must be a valid regular expression, but isn't: error parsing regexp: {fault}"
        )


def _nested_faults(part: Object, path: str) -> Iterator[Cause]:
    yield from _junctor_faults(part, path)
    if (items := item_schema(part)) is not None:
        yield from _nested_faults(items, f"{path}.items")
    for name, inner in part.get("properties", {}).items():
        if name == "metadata":
            yield forbidden_value(f"{path}.properties[metadata]", "must not be specified in a nested context")
        yield from _nested_faults(inner, f"{path}.properties[{name}]")
    for name, wanted in _OUTSIDE_ONLY.items():
        if part.get(name) not in (None, False, "", []):
            yield forbidden_value(f"{path}.{name}", f"must be {wanted} to be structural")


def _incomplete(part: Object, schema: Object, at: str, said_at: str) -> Iterator[Cause]:
    """Yield a fault for each field that a junctor of `part` declares and `schema` does not. `at` is the path of
    `schema`, and `said_at` the path of `part`.
    """
    for said, inner in _junctors(part, said_at):
        yield from _incomplete_part(inner, schema, at, said)


def _incomplete_part(part: Object, schema: Object | None, at: str, said_at: str) -> Iterator[Cause]:
    if schema is None:
        yield required_value(at, f"because it is defined in {said_at}")
        return
    yield from _incomplete(part, schema, at, said_at)
    if (items := item_schema(part)) is not None:
        yield from _incomplete_part(items, item_schema(schema), f"{at}.items", f"{said_at}.items")
    for name, member in part.get("properties", {}).items():
        step = f"properties[{name}]"
        yield from _incomplete_part(member, schema.get("properties", {}).get(name), f"{at}.{step}", f"{said_at}.{step}")


def _junctors(part: Object, path: str) -> Iterator[tuple[str, Object]]:
    if isinstance(part.get("not"), dict):
        yield f"{path}.not", part["not"]
    for junctor in JUNCTORS:
        for index, inner in enumerate(part.get(junctor, ())):
            yield f"{path}.{junctor}[{index}]", inner


def _pattern_fault(pattern: Any) -> str | None:
    try:
        compiled_pattern(pattern or "")
    except PatternInvalid as error:
        return str(error)
    return None
