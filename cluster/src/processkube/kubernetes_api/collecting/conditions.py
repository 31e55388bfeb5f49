"""Writes the conditions in a status, and the Events that explain these conditions to people."""

from __future__ import annotations

import itertools
from contextlib import suppress

from processkube.kubernetes_api.objects.errors import ApiError
from processkube.kubernetes_api.objects.objects import Object, at_path, timestamp
from processkube.kubernetes_api.writing.resources import Resources, WriteOptions

_OPTIONS = WriteOptions(field_manager="processkube")
_numbers = itertools.count()


def condition_of(item: Object, kind: str) -> Object | None:
    """Return the object's condition of this type, not a copy; None if it has none."""
    found: Object | None = next((one for one in at_path(item, "status", "conditions", default=[]) if one.get("type") == kind), None)
    return found


def set_condition(item: Object, condition: Object, now: str) -> None:
    """Put the condition in place of the object's condition of the same type. The transition time changes only if the
    condition's status changes.
    """
    before = condition_of(item, condition["type"])
    same = before is not None and before["status"] == condition["status"]
    since = before["lastTransitionTime"] if same and before is not None and "lastTransitionTime" in before else now
    conditions = item.setdefault("status", {}).setdefault("conditions", [])
    conditions[:] = [*(one for one in conditions if one is not before), {**condition, "lastTransitionTime": since}]


def record_event(resources: Resources, about: Object, *, event_type: str, reason: str, message: str, component: str) -> None:
    """Create an Event about an object. Does nothing if the object's namespace is being deleted."""
    events = resources.registry.find("", "v1", "events")
    assert events is not None
    now = timestamp(resources.clock())
    metadata = about["metadata"]
    namespace = metadata.get("namespace", "")
    reference = {name: metadata[name] for name in ("namespace", "name", "uid") if name in metadata}
    unique = f"{int(resources.clock().timestamp() * 1e9):x}.{next(_numbers):x}"
    body = {
        "metadata": {"name": f"{metadata['name']}.{unique}", "namespace": namespace or "default"},
        "involvedObject": {"apiVersion": about["apiVersion"], "kind": about["kind"], **reference},
        "type": event_type,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    with suppress(ApiError):  # a namespace that is being deleted takes no new object
        resources.create(events, namespace or "default", body, _OPTIONS)
