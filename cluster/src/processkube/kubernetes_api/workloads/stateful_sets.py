"""StatefulSets: pods with numbers. They are created from the lowest number up, deleted from the highest number down,
and updated under their numbers.

This module follows pkg/controller/statefulset of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from processkube.kubernetes_api.objects.objects import Object, at_path
from processkube.kubernetes_api.workloads.plans import Change, ChangeStatus, Create, Delete, Plan, Write
from processkube.kubernetes_api.workloads.pod_states import is_available, is_deleted, is_finished, next_availability
from processkube.kubernetes_api.workloads.revisions import Revisions, forgotten, revisions_of, with_template_of
from processkube.kubernetes_api.workloads.templates import pod_from
from processkube.kubernetes_api.workloads.volume_claims import claims_of, is_stale, owned_rightly, with_claims
from processkube.kubernetes_api.writing.pods import is_ready

POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
REVISION_LABEL = "controller-revision-hash"


def ordinal_of(stateful_set: Object, pod: Object) -> int | None:
    """Return the pod's number in the StatefulSet; None if the pod's name does not belong to the StatefulSet."""
    found = re.fullmatch(r"(.*)-([0-9]+)", pod["metadata"]["name"])
    return int(found[2]) if found and found[1] == stateful_set["metadata"]["name"] else None


def decide_stateful_set(
    stateful_set: Object, pods: Sequence[Object], known_revisions: Sequence[Object], claims: Mapping[str, Object], now: datetime
) -> Plan:
    """Return the writes of a StatefulSet's next step.

    `pods` and `known_revisions` are the objects that the StatefulSet controls. `claims` are the namespace's
    PersistentVolumeClaims by name.
    """
    revisions = revisions_of(stateful_set, known_revisions)
    look = _Look(stateful_set, pods, revisions, claims, now)
    if not is_deleted(stateful_set):
        look.act()
    live = {one["metadata"]["name"] for one in (revisions.current, revisions.update)}
    live |= {_revision_of(pod) for pod in pods}
    writes = [*revisions.writes, *look.writes, *forgotten(stateful_set, known_revisions, live)]
    status = look.status()
    if status != stateful_set.get("status"):
        writes.append(ChangeStatus(item={**stateful_set, "status": status}))
    return Plan(writes=tuple(writes), look_again_at=look.look_again_at())


class _Look:
    def __init__(
        self, stateful_set: Object, pods: Sequence[Object], revisions: Revisions, claims: Mapping[str, Object], now: datetime
    ) -> None:
        self._set, self._spec, self._pods, self._claims, self._now = stateful_set, stateful_set["spec"], pods, claims, now
        self._current, self._update = (one["metadata"]["name"] for one in (revisions.current, revisions.update))
        self._sets = {self._current: with_template_of(stateful_set, revisions.current)}
        self._sets[self._update] = with_template_of(stateful_set, revisions.update)
        self._least = self._spec.get("minReadySeconds", 0)
        self._is_ordered = self._spec["podManagementPolicy"] == "OrderedReady"
        self._start = at_path(self._spec, "ordinals", "start", default=0)
        numbered = {number: pod for pod in pods if (number := ordinal_of(stateful_set, pod)) is not None}
        self._wanted = range(self._start, self._start + self._spec["replicas"])
        self._present = {number: pod for number, pod in numbered.items() if number in self._wanted}
        self._condemned = [numbered[number] for number in sorted(numbered, reverse=True) if number not in self._wanted]
        self._deleted_for_update = 0
        self.writes: list[Write] = []

    def act(self) -> None:
        if self._fill() and self._scale_in() and self._spec["updateStrategy"]["type"] == "RollingUpdate":
            self._roll()

    def _fill(self) -> bool:
        """Create missing pods and replace finished pods, from the lowest number up. Return False if the pods are
        ordered and later steps must wait.
        """
        for number in self._wanted:
            is_settled = self._settle(number)
            if self._is_ordered and not is_settled:
                return False
        return True

    def _settle(self, number: int) -> bool:
        """Create, replace or correct one pod. Return False if an ordered StatefulSet must not handle the next pods
        yet.
        """
        pod = self._present.get(number)
        if pod is None:
            self._create(number)
            return False
        if is_finished(pod):
            if not is_deleted(pod):
                self.writes.append(Delete(item=pod))
            return False
        if at_path(pod, "status", "phase") == "Pending":
            self._claim(number)
        if is_deleted(pod) or not self._is_available(pod):
            if not self._is_ordered:
                self._correct(number, pod)
            return False
        self._correct(number, pod)
        return True

    def _create(self, number: int) -> None:
        of_set = self._sets[self._revision_for(number)]
        name = f"{self._set['metadata']['name']}-{number}"
        claims = claims_of(of_set, number)
        if any(is_stale(found, of_set, name) for one in claims.values() if (found := self._claims.get(one["metadata"]["name"]))):
            return
        self._claim(number)
        pod = pod_from(of_set["spec"]["template"], of_set)
        metadata = pod["metadata"]
        metadata |= {"name": name, "labels": {**metadata.get("labels", {}), POD_NAME: name, POD_INDEX: str(number)}}
        metadata["labels"][REVISION_LABEL] = self._revision_for(number)
        pod["spec"] |= {"hostname": name}
        if service := self._spec.get("serviceName"):
            pod["spec"]["subdomain"] = service
        self.writes.append(Create(item=with_claims(pod, claims)))

    def _claim(self, number: int) -> None:
        """Create the missing PersistentVolumeClaims of a pod, with the owners that the retention policy requires."""
        for claim in claims_of(self._set, number).values():
            if claim["metadata"]["name"] not in self._claims:
                pod = {"kind": "Pod", "metadata": {"name": f"{self._set['metadata']['name']}-{number}"}}
                self.writes.append(Create(item=owned_rightly(claim, self._set, pod, is_wanted=True) or claim))

    def _revision_for(self, number: int) -> str:
        """Return the name of the revision for a new pod: the current revision if the pod's number is below the
        partition, else the updated one.
        """
        rolling = self._spec["updateStrategy"].get("rollingUpdate")
        is_kept = bool(rolling) and number < self._start + rolling.get("partition", 0)
        return str(self._current if is_kept else self._update)

    def _correct(self, number: int, pod: Object) -> None:
        """Restore the labels with a pod's name and number, and the owner references of its claims."""
        name = pod["metadata"]["name"]
        if pod["metadata"].get("labels", {}).get(POD_NAME) != name:
            labels = {**pod["metadata"].get("labels", {}), POD_NAME: name, POD_INDEX: str(number)}
            self.writes.append(Change(item={**pod, "metadata": {**pod["metadata"], "labels": labels}}))
        self._hand_over(number, pod)

    def _hand_over(self, number: int, pod: Object) -> None:
        for claim in claims_of(self._set, number).values():
            found = self._claims.get(claim["metadata"]["name"])
            if found and (changed := owned_rightly(found, self._set, pod, is_wanted=number in self._wanted)):
                self.writes.append(Change(item=changed))

    def _scale_in(self) -> bool:
        """Delete excess pods, from the highest number down. Return False if the pods are ordered and later steps must
        wait.
        """
        for pod in self._condemned:
            self._hand_over(ordinal_of(self._set, pod) or 0, pod)
        first_unavailable = next((pod for pod in reversed(self._condemned) if self._is_unavailable(pod)), None)
        for pod in self._condemned:
            if not is_deleted(pod):
                if self._is_ordered and not self._is_available(pod) and pod is not first_unavailable:
                    return False
                self.writes.append(Delete(item=pod))
            if self._is_ordered:
                return False
        return True

    def _roll(self) -> None:
        """Delete the pod with the highest number that has an older revision. Delete nothing while a pod with a higher
        number is unavailable.
        """
        first = (self._spec["updateStrategy"].get("rollingUpdate") or {}).get("partition", 0)
        for number in reversed(self._wanted[first:]):
            pod = self._present.get(number)
            if pod is None:
                return
            if _revision_of(pod) != self._update and not is_deleted(pod):
                self.writes.append(Delete(item=pod))
                self._deleted_for_update = 1
                return
            if self._is_unavailable(pod):
                return

    def _is_available(self, pod: Object) -> bool:
        return is_available(pod, self._least, self._now)

    def _is_unavailable(self, pod: Object) -> bool:
        return is_deleted(pod) or not self._is_available(pod)

    def status(self) -> Object:
        """Return the StatefulSet's status, counted from its pods before the writes."""
        pods = [pod for pod in self._pods if ordinal_of(self._set, pod) is not None]
        living = [pod for pod in pods if not is_deleted(pod)]
        replicas = self._spec["replicas"]
        ready = [pod for pod in pods if at_path(pod, "status", "phase") == "Running" and is_ready(pod)]
        updated = sum(_revision_of(pod) == self._update for pod in living)
        current = sum(_revision_of(pod) == self._current for pod in living) - self._deleted_for_update
        revision = self._current
        if self._spec["updateStrategy"]["type"] == "RollingUpdate" and updated == len(ready) == len(pods) == replicas:
            current, revision = updated, self._update
        counts = {"readyReplicas": len(ready), "currentReplicas": current, "updatedReplicas": updated}
        return {
            "observedGeneration": self._set["metadata"]["generation"],
            "replicas": len(pods),
            **{name: count for name, count in counts.items() if count},
            "availableReplicas": sum(map(self._is_available, ready)),
            "currentRevision": revision,
            "updateRevision": self._update,
            "collisionCount": self._set.get("status", {}).get("collisionCount", 0),
        }

    def look_again_at(self) -> datetime | None:
        """Return the next time at which a pod becomes available without any change; None if there is no such time."""
        return next_availability(self._pods, self._least, self._now) if self._least else None


def _revision_of(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get(REVISION_LABEL, ""))
