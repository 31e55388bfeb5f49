"""The controllers of Deployments and ReplicaSets. They read the owned objects, decide, and write."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.storing.store import EventType, Key, Stored, StoredChange
from processkube.kubernetes_api.workloads.deployments import decide_deployment
from processkube.kubernetes_api.workloads.executing import Writer
from processkube.kubernetes_api.workloads.following import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    Controlled,
    Owners,
    Refused,
    orphans,
    selector_of,
)
from processkube.kubernetes_api.workloads.owners import claim, controller_of
from processkube.kubernetes_api.workloads.plans import ChangeStatus
from processkube.kubernetes_api.workloads.pod_states import is_finished
from processkube.kubernetes_api.workloads.replica_sets import look_again_at, replica_set_status, replica_writes
from processkube.kubernetes_api.writing.resources import Resources


class ReplicaSets:
    """The controller of ReplicaSets."""

    resource = REPLICA_SETS

    def __init__(self, resources: Resources, controlled: Controlled) -> None:
        self._resources = resources
        self._store = resources.store
        self._controlled = controlled
        self._owners = Owners(self._store, REPLICA_SETS)
        self._writer = Writer(resources, "replicaset-controller")

    def concerned(self, change: StoredChange) -> Iterator[Key]:
        if change.now.resource == REPLICA_SETS:
            self._owners.note(change)
            yield change.now.key
        elif change.now.resource == PODS:
            yield from self._owners.concerned(change)

    def look(self, stored: Stored) -> datetime | None:
        replica_set, selector, now = stored.object, selector_of(stored.object), self._resources.clock()
        candidates = self._controlled.of(PODS, stored.uid) + orphans(self._store, PODS, stored.namespace, selector)
        claimed = claim(replica_set, selector, [pod for pod in candidates if not is_finished(pod)])
        self._writer.carry_out(claimed.writes)
        writes = replica_writes(replica_set, claimed.items, self._related(stored), now)
        failure = self._writer.write_for(replica_set, writes)
        status = replica_set_status(replica_set, claimed.items, failure, now)
        if status != replica_set.get("status"):
            self._writer.write(ChangeStatus(item={**replica_set, "status": status}))
        if failure:
            raise Refused(failure)
        return look_again_at(replica_set, claimed.items, now)

    def clear(self, key: Key) -> None:
        """Do nothing, because the garbage collector removes the pods of a ReplicaSet that is gone."""

    def _related(self, stored: Stored) -> list[Object]:
        """Return the pods of all ReplicaSets of the Deployment that controls this ReplicaSet. If nothing controls it,
        return its own pods.
        """
        owner = controller_of(stored.object)
        uids = [one["metadata"]["uid"] for one in self._controlled.of(REPLICA_SETS, owner["uid"])] if owner else [stored.uid]
        return [pod for uid in uids for pod in self._controlled.of(PODS, uid)]


class Deployments:
    """The controller of Deployments."""

    resource = DEPLOYMENTS

    def __init__(self, resources: Resources, controlled: Controlled) -> None:
        self._resources = resources
        self._store = resources.store
        self._controlled = controlled
        self._owners = Owners(self._store, DEPLOYMENTS)
        self._writer = Writer(resources, "deployment-controller")

    def concerned(self, change: StoredChange) -> Iterator[Key]:
        if change.now.resource == DEPLOYMENTS:
            self._owners.note(change)
            yield change.now.key
        elif change.now.resource == REPLICA_SETS:
            yield from self._owners.concerned(change)
        elif change.now.resource == PODS and (change.type is EventType.DELETED or is_finished(change.now.object)):
            yield from self._waiting_for(change.now)

    def look(self, stored: Stored) -> datetime | None:
        deployment, selector = stored.object, selector_of(stored.object)
        candidates = self._controlled.of(REPLICA_SETS, stored.uid) + orphans(self._store, REPLICA_SETS, stored.namespace, selector)
        claimed = claim(deployment, selector, candidates)
        self._writer.carry_out(claimed.writes)
        names = {one["metadata"]["name"] for one in claimed.items}
        plan = decide_deployment(
            deployment,
            claimed.items,
            {uid for one in claimed.items if self._has_running_pods(uid := one["metadata"]["uid"])},
            {one.name for one in self._store.list(REPLICA_SETS, stored.namespace) if one.name not in names},
            self._resources.clock(),
        )
        self._writer.carry_out(plan.writes)
        return plan.look_again_at

    def clear(self, key: Key) -> None:
        """Do nothing, because the garbage collector removes the ReplicaSets of a Deployment that is gone."""

    def _has_running_pods(self, uid: str) -> bool:
        return any(not is_finished(pod) for pod in self._controlled.of(PODS, uid))

    def _waiting_for(self, pod: Stored) -> Iterator[Key]:
        """Yield the key of the Deployment to which an ended pod belongs. A Deployment with the strategy Recreate waits
        until its old pods have ended, so it must be looked at again.
        """
        reference = controller_of(pod.object)
        replica_set = self._store.by_uid(reference["uid"]) if reference else None
        owner = controller_of(replica_set.object) if replica_set is not None else None
        deployment = self._store.by_uid(owner["uid"]) if owner else None
        if deployment is not None and deployment.resource == DEPLOYMENTS:
            yield deployment.key
