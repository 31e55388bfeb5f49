"""Sets of field paths, as `metadata.managedFields` contains them: all fields of an object, or its changed fields.

A path is a tuple of steps: `f:name` for a member, `k:{"name":"a"}` for an item of a keyed list, `v:"x"` for an item of
a set. A list without keys counts as one field, and so does an atomic map.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from processkube.kubernetes_api.objects.objects import Object, canonical, decode
from processkube.kubernetes_api.schemas.schemas import LIST_TYPE, MAP_TYPE, child_schema, item_schema, key_of, list_keys

Path = tuple[str, ...]
FieldSet = frozenset[Path]

_UNOWNED_METADATA = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "generateName", "selfLink"}
    | {"deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"}
)


def owned_part(item: Object) -> Object:
    """Return the object without the fields that no manager can own: its identity, and the fields that the server
    sets.
    """
    metadata = {name: value for name, value in item.get("metadata", {}).items() if name not in _UNOWNED_METADATA}
    rest = {name: value for name, value in item.items() if name not in {"apiVersion", "kind", "metadata"}}
    return {"metadata": metadata, **rest} if metadata else rest


def steps_of_list(items: list[Any], schema: Object | None) -> dict[str, Any] | None:
    """Return a map from the step to the item, for each item of a list. Return None if the list is atomic, because the
    items of an atomic list have no owners of their own.
    """
    if keys := list_keys(schema):
        found = {}
        for item in items:
            if not isinstance(item, dict):
                return None
            found["k:" + canonical(dict(zip(keys, key_of(item, keys, schema), strict=True)))] = item
        return found
    if (schema or {}).get(LIST_TYPE) == "set":
        return {"v:" + canonical(item): item for item in items}
    return None


def field_set(value: Any, schema: Object | None, prefix: Path = ()) -> set[Path]:
    """Return the paths of all leaves of a value, and also the paths of the items of keyed lists."""
    if isinstance(value, dict) and value and (schema or {}).get(MAP_TYPE) != "atomic":
        paths: set[Path] = set()
        for name, member in value.items():
            paths |= field_set(member, child_schema(schema or {}, name), (*prefix, f"f:{name}"))
        return paths
    if isinstance(value, list) and value and (steps := steps_of_list(value, schema)) is not None:
        paths = set()
        for step, item in steps.items():
            paths.add((*prefix, step))
            if isinstance(item, dict):
                paths |= field_set(item, item_schema(schema), (*prefix, step))
        return paths
    return {prefix} if prefix else set()


def changed_fields(old: Any, new: Any, schema: Object | None, prefix: Path = ()) -> set[Path]:
    """Return the paths in `new` whose values are new or differ from `old`."""
    if old == new:
        return set()
    pairs: Iterable[tuple[str, Any, Any, Object | None]]
    if isinstance(old, dict) and isinstance(new, dict) and (schema or {}).get(MAP_TYPE) != "atomic" and new:
        pairs = ((f"f:{name}", name in old and [old[name]], value, child_schema(schema or {}, name)) for name, value in new.items())
    elif (
        isinstance(old, list)
        and isinstance(new, list)
        and new
        and (steps := steps_of_list(new, schema)) is not None
        and (before := steps_of_list(old, schema)) is not None
    ):
        pairs = ((step, step in before and [before[step]], item, item_schema(schema)) for step, item in steps.items())
    else:
        return field_set(new, schema, prefix)
    paths: set[Path] = set()
    for step, known, value, inner in pairs:
        if known:
            paths |= changed_fields(known[0], value, inner, (*prefix, step))
        else:
            if not step.startswith("f:"):
                paths.add((*prefix, step))
            paths |= field_set(value, inner, (*prefix, step))
    return paths


def to_fields_v1(paths: Iterable[Path]) -> Object:
    """Return paths in the nested form of managedFields. A member "." marks a path that also has paths below it."""
    root: Object = {}
    for path in sorted(paths, key=len):
        node = root
        for step in path:
            node = node.setdefault(step, {})
    members = set(paths)
    _mark(root, (), members)
    return root


def _mark(node: Object, prefix: Path, members: set[Path]) -> None:
    for step, below in node.items():
        path = (*prefix, step)
        if below:
            _mark(below, path, members)
            if path in members:
                below["."] = {}
    return


def from_fields_v1(node: Object, prefix: Path = ()) -> set[Path]:
    """Return the paths in the nested form of managedFields. This is the inverse of `to_fields_v1`."""
    paths: set[Path] = set()
    for step, below in node.items():
        if step == ".":
            paths.add(prefix)
        elif below:
            paths |= from_fields_v1(below, (*prefix, step))
        else:
            paths.add((*prefix, step))
    return paths


def value_at(value: Any, path: Path, schema: Object | None) -> Any:
    """Return the value at a path; None if there is none."""
    for step in path:
        if step.startswith("f:"):
            if not isinstance(value, dict):
                return None
            value, schema = value.get(step[2:]), child_schema(schema or {}, step[2:])
        else:
            steps = steps_of_list(value, schema) if isinstance(value, list) else None
            value, schema = (steps or {}).get(step), item_schema(schema)
    return value


def remove_path(value: Any, path: Path, schema: Object | None) -> None:
    """Delete the field at a path in place, and also the maps and lists that become empty."""
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(value, dict) or name not in value:
            return
        if rest:
            remove_path(value[name], rest, child_schema(schema or {}, name))
            if value[name] not in ({}, []):
                return
        del value[name]
        return
    if not isinstance(value, list):
        return
    steps = steps_of_list(value, schema) or {}
    if step not in steps:
        return
    if not rest:
        value.remove(steps[step])
    elif rest not in {(f"f:{key}",) for key in list_keys(schema)}:  # an item keeps its keys as long as it exists
        remove_path(steps[step], rest, item_schema(schema))


def path_text(path: Path) -> str:
    """Return a path as conflict messages print it: `.spec.containers[name="a"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += "." + step[2:]
        elif step.startswith("k:"):
            keys: Object = decode(step[2:])
            text += "[" + ",".join(f"{key}={canonical(value)}" for key, value in keys.items()) + "]"
        else:
            text += f"[={step[2:]}]"
    return text
