"""Ownership of fields: which manager set which fields, which fields an apply may change, and which fields it removes.

The merge follows structured-merge-diff for maps, keyed lists, sets and atomic values. It differs from the real server
in two points: ownership is not translated between the versions of a kind, and unions are not normalised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from processkube.kubernetes_api.objects.errors import Cause, Conflict
from processkube.kubernetes_api.objects.objects import Object, copy_of
from processkube.kubernetes_api.schemas.schemas import MAP_TYPE, child_schema, item_schema
from processkube.kubernetes_api.writing.field_sets import (
    FieldSet,
    Path,
    changed_fields,
    field_set,
    from_fields_v1,
    owned_part,
    path_text,
    remove_path,
    steps_of_list,
    to_fields_v1,
    value_at,
)

APPLY, UPDATE = "Apply", "Update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A writer of fields. Each manager has one entry in managedFields."""

    name: str
    operation: str
    api_version: str
    subresource: str
    time: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The values that identify a manager: its name, operation and subresource and, for the operation Update, also
        the version of the kind.
        """
        return (self.name, self.operation, self.subresource, "" if self.operation == APPLY else self.api_version)


Ownership = dict[tuple[str, str, str, str], tuple[Manager, FieldSet]]


def read_ownership(managed_fields: Sequence[Object]) -> Ownership:
    owners: Ownership = {}
    for entry in managed_fields:
        if not entry:
            continue
        manager = Manager(
            name=entry.get("manager", ""),
            operation=entry.get("operation", UPDATE),
            api_version=entry.get("apiVersion", ""),
            subresource=entry.get("subresource", ""),
            time=entry.get("time", ""),
        )
        owners[manager.identity] = (manager, frozenset(from_fields_v1(entry.get("fieldsV1") or {})))
    return owners


def write_ownership(owners: Ownership) -> list[Object]:
    """Return the entries for managedFields in the real server's order. Managers that own no field are left out.

    Entries of applies come first. Within applies and updates, entries are sorted by time (entries without a time
    first), name, version and subresource.
    """
    entries = []
    kept = [owner for owner in owners.values() if owner[1]]
    for manager, fields in sorted(kept, key=lambda one: _rank(one[0])):
        entry: Object = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            **({"time": manager.time} if manager.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(fields),
        }
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return entries


def _rank(manager: Manager) -> tuple[str, ...]:
    return (manager.operation, manager.time, manager.name, manager.api_version, manager.subresource)


def record_update(owners: Ownership, manager: Manager, old: Object, new: Object, schema: Object) -> Ownership:
    """Return the ownership of fields after a write that is not an apply.

    The manager alone owns the fields that it changed. Nobody owns the fields that it removed.
    """
    before, after = owned_part(old), owned_part(new)
    changed = changed_fields(before, after, schema)
    removed = field_set(before, schema) - field_set(after, schema)
    if not changed and not removed:
        return owners
    result: Ownership = {}
    for identity, (other, fields) in owners.items():
        result[identity] = (other, fields if identity == manager.identity else fields - changed - removed)
    own = (owners[manager.identity][1] if manager.identity in owners else frozenset()) | changed
    result[manager.identity] = (manager, own - removed)
    return result


def apply(
    live: Object | None,
    applied: Object,
    owners: Ownership,
    manager: Manager,
    schema: Object,
    *,
    force: bool,
    inherited: FieldSet = frozenset(),
) -> tuple[Object, Ownership]:
    """Return the object after an apply, and the ownership of its fields.

    Raises Conflict, which names every field that another manager owns, unless `force` is set. Fields in `inherited` are
    taken over without a conflict.
    """
    wanted = owned_part(applied)
    fields = frozenset(field_set(wanted, schema))
    if live is None:
        return copy_of(applied), {manager.identity: (manager, fields)}
    current = owned_part(live)
    differing = {path for path in fields if value_at(current, path, schema) != value_at(wanted, path, schema)}
    parents = {path[:-1] for path in fields}  # an item of a list differs by what it has, unless it counts as one value
    differing = {path for path in differing if path[-1].startswith("f:") or path not in parents}
    result: Ownership = {}
    conflicts: list[tuple[Manager, Path]] = []
    for identity, (other, theirs) in owners.items():
        taken = theirs & differing if identity != manager.identity else frozenset()
        if not force:
            conflicts += [(other, path) for path in sorted(taken - inherited)]
        result[identity] = (other, theirs - taken)
    if conflicts:
        raise _refusal(conflicts)
    last = owners[manager.identity][1] if manager.identity in owners else frozenset()
    held_by_others = frozenset().union(*(theirs for identity, (_, theirs) in result.items() if identity != manager.identity))
    merged = _merge(copy_of(live), applied, schema)
    for path in sorted(last - fields - held_by_others, key=len):
        if not any(held[: len(path)] == path for held in held_by_others | fields):
            remove_path(merged, path, schema)
    result[manager.identity] = (manager, fields)
    unchanged = manager.identity in owners and last == fields
    if unchanged:
        result[manager.identity] = owners[manager.identity]
    return merged, result


def _merge(live: Any, applied: Any, schema: Object | None) -> Any:
    if isinstance(live, dict) and isinstance(applied, dict) and (schema or {}).get(MAP_TYPE) != "atomic":
        for name, value in applied.items():
            live[name] = _merge(live[name], value, child_schema(schema or {}, name)) if name in live else copy_of(value)
        return live
    if isinstance(live, list) and isinstance(applied, list):
        theirs, ours = steps_of_list(live, schema), steps_of_list(applied, schema)
        if theirs is not None and ours is not None:
            merged = {step: _merge(item, ours[step], item_schema(schema)) if step in ours else item for step, item in theirs.items()}
            merged.update({step: copy_of(item) for step, item in ours.items() if step not in theirs})
            return list(merged.values())
    return copy_of(applied)


def _described(manager: Manager) -> str:
    through = f' with subresource "{manager.subresource}"' if manager.subresource else ""
    using = f" using {manager.api_version}" if manager.operation == UPDATE else ""
    return f'"{manager.name}"{through}{using}'


def _refusal(conflicts: Sequence[tuple[Manager, Path]]) -> Conflict:
    described = [(_described(manager), path_text(path)) for manager, path in conflicts]
    if len(described) == 1:
        message = f"Apply failed with 1 conflict: conflict with {described[0][0]}: {described[0][1]}"
    else:
        lines = []
        for manager in sorted({manager for manager, _ in described}):
            lines += [f"conflicts with {manager}:", *(f"- {path}" for owner, path in described if owner == manager)]
        message = f"Apply failed with {len(described)} conflicts: " + "\n".join(lines)
    causes = [Cause(reason="FieldManagerConflict", field=path, message=f"conflict with {manager}") for manager, path in described]
    return Conflict(message, details={"causes": [cause.as_object() for cause in causes]})
