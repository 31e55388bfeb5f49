"""Creates, changes and deletes objects in the store, by the rules that are the same for every kind.

Each method runs to its end without yielding to other tasks. So for all other requests, its reads, checks and writes are
a single step.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from processkube.kubernetes_api.kinds.custom_resources import established_status
from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.objects.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    forbidden_value,
    invalid_value,
)
from processkube.kubernetes_api.objects.objects import Clock, Object, at_path, copy_of, generated_name, timestamp
from processkube.kubernetes_api.storing.representations import to_external, to_stored
from processkube.kubernetes_api.storing.store import Store, Stored
from processkube.kubernetes_api.writing.admitting import FieldValidation, check, decode_object, fill_defaults
from processkube.kubernetes_api.writing.builtin_rules import first_status
from processkube.kubernetes_api.writing.client_side_apply import inherited_fields, sync_last_applied
from processkube.kubernetes_api.writing.pod_admission import ACCOUNTS, admit_account, admit_priority, complete_member
from processkube.kubernetes_api.writing.pods import DEFAULT_ACCOUNT
from processkube.kubernetes_api.writing.server_side_apply import (
    APPLY,
    UPDATE,
    Manager,
    Ownership,
    apply,
    read_ownership,
    record_update,
    write_ownership,
)
from processkube.kubernetes_api.writing.typed_patches import refuse_untyped

SCALE = "scale"
"""The subresource whose writes change a field of the object itself, the number of replicas."""

_SERVER_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_OBJECT_CHANGED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write, from the request's query."""

    field_manager: str
    dry_run: bool = False
    field_validation: FieldValidation = FieldValidation.WARN
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of a write: the object afterwards, in the version of the kind through which it was written."""

    object: Object
    created: bool = False
    removed: bool = False
    warnings: tuple[str, ...] = field(default=())


Change = Callable[[Object], object]
"""A function that returns the new body for an object, made from the current object. It must not change its argument."""


class Resources:
    """The write path for objects. Requests that only read use the store directly."""

    def __init__(self, store: Store, registry: Registry, clock: Clock, randomness: random.Random) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self._randomness = randomness

    def require(self, kind: ResourceKind, namespace: str, name: str) -> Stored:
        """Return the stored object. Raises NotFound if it does not exist."""
        found = self.store.get(kind.storage, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def create(self, kind: ResourceKind, namespace: str, body: object, options: WriteOptions) -> Written:
        decoded = decode_object(kind, body, options.field_validation)
        item = decoded.object
        self._stamp_new(kind, namespace, item)
        if kind.has_status or kind.kind == "CustomResourceDefinition":
            item.pop("status", None)
        metadata = item["metadata"]
        given = str(metadata.get("name") or metadata.get("generateName", ""))  # what admission knows it by
        if not metadata.get("name") and (prefix := metadata.get("generateName")):
            metadata["name"] = generated_name(prefix, self._randomness)
        self._refuse_missing_namespace(kind, namespace, given)
        fill_defaults(kind, item, None, lambda: [one.object for one in self.store.list(kind.storage)])
        if kind.kind == "Pod":
            self._admit_pod(item, given)
        if not kind.custom and (status := first_status(item)) is not None:
            item["status"] = {**status, **item.get("status", {})}
        check(kind, item, None)
        if self.store.get(kind.storage, namespace, metadata["name"]) is not None:
            raise AlreadyExists(f'{kind.resource} "{metadata["name"]}" already exists', details=_details(kind, metadata["name"]))
        manager = self._manager(kind, options, UPDATE)
        owners = record_update({}, manager, {}, item, kind.schema)
        if entries := write_ownership(owners):
            metadata["managedFields"] = entries
        self._establish(kind, item)
        return self._finish_create(kind, namespace, item, options, decoded.warnings)

    def update(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        change: Change,
        options: WriteOptions,
        *,
        subresource: str = "",
        replace: bool = False,
    ) -> Written:
        """Replace the object by the result of `change`. `replace` is set if the client sent the whole object (PUT)."""
        stored = self.require(kind, namespace, name)
        old = to_external(kind, stored.object)
        decoded = decode_object(kind, copy_of(change(old)), options.field_validation)
        new = decoded.object
        self._refuse_mismatch(kind, old, new, replace=replace)
        manager = self._manager(kind, options, UPDATE, subresource)
        return self._write(kind, stored, old, new, options, decoded.warnings, manager, subresource)

    def apply(
        self, kind: ResourceKind, namespace: str, name: str, body: object, options: WriteOptions, *, subresource: str = ""
    ) -> Written:
        """Apply a body by server-side apply; the object is created if necessary. Unless `options.force` is set, raises
        Conflict if other managers own fields that the body would change.
        """
        if isinstance(body, dict):
            refuse_untyped(kind, namespace, name, body)
        decoded = decode_object(kind, body, options.field_validation)
        applied = decoded.object
        if applied["metadata"].get("managedFields"):
            raise BadRequest("metadata.managedFields must be nil")
        given = applied["metadata"].setdefault("name", name)
        if given != name:
            raise BadRequest(f"the name of the object ({given}) does not match the name on the URL ({name})")
        if subresource == "" and kind.has_status:
            applied.pop("status", None)
        elif subresource:
            applied = {key: value for key, value in applied.items() if key in {"apiVersion", "kind", "metadata", subresource}}
        manager = self._manager(kind, options, APPLY, subresource)
        stored = self.store.get(kind.storage, namespace, name)
        if stored is None:
            if subresource:
                raise not_found(kind, name)
            return self._apply_new(kind, namespace, applied, options, decoded.warnings, manager)
        old = to_external(kind, stored.object)
        self._refuse_mismatch(kind, old, applied, replace=False)
        owners = read_ownership(old["metadata"].get("managedFields", ()))
        inherited = inherited_fields(old, manager.name, kind.schema)
        merged, owners = apply(old, applied, owners, manager, kind.schema, force=options.force, inherited=inherited)
        sync_last_applied(merged, applied, manager.name)
        merged["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        return self._write(kind, stored, old, merged, options, decoded.warnings, manager, subresource, owners)

    def _apply_new(
        self,
        kind: ResourceKind,
        namespace: str,
        applied: Object,
        options: WriteOptions,
        warnings: tuple[str, ...],
        manager: Manager,
    ) -> Written:
        if uid := applied["metadata"].get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(kind, applied["metadata"]["name"], why)
        applied["metadata"].pop("resourceVersion", None)  # unlike a creation, an apply may have one, which says nothing then
        item, owners = apply(None, applied, {}, manager, kind.schema, force=options.force)
        self._stamp_new(kind, namespace, item)
        self._refuse_missing_namespace(kind, namespace, item["metadata"]["name"])
        fill_defaults(kind, item, None, lambda: [one.object for one in self.store.list(kind.storage)])
        if kind.kind == "Pod":
            self._admit_pod(item, item["metadata"]["name"])
        if not kind.custom and (status := first_status(item)) is not None:
            item["status"] = status
        check(kind, item, None)
        item["metadata"]["managedFields"] = write_ownership(owners)
        self._establish(kind, item)
        return self._finish_create(kind, namespace, item, options, warnings)

    def _admit_pod(self, pod: Object, name: str) -> None:
        admit_account(self.store, pod, name)
        admit_priority(self.store, pod, name)
        complete_member(pod)

    def _finish_create(self, kind: ResourceKind, namespace: str, item: Object, options: WriteOptions, warnings: tuple[str, ...]) -> Written:
        if not options.dry_run:
            stored = self.store.put(kind.storage, namespace, item["metadata"]["name"], to_stored(kind, item))
            item = to_external(kind, stored.object)
            if kind.kind == "Namespace":
                self.create_default_account(stored.name)
        return Written(object=item, created=True, warnings=warnings)

    def create_default_account(self, namespace: str) -> None:
        """Create a namespace's service account `default`, if it is missing.

        In a cluster, a controller creates it, and pods cannot be created before. Here a namespace has it from the
        start.
        """
        found, kind = self.store.get("namespaces", "", namespace), self.registry.find("", "v1", ACCOUNTS)
        if found is None or found.object["metadata"].get("deletionTimestamp") or self.store.get(ACCOUNTS, namespace, DEFAULT_ACCOUNT):
            return
        assert kind is not None
        self.create(kind, namespace, {"metadata": {"name": DEFAULT_ACCOUNT}}, WriteOptions(field_manager="kube-controller-manager"))

    def _write(
        self,
        kind: ResourceKind,
        stored: Stored,
        old: Object,
        new: Object,
        options: WriteOptions,
        warnings: tuple[str, ...],
        manager: Manager,
        subresource: str,
        owners: Ownership | None = None,
    ) -> Written:
        requested_managers = new["metadata"].get("managedFields")
        new = self._confined(kind, old, new, subresource)
        metadata = new["metadata"]
        of_object = subresource in {"", SCALE}
        if of_object:
            fill_defaults(kind, new, old, lambda: [one.object for one in self.store.list(kind.storage) if one is not stored])
        elif kind.custom:
            fill_defaults(kind, new, old, tuple)
        self._refuse_new_finalizers(kind, old, new)
        check(kind, new, old, status_only=not of_object)
        if kind.has_generation and of_object and _desired(kind, old) != _desired(kind, new):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        if owners is None:
            base = old["metadata"].get("managedFields", [])
            if requested_managers is not None and requested_managers != base:
                base = requested_managers
            owners = record_update(read_ownership(base), manager, old, new, kind.schema)
        metadata.pop("managedFields", None)
        if entries := write_ownership(owners):
            metadata["managedFields"] = entries
        self._establish(kind, new)
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if _is_released(new):
            if not options.dry_run:
                self.store.remove(kind.storage, stored.namespace, stored.name)
            return Written(object=new, removed=True, warnings=warnings)
        if new == old or options.dry_run:
            return Written(object=new, warnings=warnings)
        result = self.store.put(kind.storage, stored.namespace, stored.name, to_stored(kind, new))
        return Written(object=to_external(kind, result.object), warnings=warnings)

    def _confined(self, kind: ResourceKind, old: Object, new: Object, subresource: str) -> Object:
        """Return the new object. Fields that this request may not change are taken from the old object."""
        if subresource == "status":
            result: Object = copy_of(old)
            result.pop("status", None)
            if "status" in new:
                result["status"] = new["status"]
            return result
        result = new
        if kind.has_status:
            result.pop("status", None)
            if "status" in old:
                result["status"] = old["status"]
        metadata = result["metadata"]
        for name in _SERVER_KEPT:
            metadata.pop(name, None)
            if name in old["metadata"]:
                metadata[name] = old["metadata"][name]
        metadata["name"] = old["metadata"]["name"]
        if kind.namespaced:
            metadata["namespace"] = old["metadata"]["namespace"]
        if "generateName" in old["metadata"]:
            metadata.setdefault("generateName", old["metadata"]["generateName"])
        return result

    def _stamp_new(self, kind: ResourceKind, namespace: str, item: Object) -> None:
        metadata = item["metadata"]
        if metadata.get("resourceVersion"):
            raise BadRequest("resourceVersion should not be set on objects to be created")
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise BadRequest(
                    f"the namespace of the provided object does not match the namespace sent on the request "
                    f"({metadata['namespace']} is not {namespace})"
                )
        else:
            metadata.pop("namespace", None)
        for name in (*_SERVER_KEPT, "resourceVersion", "managedFields"):
            metadata.pop(name, None)
        metadata["uid"] = str(uuid.UUID(int=self._randomness.getrandbits(128), version=4))
        metadata["creationTimestamp"] = timestamp(self.clock())
        if kind.has_generation:
            metadata["generation"] = 1

    def _refuse_missing_namespace(self, kind: ResourceKind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        found = self.store.get("namespaces", "", namespace)
        if found is None:
            raise NotFound(f'namespaces "{namespace}" not found', details={"name": namespace, "kind": "namespaces"})
        if found.object["metadata"].get("deletionTimestamp"):
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated", "field": "metadata.namespace"}  # fmt: skip
            raise Forbidden(
                f'{kind.resource} "{name}" is forbidden: unable to create new content in namespace {namespace} because '
                "it is being terminated",
                details={**_details(kind, name), "causes": [cause]},
            )

    def _refuse_mismatch(self, kind: ResourceKind, old: Object, new: Object, *, replace: bool) -> None:
        given, current = new["metadata"], old["metadata"]
        for name in ("name", "namespace"):
            if given.get(name) and given[name] != current.get(name):
                raise BadRequest(f"the {name} of the object ({given[name]}) does not match the {name} on the URL ({current.get(name)})")
        version = given.get("resourceVersion")
        if replace and not version and kind.custom:
            cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise Invalid(kind=kind.kind, group=kind.group, name=current["name"], causes=[cause])
        if version and version != current["resourceVersion"]:
            raise conflict(kind, current["name"], _OBJECT_CHANGED)
        if given.get("uid") and given["uid"] != current["uid"]:
            if not replace:  # a patch has no preconditions: there the uid is a field like any other
                cause = invalid_value("metadata.uid", given["uid"], "field is immutable")
                raise Invalid(kind=kind.kind, group=kind.group, name=current["name"], causes=[cause])
            raise conflict(
                kind,
                current["name"],
                f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {current['uid']}",
            )

    def _refuse_new_finalizers(self, kind: ResourceKind, old: Object, new: Object) -> None:
        if not old["metadata"].get("deletionTimestamp"):
            return
        added = set(new["metadata"].get("finalizers", ())) - set(old["metadata"].get("finalizers", ()))
        if added:
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {sorted(added)}"
            cause = forbidden_value("metadata.finalizers", detail)
            raise Invalid(kind=kind.kind, group=kind.group, name=new["metadata"]["name"], causes=[cause])

    def _establish(self, kind: ResourceKind, item: Object) -> None:
        if kind.kind == "CustomResourceDefinition":
            item["status"] = established_status(item, timestamp(self.clock()))

    def _manager(self, kind: ResourceKind, options: WriteOptions, operation: str, subresource: str = "") -> Manager:
        """Return the manager under which a write is recorded in managedFields.

        For the scale subresource the manager has no time, as in the real server. The real server stores the entries of
        this subresource by other code, which drops their times.
        """
        return Manager(
            name=options.field_manager,
            operation=operation,
            api_version=kind.api_version,
            subresource=subresource,
            time="" if subresource == SCALE else timestamp(self.clock()),
        )


def not_found(kind: ResourceKind, name: str) -> NotFound:
    return NotFound(f'{kind.resource} "{name}" not found', details=_details(kind, name))


def conflict(kind: ResourceKind, name: str, why: str) -> Conflict:
    return Conflict(f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}', details=_details(kind, name))


def _details(kind: ResourceKind, name: str) -> Object:
    details: Object = {"name": name, "kind": kind.plural}
    return {**details, "group": kind.group} if kind.group else details


def _desired(kind: ResourceKind, item: Object) -> Any:
    """Return the part of an object that counts for its generation: everything except metadata and status. When this
    part changes, the generation increases.
    """
    return {name: value for name, value in item.items() if name not in {"metadata", "status"}}


def _is_released(item: Object) -> bool:
    """Return whether an object is being deleted and has nothing to wait for, so that it can be removed."""
    metadata = item["metadata"]
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    if item["kind"] == "Namespace":
        waits = waits or at_path(item, "spec", "finalizers")
    return bool(metadata.get("deletionTimestamp")) and not waits
