"""Finds who changed a pool from its managedFields. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead_operator.merge_patches import without_nulls


def spec_manager(metadata: Mapping[str, Any], *member: str) -> str:
    """Return the field manager that last wrote the spec, or `unknown`.

    If `member` names a field of the spec, such as `replicas`, return the manager that owns this field. A path leads
    into an item of a list by the item's name: `roles`, `prefill`, `replicas`. A field that nobody owns has its default;
    in this case too, the last writer of the spec is returned. Ownership decides, and not the time of the last write,
    because a write to the scale subresource takes ownership of `replicas` but records no time (Kubernetes' scale
    handler).
    """
    writers = [(str(entry.get("time") or ""), _manager(entry), _owned(entry)) for entry in metadata.get("managedFields") or []]
    owners = [(time, manager) for time, manager, owned in writers if owned is not None and _owns(owned, member)]
    candidates = owners or [(time, manager) for time, manager, owned in writers if owned is not None]
    return max(candidates, key=lambda item: item[0])[1] if candidates else "unknown"


def owner_of(metadata: Mapping[str, Any], member: str) -> str | None:
    """Return the field manager that owns a member of the spec; None if no manager does, as for a default."""
    entries = [(str(entry.get("time") or ""), _manager(entry), _owned(entry)) for entry in metadata.get("managedFields") or []]
    owners = [(time, manager) for time, manager, owned in entries if owned is not None and _owns(owned, (member,))]
    return max(owners)[1] if owners else None


def who_changed(pool: Mapping[str, Any]) -> str:
    """Return the field manager whose write made the spec differ from the spec in force.

    If only one field differs, this is the field's owner; otherwise it is the last writer of the spec.
    """
    spec = without_nulls(pool.get("spec") or {})
    before: Mapping[str, Any] | None = ((pool.get("status") or {}).get("specInForce") or {}).get("spec")
    changed = [] if before is None else [name for name in {**before, **spec} if before.get(name) != spec.get(name)]
    return spec_manager(pool["metadata"], *(changed if len(changed) == 1 else ()))


def _owns(owned: Mapping[str, Any], member: Sequence[str]) -> bool:
    """Return whether a set of fields, in the form of managedFields, includes the member. In this form, `f:` precedes
    the name of a field, and `k:` the key of a list's item. False for an empty `member`.
    """
    fields: Any = owned
    for name in member:
        item = "k:" + json.dumps({"name": name}, separators=(",", ":"))
        fields = fields.get(f"f:{name}", fields.get(item)) if isinstance(fields, Mapping) else None
    return bool(member) and fields is not None


def _manager(entry: Mapping[str, Any]) -> str:
    return str(entry.get("manager") or "unknown")


def _owned(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the members of the spec that an entry of managedFields owns; None if it owns none."""
    owned: Mapping[str, Any] | None = (entry.get("fieldsV1") or {}).get("f:spec")
    return owned
