"""Detects nodes whose kubelet has fallen silent, like Kubernetes' node lifecycle controller.

The condition Ready of a silent node becomes Unknown, and the node gets the taints `node.kubernetes.io/unreachable`. The
condition Ready of its pods becomes False; nothing else changes in the pods. When the kubelet reports again, it corrects
the conditions, and the taints are removed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from processkube.kubernetes_api.collecting.conditions import condition_of, record_event, set_condition
from processkube.kubernetes_api.collecting.evictions import NO_EXECUTE, Evictions
from processkube.kubernetes_api.collecting.grace_periods import GRACE_SECONDS, STARTUP_GRACE_SECONDS
from processkube.kubernetes_api.objects.objects import Object, at_path, copy_of, timestamp
from processkube.kubernetes_api.storing.store import Stored
from processkube.kubernetes_api.writing.pods import UNREACHABLE
from processkube.kubernetes_api.writing.resources import Resources

LONGEST_PAUSE_SECONDS = 1.0
LEASE_NAMESPACE = "kube-node-lease"
_LEASES = "leases.coordination.k8s.io"
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""The types of the conditions that a kubelet reports."""


@dataclass(frozen=True, slots=True)
class _Heartbeat:
    """The last heartbeat of a node, and the time at which this controller first saw this heartbeat."""

    sign: tuple[str, str]
    seen_at: float


class LostNodes:
    """The controller of the node lifecycle. It also evicts pods because of taints, and removes the pods of deleted
    nodes.

    `run` must run as a task; it ends only when cancelled.
    """

    def __init__(self, resources: Resources, grace_seconds: float = GRACE_SECONDS) -> None:
        self._resources = resources
        self._store = resources.store
        self._grace = grace_seconds
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._evictions = Evictions(resources)

    async def run(self) -> None:
        """Check all nodes ten times per grace period, but at least once a second.

        While this process is stopped or gets no CPU time, nodes cannot report to it. So that nodes are not lost because
        of this, a longer time between two checks counts as twice the planned time.
        """
        pause = min(LONGEST_PAUSE_SECONDS, self._grace / 10)
        clock = asyncio.get_running_loop().time
        now = 0.0
        while True:
            began = clock()
            self.check(now)
            await asyncio.sleep(pause)
            now += min(clock() - began, 2 * pause)

    def check(self, now: float) -> None:
        """Compare every node's heartbeat with its previous heartbeat. `now` is in seconds of a monotonic clock."""
        nodes = self._store.list("nodes")
        self._heartbeats = {node.uid: self._heartbeat(node, now) for node in nodes}
        for node in nodes:
            grace = self._grace if condition_of(node.object, "Ready") else max(STARTUP_GRACE_SECONDS, self._grace)
            if now - self._heartbeats[node.uid].seen_at > grace:
                self._mark_unknown(node)
        nodes = self._store.list("nodes")
        one_is_ready = any(_ready_status(node) == "True" for node in nodes)
        for node in nodes:
            self._taint(node, may_evict=one_is_ready)
        self._evictions.check(now)

    def _heartbeat(self, node: Stored, now: float) -> _Heartbeat:
        """Return the node's heartbeat. Its times serve only to detect that the kubelet has reported again, because the
        kubelet's clock may differ from this server's clock.
        """
        lease = self._store.get(_LEASES, LEASE_NAMESPACE, node.name)
        renewed = at_path(lease.object, "spec", "renewTime", default="") if lease else ""
        sign = (str(renewed), str((condition_of(node.object, "Ready") or {}).get("lastHeartbeatTime", "")))
        before = self._heartbeats.get(node.uid)
        return before if before is not None and before.sign == sign else _Heartbeat(sign, now)

    def _mark_unknown(self, node: Stored) -> None:
        before = _ready_status(node)
        if before == "Unknown":
            return
        item: Object = copy_of(node.object)
        now = timestamp(self._resources.clock())
        for kind in _REPORTED:
            known = condition_of(item, kind)
            if known is None:
                unknown = {
                    "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": item["metadata"]["creationTimestamp"],
                }
            else:
                unknown = {**known, "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
            set_condition(item, {**unknown, "type": kind, "status": "Unknown"}, now)
        self._store.put("nodes", "", node.name, item)
        if before != "True":
            return
        self._tell(node, "Normal", f"Node {node.name} status is now: NodeNotReady")
        for pod in self._store.list("pods"):
            if at_path(pod.object, "spec", "nodeName") == node.name:
                self._mark_not_ready(pod, now)

    def _mark_not_ready(self, pod: Stored, now: str) -> None:
        item: Object = copy_of(pod.object)
        ready = condition_of(item, "Ready")
        if ready is None or ready["status"] == "False":
            return
        set_condition(item, {**ready, "status": "False"}, now)
        self._store.put("pods", pod.namespace, pod.name, item)
        self._tell(pod, "Warning", "Node is not ready")

    def _taint(self, node: Stored, *, may_evict: bool) -> None:
        """Give the node the taints that fit its condition Ready. The taint that evicts the pods of a lost node is added
        only if `may_evict`.
        """
        lost = _ready_status(node) == "Unknown"
        wanted = {"NoSchedule": lost, NO_EXECUTE: lost and may_evict}
        before = at_path(node.object, "spec", "taints", default=[])
        taints = [taint for taint in before if taint.get("key") != UNREACHABLE or wanted.get(taint.get("effect"), False)]
        present = {taint["effect"] for taint in taints if taint.get("key") == UNREACHABLE}
        now = timestamp(self._resources.clock())
        taints += [{"key": UNREACHABLE, "effect": one, "timeAdded": now} for one, on in wanted.items() if on and one not in present]
        if taints == before:
            return
        item: Object = copy_of(node.object)
        item.setdefault("spec", {}).pop("taints", None)
        if taints:
            item["spec"]["taints"] = taints
        self._store.put("nodes", "", node.name, item)

    def _tell(self, about: Stored, event_type: str, message: str) -> None:
        record_event(
            self._resources, about.object, event_type=event_type, reason="NodeNotReady", message=message, component="node-controller"
        )


def _ready_status(node: Stored) -> str:
    return str((condition_of(node.object, "Ready") or {}).get("status", ""))
