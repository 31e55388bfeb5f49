"""The forms of one stored object: the versions of a custom resource, Events in their two groups, and Scale."""

from __future__ import annotations

from typing import Any

from processkube.kubernetes_api.kinds.kinds import ResourceKind, ScalePaths
from processkube.kubernetes_api.objects.objects import Object, at_path
from processkube.kubernetes_api.objects.selectors import selector_of_object

_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}


def is_stored_form(kind: ResourceKind) -> bool:
    """Return whether objects of this kind are stored in the form in which they are served."""
    return not kind.stored_in or kind.stored_in == kind.resource if not kind.custom else kind.version == kind.storage_version


def to_external(kind: ResourceKind, stored: Object) -> Object:
    """Return the stored object in the form of this kind. The result shares parts with the stored object."""
    if is_stored_form(kind):
        return stored
    renamed = {_EVENT_FIELDS.get(name, name): value for name, value in stored.items()} if kind.stored_in else stored
    return {**renamed, "apiVersion": kind.api_version, "kind": kind.kind}


def to_stored(kind: ResourceKind, item: Object) -> Object:
    """Return the object in the form in which it is stored. This is the inverse of `to_external`."""
    if is_stored_form(kind):
        return item
    if kind.stored_in:
        back = {new: old for old, new in _EVENT_FIELDS.items()}
        return {**{back.get(name, name): value for name, value in item.items()}, "apiVersion": "v1"}
    return {**item, "apiVersion": f"{kind.group}/{kind.storage_version}"}


def scale_of(paths: ScalePaths, item: Object) -> Object:
    """Return the `autoscaling/v1` Scale of an object."""
    metadata = item["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": _number_at(item, paths.status_replicas)}
    if paths.selector and (selector := _at(item, paths.selector)) is not None:
        status["selector"] = selector if isinstance(selector, str) else selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": _number_at(item, paths.spec_replicas)},
        "status": status,
    }


def has_replicas(paths: ScalePaths, item: Object) -> bool:
    """Return whether an object has a number of replicas. Objects of a custom kind need not have one."""
    return isinstance(_at(item, paths.spec_replicas), int)


def set_replicas(paths: ScalePaths, item: Object, replicas: int) -> None:
    """Write the number of replicas into the object, at the path that its kind declares for the scale subresource."""
    *way, last = paths.spec_replicas.lstrip(".").split(".")
    for name in way:
        item = item.setdefault(name, {})
    item[last] = replicas


def selector_text(selector: Object) -> str:
    """Return a label selector object as a text, as in a query."""
    parts = []
    for requirement in selector_of_object(selector).requirements:
        values = sorted(requirement.values)
        match requirement.operator:
            case "=":
                parts.append(f"{requirement.key}={values[0]}")
            case "exists":
                parts.append(requirement.key)
            case "absent":
                parts.append(f"!{requirement.key}")
            case operator:
                parts.append(f"{requirement.key} {operator} ({','.join(values)})")
    return ",".join(parts)


def _at(item: Object, path: str) -> Any:
    return at_path(item, *path.lstrip(".").split("."))


def _number_at(item: Object, path: str) -> int:
    value = _at(item, path)
    return value if isinstance(value, int) else 0
