"""Lets users change from `kubectl apply` to `kubectl apply --server-side` without conflicts.

kubectl's client-side apply stores its last manifest in an annotation. If the manager of a server-side apply is kubectl,
the apply may take over the fields of this manifest that nobody has changed since. The apply also keeps the annotation
up to date.
"""

from __future__ import annotations

from processkube.kubernetes_api.objects.objects import Object, at_path, decode, encode
from processkube.kubernetes_api.writing.field_sets import FieldSet, field_set, owned_part, value_at

MANAGER = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def inherited_fields(live: Object, manager: str, schema: Object) -> FieldSet:
    """Return the fields of the last client-side apply whose values have not changed since; empty if the manager is not
    kubectl.
    """
    text = at_path(live, "metadata", "annotations", LAST_APPLIED)
    if manager != MANAGER or text is None:
        return frozenset()
    try:
        last = decode(text)
    except ValueError:
        return frozenset()
    if not isinstance(last, dict):
        return frozenset()
    before, current = owned_part(last), owned_part(live)
    return frozenset(path for path in field_set(before, schema) if value_at(before, path, schema) == value_at(current, path, schema))


def sync_last_applied(merged: Object, applied: Object, manager: str) -> None:
    """Write the applied object into the annotation of client-side apply, if the object has this annotation."""
    annotations = at_path(merged, "metadata", "annotations")
    if manager == MANAGER and isinstance(annotations, dict) and LAST_APPLIED in annotations:
        annotations[LAST_APPLIED] = encode(applied).decode() + "\n"
