"""Deployments: one ReplicaSet per template. The old ReplicaSets are scaled down and the new one up, until all pods have
the newest template.

This module follows pkg/controller/deployment of Kubernetes. As in Kubernetes, a controller takes one step each time it
looks at a Deployment, and the writes of this step make it look again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from processkube.kubernetes_api.objects.objects import Object, copy_of
from processkube.kubernetes_api.workloads.conditions import condition_in
from processkube.kubernetes_api.workloads.deployment_status import (
    PROGRESSING,
    condition,
    counted_status,
    deadline_of,
    has_deadline,
    is_complete,
    note_pause,
    rollout_status,
    set_condition,
)
from processkube.kubernetes_api.workloads.plans import Change, ChangeStatus, Create, Delete, Plan, Tell, Write
from processkube.kubernetes_api.workloads.pod_states import is_deleted
from processkube.kubernetes_api.workloads.rollouts import (
    DESIRED,
    NEVER,
    REVISION,
    annotate,
    annotate_replicas,
    by_age,
    count_in_status,
    is_rolling,
    max_surge,
    max_unavailable,
    new_replica_set,
    number_in,
    of_template,
    replicas_of,
    replicas_of_new,
    revision_of,
    share_of,
)


def decide_deployment(
    deployment: Object, replica_sets: Iterable[Object], with_running_pods: Collection[str], taken_names: Collection[str], now: datetime
) -> Plan:
    """Return the writes of a Deployment's next step.

    `replica_sets` are the ReplicaSets that the Deployment controls. `with_running_pods` has the uids of the ReplicaSets
    that have unfinished pods. `taken_names` are the names of the namespace's other ReplicaSets.
    """
    look = _Look(deployment, replica_sets, now)
    if is_deleted(deployment):
        look.find_new()
        return look.plan(counted_status(look.deployment, look.all, look.new, now))
    note_pause(look.deployment, now)
    look.find_new()
    spec = deployment["spec"]
    if spec.get("paused") or any(number_in(one, DESIRED) not in {None, replicas_of(deployment)} for one in look.active(look.all)):
        look.scale()
        if spec.get("paused"):
            look.forget_old()
        return look.plan(counted_status(look.deployment, look.all, look.new, now))
    if is_rolling(deployment):
        look.roll(taken_names)
    else:
        look.recreate(taken_names, with_running_pods)
    return look.plan(rollout_status(look.deployment, look.all, look.new, now))


class _Look:
    """Copies of a Deployment and of its ReplicaSets. A step changes the copies, and `plan` returns the changes as
    writes.
    """

    def __init__(self, deployment: Object, replica_sets: Iterable[Object], now: datetime) -> None:
        self.now = now
        self._read = {one["metadata"]["name"]: one for one in replica_sets}
        self._deployment = deployment
        self.deployment: Object = copy_of(deployment)
        self.deployment.setdefault("status", {})
        self.all: list[Object] = by_age(copy_of(list(self._read.values())))
        self.new: Object | None = None
        self._events: list[Tell] = []
        self._deleted: list[Object] = []

    @property
    def old(self) -> list[Object]:
        """All ReplicaSets except the one with the Deployment's template, oldest first."""
        return [one for one in self.all if one is not self.new]

    def active(self, replica_sets: Iterable[Object]) -> list[Object]:
        return [one for one in replica_sets if replicas_of(one) > 0]

    def find_new(self) -> None:
        """Find the ReplicaSet with the Deployment's template, and give its revision number to the Deployment."""
        self.new = of_template(self.deployment, self.all)
        if self.new is None:
            return
        annotate(self.deployment, self.new, 1 + max(map(revision_of, self.old), default=0))
        if self.new["spec"].get("minReadySeconds", 0) != (least := self.deployment["spec"].get("minReadySeconds", 0)):
            self.new["spec"]["minReadySeconds"] = least
        self._number(self.new)
        if has_deadline(self.deployment) and condition_in(self.deployment["status"].get("conditions", []), PROGRESSING) is None:
            self._progress("FoundNewReplicaSet", f'Found new replica set "{self.new["metadata"]["name"]}"')

    def make_new(self, taken_names: Collection[str]) -> Object:
        if self.new is None:
            self.new = new_replica_set(self.deployment, self.all, taken_names)
            self.all.append(self.new)
            name = self.new["metadata"]["name"]
            self._number(self.new)
            if has_deadline(self.deployment):
                self._progress("NewReplicaSetCreated", f'Created new replica set "{name}"')
            if size := replicas_of(self.new):
                self._tell(f"Scaled up replica set {name} from 0 to {size}")
        return self.new

    def roll(self, taken_names: Collection[str]) -> None:
        """Take one step of a rolling update. If the new ReplicaSet can grow within the surge, scale it up. Otherwise
        scale the old ReplicaSets down.
        """
        new = self.make_new(taken_names)
        wanted = replicas_of(self.deployment)
        target = wanted if replicas_of(new) > wanted else replicas_of_new(self.deployment, self.all, new)
        if replicas_of(new) != wanted and self._resize(new, target):
            return
        if not self._lower_old(new) and is_complete(self.deployment, self.deployment["status"]):
            self.forget_old()

    def recreate(self, taken_names: Collection[str], with_running_pods: Collection[str]) -> None:
        """Scale the old ReplicaSets to 0. Once all their pods have ended, scale the new ReplicaSet up."""
        lowered = [one for one in self.active(self.old) if self._resize(one, 0)]
        uids = {one["metadata"]["uid"] for one in self.old}
        if lowered or count_in_status(self.old, "replicas") or uids & set(with_running_pods):
            return
        self._resize(self.make_new(taken_names), replicas_of(self.deployment))
        if is_complete(self.deployment, self.deployment["status"]):
            self.forget_old()

    def _lower_old(self, new: Object) -> bool:
        """Scale the old ReplicaSets down as far as availability allows, first by their unavailable pods. Return whether
        a size has changed.
        """
        least = replicas_of(self.deployment) - max_unavailable(self.deployment)
        pending = replicas_of(new) - count_in_status([new], "availableReplicas")
        room = sum(map(replicas_of, self.all)) - least - pending
        old = self.active(self.old)
        if not old or room <= 0:
            return False
        lowered = 0
        for one in old:
            unhealthy = replicas_of(one) - count_in_status([one], "availableReplicas")
            if (count := min(room - lowered, unhealthy)) > 0:
                self._resize(one, replicas_of(one) - count)
                lowered += count
        spare = count_in_status(self.all, "availableReplicas") - least
        for one in old:
            if (count := min(spare, replicas_of(one))) > 0:
                self._resize(one, replicas_of(one) - count)
                spare -= count
                lowered += count
        return lowered > 0

    def scale(self) -> None:
        """Distribute a changed number of replicas over the ReplicaSets in proportion to their sizes."""
        wanted = replicas_of(self.deployment)
        active = self.active(self.all)
        if len(active) < 2:
            only = active[0] if active else self.new or (self.old[-1] if self.old else None)
            if only is not None:
                self._resize(only, wanted)
            return
        if self._is_saturated():
            for one in self.active(self.old):
                self._resize(one, 0)
        elif is_rolling(self.deployment):
            self._share(active)

    def _is_saturated(self) -> bool:
        new, wanted = self.new, replicas_of(self.deployment)
        counts = (replicas_of(new), number_in(new, DESIRED), count_in_status([new], "availableReplicas")) if new else ()
        return bool(counts) and all(count == wanted for count in counts)

    def _share(self, active: Sequence[Object]) -> None:
        wanted = replicas_of(self.deployment)
        to_add = (wanted + max_surge(self.deployment) if wanted else 0) - sum(map(replicas_of, active))
        newest_first = sorted(active, key=lambda one: one["metadata"]["creationTimestamp"], reverse=to_add > 0)
        largest_first = sorted(newest_first, key=replicas_of, reverse=True)
        sizes, added = [], 0
        for one in largest_first:
            share = share_of(self.deployment, one, to_add, added)
            sizes.append(replicas_of(one) + share)
            added += share
        sizes[0] = max(0, sizes[0] + to_add - added)
        for one, size in zip(largest_first, sizes, strict=True):
            self._resize(one, size)
            annotate_replicas(self.deployment, one)

    def forget_old(self) -> None:
        """Delete the oldest of the old ReplicaSets, so that only as many as `revisionHistoryLimit` are left. A
        ReplicaSet with pods is not deleted.
        """
        limit = self.deployment["spec"].get("revisionHistoryLimit", NEVER)
        kept = sorted((one for one in self.old if not is_deleted(one)), key=revision_of)
        for one in kept[: max(0, len(kept) - limit)]:
            status = one.get("status", {})
            behind = status.get("observedGeneration", 0) < one["metadata"]["generation"]
            if not (status.get("replicas") or replicas_of(one) or behind):
                self._deleted.append(one)

    def _resize(self, replica_set: Object, size: int) -> bool:
        """Change the size of a ReplicaSet. Return False if it already has this size."""
        before = replicas_of(replica_set)
        if before == size:
            return False
        replica_set["spec"]["replicas"] = size
        annotate_replicas(self.deployment, replica_set)
        self._tell(f"Scaled {'up' if size > before else 'down'} replica set {replica_set['metadata']['name']} from {before} to {size}")
        return True

    def _number(self, new: Object) -> None:
        self.deployment["metadata"].setdefault("annotations", {})[REVISION] = new["metadata"]["annotations"][REVISION]

    def _progress(self, reason: str, message: str) -> None:
        set_condition(self.deployment["status"], condition(PROGRESSING, "True", reason, message, self.now))

    def _tell(self, message: str) -> None:
        self._events.append(Tell(about=self._deployment, reason="ScalingReplicaSet", message=message))

    def plan(self, status: Object) -> Plan:
        """Return the writes that change the stored objects into the copies, and the Deployment's status into
        `status`.
        """
        writes: list[Write] = []
        for one in self.all:
            read = self._read.get(one["metadata"]["name"])
            if read is None:
                writes.append(Create(item=one))
            elif read != one:
                writes.append(Change(item=one))
        writes += [Delete(item=one) for one in self._deleted]
        writes += self._events
        if self.deployment["metadata"] != self._deployment["metadata"]:
            writes.append(Change(item={**self._deployment, "metadata": self.deployment["metadata"]}))
        if status != self._deployment.get("status", {}):
            writes.append(ChangeStatus(item={**self._deployment, "status": status}))
        return Plan(writes=tuple(writes), look_again_at=deadline_of(self.deployment, status))
