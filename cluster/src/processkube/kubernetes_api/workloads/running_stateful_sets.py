"""The controller of StatefulSets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from processkube.kubernetes_api.objects.errors import ApiError
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.storing.store import EventType, Key, Stored, StoredChange
from processkube.kubernetes_api.workloads.executing import Writer
from processkube.kubernetes_api.workloads.following import (
    CLAIMS,
    PODS,
    REVISIONS,
    STATEFUL_SETS,
    Controlled,
    Owners,
    orphans,
    selector_of,
)
from processkube.kubernetes_api.workloads.owners import claim
from processkube.kubernetes_api.workloads.plans import Create, Delete, Tell, Write
from processkube.kubernetes_api.workloads.stateful_sets import decide_stateful_set, ordinal_of
from processkube.kubernetes_api.writing.resources import Resources


class StatefulSets:
    """The controller of StatefulSets. It adopts and releases pods and revisions, and carries decisions out."""

    resource = STATEFUL_SETS

    def __init__(self, resources: Resources, controlled: Controlled) -> None:
        self._resources = resources
        self._store = resources.store
        self._controlled = controlled
        self._owners = Owners(self._store, STATEFUL_SETS)
        self._writer = Writer(resources, "statefulset-controller")

    def concerned(self, change: StoredChange) -> Iterator[Key]:
        if change.now.resource == STATEFUL_SETS:
            self._owners.note(change)
            yield change.now.key
        elif change.now.resource in {PODS, REVISIONS}:
            yield from self._owners.concerned(change)
        elif change.now.resource == CLAIMS and change.type is EventType.DELETED:
            for stored in self._store.list(STATEFUL_SETS, change.now.namespace):
                if stored.object["spec"].get("volumeClaimTemplates"):
                    yield stored.key

    def look(self, stored: Stored) -> datetime | None:
        stateful_set = stored.object
        pods = [pod for pod in self._claimed(stored, PODS) if ordinal_of(stateful_set, pod) is not None]
        revisions = self._claimed(stored, REVISIONS)
        claims = {one.name: one.object for one in self._store.list(CLAIMS, stored.namespace)}
        plan = decide_stateful_set(stateful_set, pods, revisions, claims, self._resources.clock())
        for write in plan.writes:
            self._carry_out(stateful_set, write)
        return plan.look_again_at

    def _claimed(self, stored: Stored, resource: str) -> list[Object]:
        selector = selector_of(stored.object)
        free = [one for one in orphans(self._store, resource, stored.namespace, selector) if _may_adopt(stored.object, one)]
        claimed = claim(stored.object, selector, self._controlled.of(resource, stored.uid) + free)
        self._writer.carry_out(claimed.writes)
        return list(claimed.items)

    def _carry_out(self, stateful_set: Object, write: Write) -> None:
        """Make a write. Record an event for each created or deleted pod or claim, and for each refusal."""
        kind = write.item["kind"] if isinstance(write, Create | Delete) else ""
        if kind not in {"Pod", "PersistentVolumeClaim"}:
            self._writer.write(write)
            return
        assert isinstance(write, Create | Delete)
        doing = "Create" if isinstance(write, Create) else "Delete"
        name, set_name = write.item["metadata"]["name"], stateful_set["metadata"]["name"]
        said, well = f"{doing} Pod {name} in StatefulSet {set_name}", "successful"
        if kind == "PersistentVolumeClaim":
            pod = f"{set_name}-{name.rpartition('-')[2]}"
            said, well = f"{doing} Claim {name} Pod {pod} in StatefulSet {set_name}", "success"
        try:
            self._writer.write(write)
        except ApiError as error:
            message = f"{said} failed error: {error.message}"
            self._writer.write(Tell(about=stateful_set, reason=f"Failed{doing}", message=message, event_type="Warning"))
            raise
        self._writer.write(Tell(about=stateful_set, reason=f"Successful{doing}", message=f"{said} {well}"))

    def clear(self, key: Key) -> None:
        """Do nothing, because the garbage collector removes the objects of a StatefulSet that is gone."""


def _may_adopt(stateful_set: Object, orphan: Object) -> bool:
    """Return whether the StatefulSet may adopt an orphan. A pod must have one of the names that the StatefulSet
    gives.
    """
    return orphan["kind"] != "Pod" or ordinal_of(stateful_set, orphan) is not None
