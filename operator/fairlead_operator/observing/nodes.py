"""Nodes that are going to be taken away, seen before their pods are evicted: whose instances are drained as if a person
had asked for it, successors first.

What says so is a taint or a condition that whoever takes the node away writes to it: cluster-autoscaler, Karpenter, the
termination handlers of clouds, Azure's scheduled events; a cordon only where that is wanted, since nodes are cordoned
for other reasons too. Only nodes with instances are read, one by one, every few seconds.
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
"""By their keys: what each says of its node. `aws-node-termination-handler/rebalance-recommendation` and
`DeletionCandidateOfClusterAutoscaler` decide nothing yet, and are not among them.
"""
CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "PreemptScheduled": "Azure takes its spot capacity back",
        "TerminateScheduled": "Azure ends it",
        "RedeployScheduled": "Azure moves it",
        "RebootScheduled": "Azure restarts it",
    }
)
"""Conditions of AKS's node problem detector, by their types."""

logger = logging.getLogger(__name__)


class ReadsNodes(Protocol):
    """The one call that is needed here."""

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> dict[str, Any] | None:
        """The object. Raises ClusterError."""


def why_leaving(node: Mapping[str, Any] | None, when: str) -> str:
    """Why the node is going to be taken away, in words; empty if nothing says so. None is a node that is gone."""
    if when == NO_NODES or node is None:
        return ""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = {str(one.get("key")) for one in spec.get("taints") or ()}
    held = {str(one.get("type")) for one in status.get("conditions") or () if one.get("status") == "True"}
    said = [words for key, words in TAINTS.items() if key in taints] + [words for kind, words in CONDITIONS.items() if kind in held]
    return said[0] if said else "it is cordoned" if when == CORDONS and spec.get("unschedulable") else ""


class LeavingNodes:
    """What was last seen of each node with instances, and the pools that have instances there."""

    def __init__(self, when: str = NO_NODES) -> None:
        self._when = when
        self._pools: dict[PoolKey, frozenset[str]] = {}
        self._seen: dict[str, str] = {}

    def why(self, node: str | None) -> str:
        """Why this node leaves; empty if it does not, as far as is known."""
        return self._seen.get(node or "", "")

    def forget(self, pool: PoolKey) -> None:
        """The pool is gone."""
        self._pools.pop(pool, None)

    def marked(self, pool: PoolKey, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """The pool's pods; those on nodes that leave as if a person wanted them drained. A drain that was begun so goes
        on until its node was looked at.
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
        """Look once at each node with instances, and wake the pools of those of which something changed. Raises
        ClusterError.
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
        """Look forever, with these pauses."""
        while self._when != NO_NODES:
            await asyncio.sleep(seconds)
            try:
                await self.look(cluster, wake)
            except ClusterError as error:
                logger.warning("looking at nodes failed", extra={"error": str(error)})
            except Exception:  # one bad answer must not end the looking
                logger.exception("looking at nodes broke")
