"""Common code of the controllers of workloads: which owner controls which objects, and which owners a change
concerns.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

from processkube.kubernetes_api.objects.objects import Object, at_path
from processkube.kubernetes_api.objects.selectors import LabelSelector, selector_of_object
from processkube.kubernetes_api.storing.selector_index import SelectorIndex
from processkube.kubernetes_api.storing.store import EventType, Key, Store, Stored, StoredChange
from processkube.kubernetes_api.workloads.owners import controller_of

PODS = "pods"
DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS = "deployments.apps", "replicasets.apps", "statefulsets.apps", "jobs.batch"
REVISIONS, CLAIMS = "controllerrevisions.apps", "persistentvolumeclaims"


class Refused(Exception):
    """Raised when a write for an object was refused. The object's status has the reason, and the controller must look
    at the object again later.
    """


class Controller(Protocol):
    """A controller of the objects of one resource."""

    resource: str

    def concerned(self, change: StoredChange) -> Iterator[Key]:
        """Yield the keys of the controller's objects at which it must look because of this change."""
        ...

    def look(self, stored: Stored) -> datetime | None:
        """Take the next step for an object. Return the time at which to look at it again; None = only after a change.

        Raises ApiError or Refused if a write was refused.
        """
        ...

    def clear(self, key: Key) -> None:
        """Do the remaining work for an object that was removed."""
        ...


class Controlled:
    """An index of objects by the uid of their controller. `note` must be called for every change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: dict[tuple[str, str], set[Key]] = {}
        for resource in store.resources():
            for stored in store.list(resource):
                self._add(stored)

    def note(self, change: StoredChange) -> None:
        if change.before is not None:
            self._discard(change.before)
        if change.type is not EventType.DELETED:
            self._add(change.now)

    def of(self, resource: str, uid: str) -> list[Object]:
        """Return the objects of a resource that the controller with this uid controls, sorted by name."""
        keys = sorted(self._keys.get((resource, uid), ()))
        return [found.object for namespace, name in keys if (found := self._store.get(resource, namespace, name)) is not None]

    def _add(self, stored: Stored) -> None:
        if (owner := controller_of(stored.object)) is not None:
            self._keys.setdefault((stored.resource, owner["uid"]), set()).add(stored.key)

    def _discard(self, stored: Stored) -> None:
        owner = controller_of(stored.object)
        if owner is None or (keys := self._keys.get((stored.resource, owner["uid"]))) is None:
            return
        keys.discard(stored.key)
        if not keys:
            del self._keys[stored.resource, owner["uid"]]


class Owners:
    """The objects of one kind that own other objects by a selector. It finds the owners that a change of another object
    concerns.
    """

    def __init__(self, store: Store, resource: str) -> None:
        self._store = store
        self._resource = resource
        self._selectors = SelectorIndex()
        for stored in store.list(resource):
            self._selectors.note(stored.key, selector_of(stored.object))

    def note(self, change: StoredChange) -> None:
        """Record a change of an owner, which may change its selector."""
        self._selectors.note(change.now.key, None if change.type is EventType.DELETED else selector_of(change.now.object))

    def concerned(self, change: StoredChange) -> Iterator[Key]:
        """Yield the keys of the owners that control the changed object now or controlled it before the change. An
        object without a controller may be adopted. So if it is new or its labels have changed, also yield the owners
        whose selectors match it.
        """
        for stored in (change.before, change.now):
            if stored is not None and (owner := self._owner(stored)) is not None:
                yield owner.key
        now = change.now.object
        if change.type is EventType.DELETED or controller_of(now) is not None:
            return
        if change.before is None or _membership(change.before.object) != _membership(now):
            yield from self._selectors.matching(change.now.namespace, dict(change.now.labels()))

    def _owner(self, stored: Stored) -> Stored | None:
        reference = controller_of(stored.object)
        found = self._store.by_uid(reference["uid"]) if reference is not None else None
        return found if found is not None and found.resource == self._resource else None


def selector_of(item: Object) -> LabelSelector:
    """Return the selector of a workload."""
    return selector_of_object(at_path(item, "spec", "selector"))


def orphans(store: Store, resource: str, namespace: str, selector: LabelSelector) -> list[Object]:
    """Return the objects of a namespace that the selector matches and that have no controller."""
    found = store.list(resource, namespace, selector.label())
    return [one.object for one in found if controller_of(one.object) is None and selector.matches(dict(one.labels()))]


def _membership(item: Object) -> tuple[object, object]:
    return item["metadata"].get("labels"), controller_of(item)
