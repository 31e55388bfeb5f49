"""Checks of a definition's schema that apiextensions makes in addition to the check of its structure.

They concern forbidden keywords, lists that are sets or maps, and the form of rules, as in
ValidateCustomResourceDefinitionOpenAPISchema of k8s.io/apiextensions-apiserver. `definitions.rules` checks whether
rules compile, and their cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from processkube.kubernetes_api.objects.errors import Cause, forbidden_value, invalid_value, not_supported, required_value
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.schemas.schemas import EMBEDDED, LIST_KEYS, LIST_TYPE, MAP_TYPE, PRESERVE, RULES, item_schema
from processkube.kubernetes_api.schemas.structural import JUNCTORS, is_unsaid

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META = frozenset({"metadata", "kind", "apiVersion"})
_AT_ROOT_WITH_STATUS = frozenset(
    {"description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength"}
    | {"pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items", "properties", "externalDocs", "example"}
    | {PRESERVE, RULES}
)


def root_faults(schema: Object, path: str, *, has_status: bool) -> Iterator[Cause]:
    """Yield the faults for keywords that are forbidden only at the root of a schema."""
    others = sorted(name for name, value in schema.items() if name not in _AT_ROOT_WITH_STATUS and not is_unsaid(name, value))
    if has_status and others:
        detail = f"only {sorted(_AT_ROOT_WITH_STATUS)} fields are allowed at the root of the schema if the status subresource is enabled"
        yield invalid_value(path, schema, f"{detail}; found {', '.join(others)}")
    if schema.get("nullable"):
        yield forbidden_value(f"{path}.nullable", "nullable cannot be true at the root")


def schema_faults(schema: Object, path: str, *, root: bool = False, no_defaults: str = "", in_metadata: bool = False) -> Iterator[Cause]:
    """Yield the faults of a schema and of all schemas below it.

    `no_defaults`: "" if defaults are allowed in this schema. Otherwise defaults are forbidden, and `no_defaults` names
    the part of the schema around it that forbids them, for the message.
    """
    yield from _word_faults(schema, path, no_defaults=no_defaults, in_metadata=in_metadata)
    yield from _below(schema, path, root=root, no_defaults=no_defaults, in_metadata=in_metadata)
    yield from _kind_faults(schema, path)
    if schema.get(LIST_TYPE) == "map":
        yield from _list_map_faults(schema, path)
    for index, rule in enumerate(schema.get(RULES, ())):
        yield from _rule_faults(rule, f"{path}.{RULES}[{index}]")


def _below(schema: Object, path: str, *, root: bool, no_defaults: str, in_metadata: bool) -> Iterator[Cause]:
    extra, properties = schema.get("additionalProperties"), schema.get("properties", {})
    if extra is not None:
        if properties and extra is not True:
            yield forbidden_value(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        if isinstance(extra, dict):
            where = "inside additionalProperties applying to object metadata" if in_metadata else no_defaults
            yield from schema_faults(extra, f"{path}.additionalProperties", no_defaults=where, in_metadata=in_metadata)
    for name, inner in properties.items():
        of_meta = (root or bool(schema.get(EMBEDDED))) and name in _META
        where = f"in top-level {name}" if of_meta and root else no_defaults
        yield from schema_faults(inner, f"{path}.properties[{name}]", no_defaults=where, in_metadata=in_metadata or of_meta)
    for junctor in JUNCTORS:
        for index, inner in enumerate(schema.get(junctor, ())):
            yield from schema_faults(inner, f"{path}.{junctor}[{index}]", no_defaults=no_defaults, in_metadata=in_metadata)
    for name in ("not", "items"):
        if isinstance(inner := schema.get(name), dict):
            yield from schema_faults(inner, f"{path}.{name}", no_defaults=no_defaults, in_metadata=in_metadata)


def _word_faults(schema: Object, path: str, *, no_defaults: str, in_metadata: bool) -> Iterator[Cause]:
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("default") is not None and no_defaults:
        yield forbidden_value(f"{path}.default", f"must not be set {no_defaults}")
    for name in _UNSUPPORTED:
        if schema.get(name):
            yield forbidden_value(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        yield forbidden_value(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield forbidden_value(f"{path}.items", "items must be a schema object and not an array")
    if in_metadata and schema.get(EMBEDDED):
        yield forbidden_value(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        yield forbidden_value(f"{path}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
    if schema.get(PRESERVE) is False:
        yield invalid_value(f"{path}.{PRESERVE}", False, "must be true or undefined")


def _kind_faults(schema: Object, path: str) -> Iterator[Cause]:
    """Yield the faults of x-kubernetes-map-type and x-kubernetes-list-type."""
    for word, wanted, known in ((MAP_TYPE, "object", ("atomic", "granular")), (LIST_TYPE, "array", ("atomic", "set", "map"))):
        if (found := schema.get(word)) is None:
            continue
        kind, detail = schema.get("type"), f"must be {wanted} if {word} is specified"
        if kind != wanted:
            yield invalid_value(f"{path}.type", kind, detail) if kind else required_value(f"{path}.type", detail)
        if found not in known:
            yield not_supported(f"{path}.{word}", found, known)
    listed, items = schema.get(LIST_TYPE), item_schema(schema)
    if listed == "set" and schema.get("type") == "array" and items is not None:
        detail = f"must be atomic as item of a list with {LIST_TYPE}=set"
        if items.get("type") == "array" and items.get(LIST_TYPE, "atomic") != "atomic":
            yield invalid_value(f"{path}.items.{LIST_TYPE}", items[LIST_TYPE], detail)
        if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
            yield invalid_value(f"{path}.items.{MAP_TYPE}", items.get(MAP_TYPE), detail)
    if schema.get(LIST_KEYS) and listed != "map":
        detail = f"must be map if {LIST_KEYS} is non-empty"
        yield invalid_value(f"{path}.{LIST_TYPE}", listed, detail) if listed else required_value(f"{path}.{LIST_TYPE}", detail)
    if listed in {"set", "map"} and items is not None and items.get("nullable"):
        yield forbidden_value(f"{path}.items.nullable", f"cannot be nullable when {LIST_TYPE} is {listed}")


def _list_map_faults(schema: Object, path: str) -> Iterator[Cause]:
    keys, items = schema.get(LIST_KEYS, ()), item_schema(schema)
    if not keys:
        yield required_value(f"{path}.{LIST_KEYS}", f"must not be empty if {LIST_TYPE} is map")
    if items is None:
        yield required_value(f"{path}.items", f"must have a schema if {LIST_TYPE} is map")
        return
    if items.get("type") != "object":
        yield invalid_value(f"{path}.items.type", items.get("type", ""), f"must be object if parent array's {LIST_TYPE} is map")
        return
    properties = items.get("properties", {})
    for index, key in enumerate(keys):
        at = f"{path}.items.properties[{key}]"
        if key in list(keys)[:index]:
            yield invalid_value(f"{path}.{LIST_KEYS}", list(keys), "must not contain duplicate entries")
        if (inner := properties.get(key)) is None:
            yield invalid_value(f"{path}.{LIST_KEYS}", list(keys), "entries must all be names of item properties")
            continue
        if inner.get("type") in {"array", "object"}:
            yield invalid_value(f"{at}.type", inner["type"], f"must be a scalar type if parent array's {LIST_TYPE} is map")
        if key not in items.get("required", ()) and inner.get("default") is None:
            yield required_value(f"{at}.default", f"this property is in {LIST_KEYS}, so it must have a default or be a required property")
        if inner.get("nullable"):
            yield forbidden_value(f"{at}.nullable", f"this property is in {LIST_KEYS}, so it cannot be nullable")


def _rule_faults(rule: Object, path: str) -> Iterator[Cause]:
    text, message = _text(rule, "rule"), _text(rule, "message")
    if not text.strip():
        yield required_value(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid_value(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid_value(f"{path}.message", message, "must not contain line breaks")
    elif "\n" in text.strip() and not message.strip():
        yield required_value(f"{path}.message", "message must be specified if rule contains line breaks")
    expression, field_path = _text(rule, "messageExpression"), _text(rule, "fieldPath")
    if expression and not expression.strip():
        yield required_value(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    if (reason := rule.get("reason")) is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)
    if field_path and not field_path.strip():
        yield invalid_value(f"{path}.fieldPath", field_path, "must be non-empty if specified")
    if "\n" in field_path:
        yield invalid_value(f"{path}.fieldPath", field_path, "must not contain line breaks")


def _text(rule: Object, name: str) -> str:
    value: Any = rule.get(name)
    return value if isinstance(value, str) else ""
