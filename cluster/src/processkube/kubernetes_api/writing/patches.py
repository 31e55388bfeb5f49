"""The three patch formats that do not record managers themselves: JSON merge patch, JSON patch, strategic merge
patch.
"""

from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer

from processkube.kubernetes_api.objects.errors import ApiError, BadRequest
from processkube.kubernetes_api.objects.objects import Object, copy_of
from processkube.kubernetes_api.schemas.schemas import LIST_TYPE, child_schema, item_schema, list_keys

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


class UnprocessablePatch(ApiError):
    code, reason = 422, "Invalid"


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target after a merge patch (RFC 7386). The arguments do not change; the result may share parts with
    them.
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def json_patch(target: Object, operations: Any) -> Object:
    """Return the target after a JSON patch (RFC 6902).

    Raises UnprocessablePatch if an operation fails, and BadRequest if the body is not a JSON patch.
    """
    if not isinstance(operations, list):
        raise BadRequest("a JSON patch is a list of operations; send [{op, path, value}, …]")
    try:
        patched = jsonpatch.JsonPatch(operations).apply(copy_of(target), in_place=True)
    except jsonpatch.InvalidJsonPatch as error:
        raise BadRequest(f"invalid JSON patch: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise UnprocessablePatch(f"the server rejected our request due to an error in our request: {error}") from error
    if not isinstance(patched, dict):
        raise UnprocessablePatch("the JSON patch replaced the object by something that is not an object")
    return patched


def in_order(document: Any) -> Any:
    """Return the document with all its keys sorted. The real server sorts them after a strategic merge patch."""
    if isinstance(document, dict):
        return {name: in_order(document[name]) for name in sorted(document)}
    return [in_order(item) for item in document] if isinstance(document, list) else document


def strategic_merge_patch(target: Any, patch: Any, schema: Object | None) -> Any:
    """Return the target after a strategic merge patch.

    Unlike a merge patch, it merges keyed lists item by item. It also has directives that delete, replace, retain and
    order items.
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get(_DIRECTIVE) == "replace" or (schema or {}).get("x-kubernetes-patch-strategy") == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    if patch.get(_DIRECTIVE) == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        result = {name: value for name, value in result.items() if name in patch[_RETAIN]}
    for name, value in patch.items():
        if name in {_DIRECTIVE, _RETAIN} or name.startswith(_ORDER):
            continue
        if name.startswith(_DELETE_PRIMITIVES):
            field = name.removeprefix(_DELETE_PRIMITIVES)
            result[field] = [item for item in result.get(field, ()) if item not in value]
        elif value is None:
            result.pop(name, None)
        elif isinstance(value, list):
            result[name] = _merge_lists(result.get(name), value, child_schema(schema or {}, name))
        else:
            result[name] = strategic_merge_patch(result.get(name), value, child_schema(schema or {}, name))
    for name, order in patch.items():
        if name.startswith(_ORDER):
            field = name.removeprefix(_ORDER)
            if isinstance(result.get(field), list):
                result[field] = _ordered(result[field], order, list_keys(child_schema(schema or {}, field)))
    return result


def _merge_lists(current: Any, patch: list[Any], schema: Object | None) -> list[Any]:
    existing = list(current) if isinstance(current, list) else []
    if (schema or {}).get(LIST_TYPE) == "set":
        return existing + [item for item in patch if item not in existing]
    keys = list_keys(schema)
    if not keys:
        return [item for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
    key = keys[0]  # the patch merge key; only server-side apply uses the other keys
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if item.get(_DIRECTIVE) != "replace"]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise BadRequest(f"map: {item} does not contain declared merge key: {key}")
        index = next((at for at, found in enumerate(existing) if found.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            existing = [found for found in existing if found.get(key) != item[key]]
        elif index is None:
            existing.append(strategic_merge_patch({}, item, item_schema(schema)))
        else:
            existing[index] = strategic_merge_patch(existing[index], item, item_schema(schema))
    return existing


def _ordered(items: list[Any], order: list[Any], keys: tuple[str, ...]) -> list[Any]:
    """Return the items in a new order: first the items that `order` names, in that order, and then the other items in
    their old order.
    """
    key = keys[0] if keys else None
    wanted = [entry.get(key) if key and isinstance(entry, dict) else entry for entry in order]

    def rank(item: Any) -> int:
        value = item.get(key) if key and isinstance(item, dict) else item
        return wanted.index(value) if value in wanted else len(wanted)

    return sorted(items, key=rank)
