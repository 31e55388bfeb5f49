"""Detects nodes that will be taken away, before their pods are evicted. The instances on such a node are then drained
as if a person had asked for it, and the successor of each instance is created first.

The program that removes a node announces this by a taint or a condition of the node. The known programs are
cluster-autoscaler, Karpenter, the termination handlers of clouds, and Azure's scheduled events. A cordon is only a sign
if the settings say so, because nodes are also cordoned for other reasons. Only nodes with instances are read, one by
one, every few seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from fairlead.tables import PoolKey
from fairlead_operator.cluster import ClusterError, Resource
from fairlead_operator.observing.pods import Pod
from fairlead_operator.settings import CORDONS, NO_NODES

TAINTS: Mapping[str, str] = MappingProxyType(
    {
        "ToBeDeletedByClusterAutoscaler": "cluster-autoscaler removes it",
        "karpenter.sh/disrupted": "Karpenter removes it",
        "karpenter.sh/disruption": "Karpenter removes it",
        "aws-node-termination-handler/spot-itn": "AWS takes its spot capacity back",
        "aws-node-termination-handler/scheduled-maintenance": "AWS maintains it",
        "aws-node-termination-handler/asg-lifecycle-termination": "its Auto Scaling group ends it",
        "cloud.google.com/impending-node-termination": "Google Cloud ends it",
        "cloudprovider.azure.microsoft.com/draining": "Azure takes its spot capacity back",
    }
)
"""By the key of a taint that announces a node's removal, the sentence that describes it.
`aws-node-termination-handler/rebalance-recommendation` and `DeletionCandidateOfClusterAutoscaler` decide nothing yet,
so they are not listed.
"""
CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "PreemptScheduled": "Azure takes its spot capacity back",
        "TerminateScheduled": "Azure ends it",
        "RedeployScheduled": "Azure moves it",
        "RebootScheduled": "Azure restarts it",
    }
)
"""By type, the sentence for a condition that announces a node's removal. AKS's node problem detector sets these
conditions.
"""

logger = logging.getLogger(__name__)


class ReadsNodes(Protocol):
    """The call to the cluster that this module needs."""

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> dict[str, Any] | None:
        """Return the object. Raises ClusterError."""


def why_leaving(node: Mapping[str, Any] | None, when: str) -> str:
    """Return a sentence that says why the node will be taken away; empty if no sign of this is found. `node` is None if
    the node no longer exists.
    """
    if when == NO_NODES or node is None:
        return ""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = {str(one.get("key")) for one in spec.get("taints") or ()}
    held = {str(one.get("type")) for one in status.get("conditions") or () if one.get("status") == "True"}
    said = [words for key, words in TAINTS.items() if key in taints] + [words for kind, words in CONDITIONS.items() if kind in held]
    return said[0] if said else "it is cordoned" if when == CORDONS and spec.get("unschedulable") else ""


class LeavingNodes:
    """The nodes with instances: which of them will be taken away and why, and which pools use them."""

    def __init__(self, when: str = NO_NODES) -> None:
        self._when = when
        self._pools: dict[PoolKey, frozenset[str]] = {}
        self._seen: dict[str, str] = {}

    def why(self, node: str | None) -> str:
        """Return a sentence that says why this node will be taken away; empty if no sign of this was found."""
        return self._seen.get(node or "", "")

    def forget(self, pool: PoolKey) -> None:
        """Forget a pool that no longer exists."""
        self._pools.pop(pool, None)

    def marked(self, pool: PoolKey, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Return the pool's pods. A pod whose node will be taken away is marked as if a person had requested its drain.
        After a restart, the operator has not read the nodes yet. Until it has read a pod's node, a drain on request
        that is already in progress continues.
        """
        found = tuple(pods)
        if self._when == NO_NODES:
            return found
        self._pools[pool] = frozenset(pod.node for pod in found if pod.node)
        return tuple(self._asked(pod) if self._leaves(pod) else pod for pod in found)

    def _leaves(self, pod: Pod) -> bool:
        unknown = pod.node is not None and pod.node not in self._seen
        return bool(self.why(pod.node)) or (unknown and pod.instance.drained_on_request)

    def _asked(self, pod: Pod) -> Pod:
        return replace(pod, instance=replace(pod.instance, drain_requested=True))

    async def look(self, cluster: ReadsNodes, wake: Callable[[PoolKey], None]) -> None:
        """Read each node with instances once, and wake the workers of pools with instances on a node for which
        something changed. Raises ClusterError.
        """
        nodes = {node for here in self._pools.values() for node in here}
        self._seen = {node: said for node, said in self._seen.items() if node in nodes}
        for node in sorted(nodes):
            said = why_leaving(await cluster.get(Resource.NODES, "", node), self._when)
            if self._seen.get(node) != said:
                self._seen[node] = said
                for pool in [pool for pool, here in self._pools.items() if node in here]:
                    wake(pool)

    async def watch(self, cluster: ReadsNodes, wake: Callable[[PoolKey], None], seconds: float) -> None:
        """Call `look` forever, with pauses of `seconds`."""
        while self._when != NO_NODES:
            await asyncio.sleep(seconds)
            try:
                await self.look(cluster, wake)
            except ClusterError as error:
                logger.warning("nodes cannot be read", extra={"error": str(error)})
            except Exception:  # one bad answer must not end the looking
                logger.exception("reading nodes failed because of a bug")
