"""Applies structural schemas to objects: removes unknown members and fills in defaults."""

from __future__ import annotations

from typing import Any

from processkube.kubernetes_api.objects.objects import Object, copy_of

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
RULES = "x-kubernetes-validations"
TYPE_FIELDS = ("apiVersion", "kind", "metadata")


def child_schema(schema: Object, name: str) -> Object | None:
    """Return the schema of one member of an object; None if the object's schema does not specify the member."""
    found = schema.get("properties", {}).get(name)
    if found is None:
        found = schema.get("additionalProperties")
    return found if isinstance(found, dict) else None


def item_schema(schema: Object | None) -> Object | None:
    found = (schema or {}).get("items")
    return found if isinstance(found, dict) else None


def list_keys(schema: Object | None) -> tuple[str, ...]:
    """Return the names of the keys that identify a list's items; empty if the list is replaced as a whole."""
    if schema and schema.get(LIST_TYPE) == "map":
        return tuple(schema.get(LIST_KEYS, ()))
    return ()


def key_of(item: Any, keys: tuple[str, ...], schema: Object | None) -> tuple[Any, ...]:
    """Return the values of an item's keys.

    A missing key has its default; for example, a port without `protocol` has TCP.
    """
    properties = (item_schema(schema) or {}).get("properties", {})
    return tuple(
        item.get(key, properties.get(key, {}).get("default", "TCP" if key == "protocol" else None)) if isinstance(item, dict) else None
        for key in keys
    )


def prune(value: Any, schema: Object, *, path: str = "", root: bool = False) -> list[str]:
    """Remove unknown members in place. Return their paths.

    If `root`, apiVersion, kind and metadata are kept, even if the schema of a custom resource does not mention them.
    """
    unknown: list[str] = []
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        extra = schema.get("additionalProperties")
        keep = bool(schema.get(PRESERVE)) or extra is True or schema.get(INT_OR_STRING)
        typed = root or schema.get(EMBEDDED)
        for name in list(value):
            inner = f"{path}.{name}" if path else name
            if name in properties:
                unknown += prune(value[name], properties[name], path=inner)
            elif typed and name in TYPE_FIELDS:
                continue
            elif isinstance(extra, dict):
                unknown += prune(value[name], extra, path=inner)
            elif not keep:
                del value[name]
                unknown.append(inner)
    elif isinstance(value, list) and (items := item_schema(schema)) is not None:
        for index, item in enumerate(value):
            unknown += prune(item, items, path=f"{path}[{index}]")
    return unknown


def apply_defaults(value: Any, schema: Object) -> None:
    """Fill in defaults in place. If a field that is not nullable is null, the null is replaced by the default, or
    removed if there is no default.
    """
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name, inner in properties.items():
            if name in value and value[name] is None and not inner.get("nullable", False):
                del value[name]
            if name not in value and "default" in inner:
                value[name] = copy_of(inner["default"])
            if name in value:
                apply_defaults(value[name], inner)
        if isinstance(extra := schema.get("additionalProperties"), dict):
            for name in value:
                if name not in properties:
                    apply_defaults(value[name], extra)
    elif isinstance(value, list) and (items := item_schema(schema)) is not None:
        for item in value:
            apply_defaults(item, items)
