"""The controller of LeaderWorkerSets, which works if the cluster has their definition."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from processkube.kubernetes_api.objects.objects import Object, timestamp
from processkube.kubernetes_api.storing.store import Key, Stored, StoredChange
from processkube.kubernetes_api.workloads.executing import Writer
from processkube.kubernetes_api.workloads.following import PODS, STATEFUL_SETS, Controlled
from processkube.kubernetes_api.workloads.leader_worker_sets import decide_leader_worker_set
from processkube.kubernetes_api.workloads.owners import is_controlled_by
from processkube.kubernetes_api.writing.pod_admission import SET_NAME
from processkube.kubernetes_api.writing.resources import Resources

LEADER_WORKER_SETS = "leaderworkersets.leaderworkerset.x-k8s.io"
SERVICES = "services"


class LeaderWorkerSets:
    """The controller of LeaderWorkerSets. It makes the Service and the StatefulSets of each set, and restarts
    groups.
    """

    resource = LEADER_WORKER_SETS

    def __init__(self, resources: Resources, controlled: Controlled) -> None:
        self._resources = resources
        self._store = resources.store
        self._controlled = controlled
        self._writer = Writer(resources, "leaderworkerset")

    def concerned(self, change: StoredChange) -> Iterator[Key]:
        if change.now.resource == LEADER_WORKER_SETS:
            yield change.now.key
        elif change.now.resource in {PODS, STATEFUL_SETS, SERVICES} and (name := dict(change.now.labels()).get(SET_NAME)):
            yield change.now.namespace, name

    def look(self, stored: Stored) -> datetime | None:
        item = stored.object
        if "leaderWorkerTemplate" not in item.get("spec", {}):
            return None  # a definition without the real one's schema
        service = self._store.get(SERVICES, stored.namespace, stored.name)
        sets = self._of_set(STATEFUL_SETS, stored)
        leaders = next((one for one in sets if is_controlled_by(one, item)), None)
        workers = {one["metadata"]["name"]: one for one in sets if one is not leaders}
        now, pods = timestamp(self._resources.clock()), self._of_set(PODS, stored)
        plan = decide_leader_worker_set(item, service.object if service else None, leaders, pods, workers, now)
        self._writer.carry_out(plan.writes)
        return plan.look_again_at

    def _of_set(self, resource: str, stored: Stored) -> list[Object]:
        return [one.object for one in self._store.list(resource, stored.namespace, (SET_NAME, stored.name))]

    def clear(self, key: Key) -> None:
        """Do nothing, because the garbage collector removes the objects of a set that is gone."""
