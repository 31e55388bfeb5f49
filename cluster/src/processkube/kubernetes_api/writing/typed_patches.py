"""Refuses a body of server-side apply that does not fit its kind's schema, before the body is pruned.

The real server converts the body to a typed value with structured-merge-diff. This conversion finds two kinds of
faults, whatever `fieldValidation` says: members that the schema does not declare, and two items of a list with the same
keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from processkube.kubernetes_api.kinds.kinds import OBJECT_META, ResourceKind
from processkube.kubernetes_api.objects.errors import ApiError
from processkube.kubernetes_api.objects.objects import Object, canonical
from processkube.kubernetes_api.schemas import builtin as builtin_schemas
from processkube.kubernetes_api.schemas.schemas import EMBEDDED, LIST_TYPE, PRESERVE, TYPE_FIELDS, item_schema, key_of, list_keys
from processkube.kubernetes_api.writing.field_sets import path_text


class TypedPatchFailed(ApiError):
    """Raised for a body that does not fit its schema. As in the real server, the response is 500 without a reason."""

    code, reason = 500, ""


def refuse_untyped(kind: ResourceKind, namespace: str, name: str, body: Object) -> None:
    """Raise TypedPatchFailed if an apply's body has faults; the error lists all of them."""
    schema = kind.schema
    if kind.custom:  # whose schema need not mention them
        plain: Object = {"type": "string"}
        declared = {"apiVersion": plain, "kind": plain, "metadata": builtin_schemas.resolved(OBJECT_META)}
        schema = {**schema, "properties": {**schema.get("properties", {}), **declared}}
    faults = list(_faults(body, schema, "", keys_have_defaults=not kind.custom))
    if not faults:
        return
    listing = faults[0] if len(faults) == 1 else "\n  ".join(["errors:", *faults])
    group_version = f"{kind.group}/{kind.version}"
    raise TypedPatchFailed(f"failed to create typed patch object ({namespace}/{name}; {group_version}, Kind={kind.kind}): {listing}")


def _faults(value: Any, schema: Object, path: str, *, keys_have_defaults: bool) -> Iterator[str]:
    if isinstance(value, dict):
        properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
        closed = bool(properties) and extra is None and not schema.get(PRESERVE)
        for name, member in value.items():
            if (inner := properties.get(name, extra)) and isinstance(inner, dict):
                yield from _faults(member, inner, f"{path}.{name}", keys_have_defaults=keys_have_defaults)
            elif closed and not (schema.get(EMBEDDED) and name in TYPE_FIELDS):
                yield f"{path}.{name}: field not declared in schema"
    elif isinstance(value, list):
        yield from _list_faults(value, schema, path, keys_have_defaults=keys_have_defaults)


def _list_faults(items: list[Any], schema: Object, path: str, *, keys_have_defaults: bool) -> Iterator[str]:
    """Yield the faults of a list's items. In all built-in kinds the keys have defaults, and some of these defaults are
    empty.
    """
    inner, keys, seen = item_schema(schema) or {}, list_keys(schema), set()
    properties = inner.get("properties", {})
    for index, item in enumerate(items):
        step = f"[{index}]"
        if keys and isinstance(item, dict):
            if missing := [key for key in keys if key not in item and "default" not in properties.get(key, {}) and not keys_have_defaults]:
                why = f'associative list with keys has an element that omits key field "{missing[0]}" (and doesn\'t have default value)'
                yield f"{path}: element {index}: {why}"
                return
            step = path_text(("k:" + canonical(dict(zip(keys, key_of(item, keys, schema), strict=True))),))
        elif schema.get(LIST_TYPE) == "set":
            step = path_text(("v:" + canonical(item),))
        if step in seen:
            yield f"{path}: duplicate entries for key {step}"
        seen.add(step)
        yield from _faults(item, inner, f"{path}{step}", keys_have_defaults=keys_have_defaults)
