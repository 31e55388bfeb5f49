"""Deletes pods that must leave their node, because the node has a NoExecute taint, because the node was deleted, or
because a client evicts the pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from processkube.kubernetes_api.collecting.conditions import record_event, set_condition
from processkube.kubernetes_api.collecting.deleting import DeleteOptions, check_preconditions, delete
from processkube.kubernetes_api.collecting.grace_periods import QUARANTINE_SECONDS
from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.objects.objects import Object, at_path, copy_of, timestamp
from processkube.kubernetes_api.storing.store import Stored
from processkube.kubernetes_api.writing.pods import FINISHED
from processkube.kubernetes_api.writing.resources import Resources
from processkube.tolerations import tolerates

NO_EXECUTE = "NoExecute"


class Evictions:
    """Deletes pods whose nodes have taints or were deleted. `check` must be called repeatedly.

    The times since which taints exist or nodes are missing are kept only in memory. They are lost when the process
    restarts, as in kube-controller-manager.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._tainted_since: dict[str, float] = {}
        """Uid of a pod → the time since which the pod's node has had NoExecute taints."""
        self._missing_since: dict[str, float] = {}
        """Name of a node → the time since which the Node object has been missing."""

    def check(self, now: float) -> None:
        """Delete the pods that must leave their node by now. `now` is in seconds of a monotonic clock."""
        nodes = {stored.name: stored.object for stored in self._resources.store.list("nodes")}
        placed = [
            (stored, str(node)) for stored in self._resources.store.list("pods") if (node := at_path(stored.object, "spec", "nodeName"))
        ]
        missing = {name for _, name in placed} - nodes.keys()
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        tainted: dict[str, float] = {}
        for pod, name in placed:
            if name in missing:
                if now - self._missing_since[name] >= QUARANTINE_SECONDS:
                    self._remove(pod)
                continue
            taints = [taint for taint in at_path(nodes[name], "spec", "taints", default=[]) if taint.get("effect") == NO_EXECUTE]
            if not taints or pod.object["metadata"].get("deletionTimestamp"):
                continue
            tainted[pod.uid] = self._tainted_since.get(pod.uid, now)
            tolerated = tolerated_seconds(at_path(pod.object, "spec", "tolerations", default=[]), taints)
            if tolerated is not None and now - tainted[pod.uid] >= tolerated:
                self._evict(pod)
        self._tainted_since = tainted

    def _evict(self, pod: Stored) -> None:
        record_event(
            self._resources,
            pod.object,
            event_type="Normal",
            reason="TaintManagerEviction",
            message=f"Marking for deletion Pod {pod.namespace}/{pod.name}",
            component="taint-eviction-controller",
        )
        item = _disrupted(self._resources, pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        self._resources.store.put("pods", pod.namespace, pod.name, item)
        self._delete(pod, DeleteOptions())

    def _remove(self, pod: Stored) -> None:
        """Delete a pod at once, without a grace period, because there is no kubelet that could end its processes."""
        if at_path(pod.object, "status", "phase") not in FINISHED:
            item = _disrupted(self._resources, pod, "DeletionByPodGC", "PodGC: node no longer exists")
            item["status"]["phase"] = "Failed"
            self._resources.store.put("pods", pod.namespace, pod.name, item)
        self._delete(pod, DeleteOptions(grace_seconds=0))

    def _delete(self, pod: Stored, options: DeleteOptions) -> None:
        kind = self._resources.registry.by_storage("pods")
        assert kind is not None
        delete(self._resources, kind, pod.namespace, pod.name, options)


def evict(resources: Resources, kind: ResourceKind, pod: Stored, options: DeleteOptions) -> None:
    """Delete a pod as the Eviction API does, and give it a condition with the reason. The pod's budget is not
    checked.
    """
    if not options.dry_run:
        check_preconditions(kind, pod, options)
        item = _disrupted(resources, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
        resources.store.put(kind.storage, pod.namespace, pod.name, item)
        options = replace(options, resource_version="")  # it was of the pod before that
    delete(resources, kind, pod.namespace, pod.name, options)


def _disrupted(resources: Resources, pod: Stored, reason: str, message: str) -> Object:
    item: Object = copy_of(pod.object)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    set_condition(item, condition, timestamp(resources.clock()))
    return item


def tolerated_seconds(tolerations: Iterable[Object], taints: Iterable[Object]) -> float | None:
    """Return the seconds for which a pod with these tolerations may stay on a node with these taints; 0 = it must leave
    at once, None = it may stay forever.
    """
    given = list(tolerations)
    used: list[Object] = []
    for taint in taints:
        matching = next((one for one in given if tolerates(one, taint)), None)
        if matching is None:
            return 0.0
        used.append(matching)
    limits = [max(0.0, float(one["tolerationSeconds"])) for one in used if one.get("tolerationSeconds") is not None]
    return min(limits, default=None)
