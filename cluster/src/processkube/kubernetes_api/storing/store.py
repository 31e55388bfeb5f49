"""Keeps objects in memory. Every change is written to one SQLite file before the change's writer or any watch sees it.

A committed change survives `kill -9` of this process (write-ahead log, `synchronous=NORMAL`). A power failure may lose
the last commits. A local cluster accepts this, because a write takes only a tenth of a millisecond in return. Objects
that the store returns are shared and must not be changed.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from processkube.kubernetes_api.objects.objects import Object, decode, encode, metadata_of

_log = logging.getLogger(__name__)

Key = tuple[str, str]
"""An object's key: (namespace, name). The namespace of a cluster-scoped object is ""."""

Label = tuple[str, str]
"""A label: (key, value)."""

HISTORY_LENGTH = 2000
"""Number of changes kept per resource, from which watches can resume. A watch from an older version gets 410 Gone."""
FIRST_RESOURCE_VERSION = 100

_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One object at one resource version, also in its encoded form."""

    resource: str
    namespace: str
    name: str
    version: int
    object: Object
    body: bytes

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    @property
    def uid(self) -> str:
        return str(metadata_of(self.object).get("uid", ""))

    def at(self, version: int) -> Stored:
        """Return this object with another resource version. When an object is deleted, watches see it with the resource
        version of the deletion.
        """
        item = {**self.object, "metadata": {**self.object["metadata"], "resourceVersion": str(version)}}
        return replace(self, version=version, object=item, body=encode(item))

    def labels(self) -> Iterable[Label]:
        return (metadata_of(self.object).get("labels") or {}).items()


@dataclass(slots=True, kw_only=True)
class StoredChange:
    """One committed change. `before` is the object before the change, with which watches compare their selectors; None
    for a new object.
    """

    type: EventType
    version: int
    now: Stored
    before: Stored | None
    line: bytes = field(default=b"")
    """The encoded watch event. The first watch that needs it makes it, and the other watches use it, too."""


Listener = Callable[[StoredChange], None]


class Store:
    """The store of all objects, and the only writer of its file. All its methods must be called on the same thread."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _TABLES)
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._by_uid: dict[str, Stored] = {}
        self._labelled: dict[tuple[str, Label], set[Key]] = {}
        self._history: dict[str, deque[StoredChange]] = {}
        self._floor: dict[str, int] = {}
        self._listeners: list[Listener] = []
        row = self._database.execute("SELECT value FROM counters WHERE name = 'resource_version'").fetchone()
        self._version: int = row[0] if row else FIRST_RESOURCE_VERSION
        self._start = self._version
        for resource, namespace, name, body in self._database.execute("SELECT resource, namespace, name, body FROM objects"):
            item: Object = decode(body)
            version = int(metadata_of(item)["resourceVersion"])
            self._remember(Stored(resource=resource, namespace=namespace, name=name, version=version, object=item, body=body))

    @property
    def version(self) -> int:
        """The resource version of the newest commit."""
        return self._version

    def oldest_resumable(self, resource: str) -> int:
        """Return the oldest resource version from which a watch of this resource can resume without missing a
        change.
        """
        return self._floor.get(resource, self._start)

    def get(self, resource: str, namespace: str, name: str) -> Stored | None:
        return self._objects.get(resource, {}).get((namespace, name))

    def by_uid(self, uid: str) -> Stored | None:
        return self._by_uid.get(uid)

    def list_at(self, resource: str, version: int, namespace: str = "") -> list[Stored]:
        """Return the objects that `list` returned at an earlier resource version, which must not be older than
        `oldest_resumable`.
        """
        found = dict(self._objects.get(resource, {}))
        for change in reversed(tuple(self.changes_since(resource, version))):
            found.pop(change.now.key, None)
            if change.before is not None:
                found[change.before.key] = change.before
        return [found[key] for key in sorted(found) if not namespace or key[0] == namespace]

    def list(self, resource: str, namespace: str = "", label: Label | None = None) -> list[Stored]:
        """Return the objects of a resource, sorted by key. If a namespace or a label is given, return only the objects
        that have it.
        """
        found = self._objects.get(resource, {})
        among = found if label is None else self._labelled.get((resource, label), ())
        keys = sorted(key for key in among if not namespace or key[0] == namespace)
        return [found[key] for key in keys]

    def count(self, resource: str) -> int:
        return len(self._objects.get(resource, {}))

    def resources(self) -> tuple[str, ...]:
        return tuple(resource for resource, found in self._objects.items() if found)

    def put(self, resource: str, namespace: str, name: str, item: Object) -> Stored:
        """Create or replace an object, and return it as stored.

        Sets `metadata.resourceVersion` in `item`. From then on `item` belongs to the store and must not be changed.
        """
        before = self.get(resource, namespace, name)
        version = self._version + 1
        item["metadata"]["resourceVersion"] = str(version)
        body = encode(item)
        self._commit(
            version,
            "INSERT INTO objects VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body",
            (resource, namespace, name, body),
        )
        now = Stored(resource=resource, namespace=namespace, name=name, version=version, object=item, body=body)
        if before is not None:
            self._forget(before)
        self._remember(now)
        self._publish(EventType.MODIFIED if before else EventType.ADDED, now, before)
        return now

    def remove(self, resource: str, namespace: str, name: str) -> Stored:
        """Remove an object. Return it as it was last stored, but with the resource version of the deletion, as watches
        see it.
        """
        before = self._objects[resource][(namespace, name)]
        version = self._version + 1
        self._commit(
            version,
            "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?",
            (resource, namespace, name),
        )
        self._forget(before)
        now = before.at(version)
        self._publish(EventType.DELETED, now, before)
        return now

    def changes_since(self, resource: str, version: int) -> Iterator[StoredChange]:
        """Yield the kept changes of a resource that are newer than `version`, oldest first."""
        return (change for change in self._history.get(resource, ()) if change.version > version)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every change after the change was committed. Return the function that ends the
        subscription.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def close(self) -> None:
        self._database.close()

    def _commit(self, version: int, statement: str, parameters: tuple[str | bytes, ...]) -> None:
        run = self._database.execute
        run("BEGIN IMMEDIATE")
        try:
            run(statement, parameters)
            run("INSERT INTO counters VALUES ('resource_version', ?) ON CONFLICT DO UPDATE SET value = excluded.value", (version,))
            run("COMMIT")
        except sqlite3.Error:
            run("ROLLBACK")
            raise
        self._version = version

    def _remember(self, stored: Stored) -> None:
        self._objects.setdefault(stored.resource, {})[stored.key] = stored
        self._by_uid[stored.uid] = stored
        for label in stored.labels():
            self._labelled.setdefault((stored.resource, label), set()).add(stored.key)

    def _forget(self, stored: Stored) -> None:
        del self._objects[stored.resource][stored.key]
        self._by_uid.pop(stored.uid, None)
        for label in stored.labels():
            keys = self._labelled[stored.resource, label]
            keys.discard(stored.key)
            if not keys:
                del self._labelled[stored.resource, label]

    def _publish(self, kind: EventType, now: Stored, before: Stored | None) -> None:
        change = StoredChange(type=kind, version=now.version, now=now, before=before)
        history = self._history.setdefault(now.resource, deque())
        history.append(change)
        if len(history) > HISTORY_LENGTH:
            self._floor[now.resource] = history.popleft().version
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - the change is durable: its writer and the other listeners must hear of it
                what = {"resource": now.resource, "object": now.key, "version": now.version}
                _log.exception("a listener failed over a change", extra=what)
