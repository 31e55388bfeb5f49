"""Collects garbage: deletes dependents whose owners are gone, and the content of deleted namespaces and definitions.

It follows the changes of the store and processes one object at a time. After each object it yields, so that requests
are served in between.
"""

from __future__ import annotations

import asyncio
from collections import deque

from processkube.kubernetes_api.collecting.deleting import FOREGROUND, ORPHAN, DeleteOptions, delete
from processkube.kubernetes_api.kinds.custom_resources import CLEANUP_FINALIZER
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.objects.objects import Object, copy_of
from processkube.kubernetes_api.storing.store import EventType, Stored, StoredChange
from processkube.kubernetes_api.writing.resources import Resources

_BACKGROUND, _FOREGROUND = DeleteOptions(propagation="Background"), DeleteOptions(propagation="Foreground")
_ORPHANING = DeleteOptions(propagation="Orphan")
_REMEMBERED = 500
"""Maximum number of missing owners that the collector remembers, as in kube-controller-manager."""
_NAMESPACES, _DEFINITIONS = "namespaces", "customresourcedefinitions.apiextensions.k8s.io"


class GarbageCollector:
    """Collects garbage in the background. `run` must run as a task; it ends only when cancelled.

    `settled` waits until nothing is left to do.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store = resources.store
        self._registry: Registry = resources.registry
        self._dependents: dict[str, set[str]] = {}
        self._gone: dict[tuple[str, ...], None] = {}
        """References to the owners that were removed most recently, in order of removal. They are the keys; the values
        have no meaning.
        """
        self._undecided: dict[str, Stored] = {}
        """Uid of a dependent → the dependent. These dependents have an owner of a kind that is not served, so it is not
        known whether the owner exists.
        """
        self._waiting: deque[Stored] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._unsubscribe = self._store.subscribe(self._note)
        for resource in self._store.resources():
            for stored in self._store.list(resource):
                self._index(stored)
                self._waiting.append(stored)

    async def run(self) -> None:
        try:
            while True:
                while self._waiting:
                    self._examine(self._waiting.popleft())
                    await asyncio.sleep(0)
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
        finally:
            self._unsubscribe()

    async def settled(self) -> None:
        while self._waiting or not self._idle.is_set():
            self._idle.clear()
            self._wake.set()
            await self._idle.wait()

    def _note(self, change: StoredChange) -> None:
        now = change.now
        if change.type is EventType.DELETED:
            for owner in _owner_uids(now.object):
                self._dependents.get(owner, set()).discard(now.uid)
        else:
            self._index(now)
        if change.type is EventType.DELETED or _is_interesting(now.object):
            self._waiting.append(now)
            self._idle.clear()
            self._wake.set()

    def _index(self, stored: Stored) -> None:
        for owner in _owner_uids(stored.object):
            self._dependents.setdefault(owner, set()).add(stored.uid)

    def _examine(self, stored: Stored) -> None:
        current = self._store.by_uid(stored.uid)
        if current is None:
            self._after_removal(stored)
        else:
            self._examine_living(current)

    def _after_removal(self, gone: Stored) -> None:
        if dependents := self._dependents.pop(gone.uid, set()):
            self._gone[_called({**gone.object, **gone.object["metadata"]})] = None
            if len(self._gone) > _REMEMBERED:
                del self._gone[next(iter(self._gone))]
        for uid in dependents:
            if dependent := self._store.by_uid(uid):
                self._release_from_missing_owners(dependent)
        for reference in _references(gone.object):
            if (owner := self._owner(gone, reference)) and owner.object["metadata"].get("deletionTimestamp"):
                self._examine_living(owner)
        namespace = self._store.get(_NAMESPACES, "", gone.namespace) if gone.namespace else None
        if namespace is not None and namespace.object["metadata"].get("deletionTimestamp"):
            self._empty_namespace(namespace)
        definition = self._store.get(_DEFINITIONS, "", gone.resource)
        if definition is not None and definition.object["metadata"].get("deletionTimestamp"):
            self._empty_definition(definition)

    def _examine_living(self, stored: Stored) -> None:
        metadata = stored.object["metadata"]
        if metadata.get("deletionTimestamp"):
            finalizers = metadata.get("finalizers", ())
            if stored.resource == _NAMESPACES:
                self._empty_namespace(stored)
            elif CLEANUP_FINALIZER in finalizers:
                self._empty_definition(stored)
            elif ORPHAN in finalizers:
                self._orphan_dependents(stored)
            elif FOREGROUND in finalizers:
                self._delete_dependents_first(stored)
        elif metadata.get("ownerReferences"):
            self._release_from_missing_owners(stored)
        if stored.resource == _DEFINITIONS:
            self._waiting.extend(self._undecided.values())
            self._undecided.clear()

    def _release_from_missing_owners(self, stored: Stored) -> None:
        """Delete an object if none of its owners exists. If some of its owners exist, drop only the references to
        missing owners.
        """
        owners = _references(stored.object)
        if not stored.namespace and any(self._is_namespaced(owner) for owner in owners):
            return  # no owner of a cluster-scoped object can be in a namespace: which one, nobody said
        existing = [owner for owner in owners if self._owner(stored, owner) is not None]
        if len(existing) == len(owners):
            return
        if any(_called(one) not in self._gone and self._registry.by_kind(one["apiVersion"], one["kind"]) is None for one in owners):
            self._undecided[stored.uid] = stored  # nobody can say whether the owner exists: its kind may be served later
        elif existing:
            self._put_owners(stored, existing)
        else:
            finalizers = stored.object["metadata"].get("finalizers", ())
            self._delete(stored, _ORPHANING if ORPHAN in finalizers else _FOREGROUND if FOREGROUND in finalizers else _BACKGROUND)

    def _owner(self, dependent: Stored, reference: Object) -> Stored | None:
        """Return the owner that a reference names; None if it does not exist. An object counts only if its uid, kind
        and name are all as in the reference.
        """
        found = self._store.by_uid(reference["uid"])
        if found is None or found.namespace not in {"", dependent.namespace} or found.name != reference["name"]:
            return None
        return found if _type(found.object) == _type(reference) else None

    def _is_namespaced(self, reference: Object) -> bool:
        return any(kind.namespaced for kind in self._registry if (kind.group, kind.kind) == _type(reference))

    def _orphan_dependents(self, owner: Stored) -> None:
        for uid in self._dependents.pop(owner.uid, set()):
            if dependent := self._store.by_uid(uid):
                self._put_owners(dependent, [one for one in _references(dependent.object) if one["uid"] != owner.uid])
        self._drop_finalizer(owner, ORPHAN)

    def _delete_dependents_first(self, owner: Stored) -> None:
        dependents = self._dependents.get(owner.uid, set()).copy()
        for uid in dependents:
            dependent = self._store.by_uid(uid)
            if dependent is None or dependent.object["metadata"].get("deletionTimestamp"):
                continue
            references = _references(dependent.object)
            if any(self._is_lasting(dependent, one) for one in references):
                self._put_owners(dependent, [one for one in references if one["uid"] != owner.uid])
            elif below := self._dependents.get(uid):
                if any((found := self._store.by_uid(one)) and _waits(found.object) for one in below):  # round in a circle
                    self._put_owners(dependent, [{**one, "blockOwnerDeletion": False} for one in references])
                self._delete(dependent, _FOREGROUND)
            else:
                self._delete(dependent)
        if not any((found := self._store.by_uid(uid)) and _blocks(found.object, owner.uid) for uid in dependents):
            self._drop_finalizer(owner, FOREGROUND)

    def _is_lasting(self, dependent: Stored, reference: Object) -> bool:
        """Return whether the referenced owner exists and is not waiting until its dependents are deleted."""
        found = self._owner(dependent, reference)
        return found is not None and not _waits(found.object)

    def _empty_namespace(self, namespace: Stored) -> None:
        remaining = False
        for kind in {kind.storage: kind for kind in self._registry if kind.namespaced}.values():
            for stored in self._store.list(kind.storage, namespace.name):
                if not stored.object["metadata"].get("deletionTimestamp"):
                    self._delete(stored)
                remaining = remaining or self._store.by_uid(stored.uid) is not None
        current = self._store.get(_NAMESPACES, "", namespace.name)
        if remaining or current is None:
            return
        item: Object = copy_of(current.object)
        item.get("spec", {}).pop("finalizers", None)
        if item["metadata"].get("finalizers"):
            if item != current.object:
                self._store.put(_NAMESPACES, "", namespace.name, item)
        else:
            self._store.remove(_NAMESPACES, "", namespace.name)

    def _empty_definition(self, definition: Stored) -> None:
        resource = definition.name
        for stored in self._store.list(resource):
            if not stored.object["metadata"].get("deletionTimestamp"):
                self._delete(stored)
        if not self._store.count(resource) and (current := self._store.by_uid(definition.uid)):
            self._drop_finalizer(current, CLEANUP_FINALIZER)

    def _delete(self, stored: Stored, options: DeleteOptions = _BACKGROUND) -> None:
        kind = self._registry.by_storage(stored.resource)
        if kind is not None:
            delete(self._resources, kind, stored.namespace, stored.name, options)

    def _put_owners(self, stored: Stored, owners: list[Object]) -> None:
        item: Object = copy_of(stored.object)
        item["metadata"].pop("ownerReferences", None)
        if owners:
            item["metadata"]["ownerReferences"] = owners
        self._store.put(stored.resource, stored.namespace, stored.name, item)

    def _drop_finalizer(self, stored: Stored, finalizer: str) -> None:
        item: Object = copy_of(stored.object)
        finalizers = [name for name in item["metadata"].get("finalizers", ()) if name != finalizer]
        item["metadata"].pop("finalizers", None)
        if finalizers:
            item["metadata"]["finalizers"] = finalizers
            self._store.put(stored.resource, stored.namespace, stored.name, item)
        elif not item["metadata"].get("deletionGracePeriodSeconds"):
            self._store.remove(stored.resource, stored.namespace, stored.name)
        else:
            self._store.put(stored.resource, stored.namespace, stored.name, item)


def _references(item: Object) -> list[Object]:
    references: list[Object] = item["metadata"].get("ownerReferences", [])
    return references


def _called(reference: Object) -> tuple[str, ...]:
    return tuple(str(reference.get(name)) for name in ("apiVersion", "kind", "name", "uid"))


def _owner_uids(item: Object) -> list[str]:
    return [owner["uid"] for owner in _references(item)]


def _type(item: Object) -> tuple[str, str]:
    """Return the group and the kind of an object, or of the object that an owner reference names. The version is left
    out, because a reference may name any version.
    """
    return item["apiVersion"].rpartition("/")[0], item["kind"]


def _waits(item: Object) -> bool:
    """Return whether an object is deleted only after its dependents (foreground deletion)."""
    return FOREGROUND in item["metadata"].get("finalizers", ())


def _is_interesting(item: Object) -> bool:
    metadata = item["metadata"]
    return bool(metadata.get("deletionTimestamp") or metadata.get("ownerReferences") or item["kind"] == "CustomResourceDefinition")


def _blocks(dependent: Object, owner_uid: str) -> bool:
    return any(one["uid"] == owner_uid and one.get("blockOwnerDeletion") for one in _references(dependent))
