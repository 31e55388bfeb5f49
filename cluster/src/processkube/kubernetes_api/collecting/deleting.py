"""Deletion with preconditions, propagation and grace periods.

An object that has to wait for something is marked as being deleted. Any other object is removed at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from processkube.kubernetes_api.kinds.custom_resources import CLEANUP_FINALIZER
from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.objects.errors import BadRequest, Conflict, Forbidden
from processkube.kubernetes_api.objects.objects import Object, copy_of, parse_timestamp, timestamp
from processkube.kubernetes_api.storing.representations import to_external
from processkube.kubernetes_api.storing.store import Stored
from processkube.kubernetes_api.writing.pods import grace_seconds
from processkube.kubernetes_api.writing.resources import Resources, Written

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """The options of a deletion (`meta.v1.DeleteOptions`), from the request's body or its query."""

    dry_run: bool = False
    propagation: str = ""
    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""


def parse_delete_options(body: object, query: dict[str, str]) -> DeleteOptions:
    """Return the options of a deletion. Raises BadRequest for an invalid policy or number."""
    given = body if isinstance(body, dict) else {}
    propagation = given.get("propagationPolicy") or query.get("propagationPolicy") or ""
    if not propagation and given.get("orphanDependents") is not None:
        propagation = "Orphan" if given["orphanDependents"] else "Background"
    if propagation not in {"", "Background", "Foreground", "Orphan"}:
        raise BadRequest(f"propagationPolicy: {propagation!r} is not one of Background, Foreground, Orphan")
    grace = given.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    try:
        seconds = None if grace is None else int(grace)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"gracePeriodSeconds: {grace!r} is not a number of seconds") from error
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bool(given.get("dryRun") or query.get("dryRun")),
        propagation=propagation,
        grace_seconds=seconds,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
    )


def delete(resources: Resources, kind: ResourceKind, namespace: str, name: str, options: DeleteOptions) -> Written:
    """Delete an object, or mark it as being deleted.

    Raises NotFound, Conflict for a failed precondition, and Forbidden for an object that must stay.
    """
    stored = resources.require(kind, namespace, name)
    check_preconditions(kind, stored, options)
    if kind.kind == "Namespace" and name in _PROTECTED_NAMESPACES:
        raise Forbidden(f'namespaces "{name}" is forbidden: this namespace may not be deleted')
    item: Object = copy_of(stored.object)
    metadata = item["metadata"]
    if _mark(resources, kind, item, options):
        _propagate(resources, kind, metadata, options)
    grace = metadata.get("deletionGracePeriodSeconds", 0)
    waits = bool(metadata.get("finalizers")) or grace > 0 or kind.kind == "Namespace"
    if not waits and options.dry_run:
        return Written(object=to_external(kind, stored.object), removed=True)
    if not waits:
        if kind.kind == "Pod" and item != stored.object:  # only a kind with grace is marked even where that is over
            resources.store.put(kind.storage, namespace, name, item)
        removed = resources.store.remove(kind.storage, namespace, name)
        if kind.kind == "ServiceAccount":
            resources.create_default_account(namespace)
        return Written(object=to_external(kind, removed.object), removed=True)
    if kind.kind == "Namespace":
        item["status"] = {**item.get("status", {}), "phase": "Terminating"}
    if item != stored.object and not options.dry_run:
        item = resources.store.put(kind.storage, namespace, name, item).object
    return Written(object=to_external(kind, item))


def check_preconditions(kind: ResourceKind, stored: Stored, options: DeleteOptions) -> None:
    """Raise Conflict unless the object has the uid and the resource version that the options name."""
    metadata = stored.object["metadata"]
    failed = ""
    if options.uid and options.uid != metadata["uid"]:
        failed = f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
        failed += "The object might have been deleted and then recreated"
    elif options.resource_version and options.resource_version != metadata["resourceVersion"]:
        failed = f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
        failed += f"in record ({metadata['resourceVersion']}). The object might have been modified"
    if failed:  # the real server names the kind here, where other conflicts have the resource
        qualified, details = kind.kind, {"name": stored.name, "kind": kind.kind}
        if kind.group:
            qualified, details = f"{kind.kind}.{kind.group}", {**details, "group": kind.group}
        raise Conflict(f'Operation cannot be fulfilled on {qualified} "{stored.name}": {failed}', details=details)


def _propagate(resources: Resources, kind: ResourceKind, metadata: Object, options: DeleteOptions) -> None:
    """Set the object's finalizers. Before the garbage collector removes the object, it reads from them whether it must
    delete or orphan the object's dependents.
    """
    finalizers = list(metadata.get("finalizers", ()))
    if options.propagation:
        finalizers = [name for name in finalizers if name not in {FOREGROUND, ORPHAN}]
    if options.propagation == "Foreground":
        finalizers.append(FOREGROUND)
    elif options.propagation == "Orphan":
        finalizers.append(ORPHAN)
    if kind.kind == "CustomResourceDefinition" and resources.store.count(metadata["name"]):
        finalizers = [*(name for name in finalizers if name != CLEANUP_FINALIZER), CLEANUP_FINALIZER]
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers


def _mark(resources: Resources, kind: ResourceKind, item: Object, options: DeleteOptions) -> bool:
    """Set the deletion time and the grace period. Return False if the object is already being deleted with a grace
    period and this deletion does not shorten it.

    A second deletion cannot lengthen the grace period of the first deletion.
    """
    metadata, now = item["metadata"], resources.clock()
    if metadata.get("deletionTimestamp") is None:
        metadata["deletionGracePeriodSeconds"] = grace_seconds(item, options.grace_seconds) if kind.kind == "Pod" else 0
        metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=metadata["deletionGracePeriodSeconds"]))
        if "generation" in metadata:
            metadata["generation"] += 1
        return True
    already = metadata.get("deletionGracePeriodSeconds", 0)
    if already == 0:
        return True
    if options.grace_seconds is None or options.grace_seconds >= already:
        return False
    grace = options.grace_seconds if options.grace_seconds >= 0 else 1
    ends = parse_timestamp(metadata["deletionTimestamp"]) + timedelta(seconds=grace - already)
    if ends < now:
        ends, grace = now, min(grace, 1)
    metadata["deletionGracePeriodSeconds"], metadata["deletionTimestamp"] = grace, timestamp(ends)
    return True
