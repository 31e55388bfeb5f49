"""Which watch events wake a pool's queue. The operator's own writes (status, annotations) do not, or every reconciliation would cause the next."""

import json
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from fairlead.tables import PoolKey
from fairlead_operator.manifests import POOL_LABEL
from fairlead_operator.observing import pod_health
from fairlead_operator.queues import PoolQueues


def filter_pool_event(queues: PoolQueues, kind: str | None, pool: Mapping[str, Any]) -> None:
    """An event about a pool: its spec, its deletion, its finalizers, labels and annotations matter."""
    metadata = pool["metadata"]
    key = PoolKey(namespace=metadata["namespace"], name=metadata["name"])
    essence: Hashable = (
        metadata.get("uid"),
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        tuple(metadata.get("finalizers") or ()),
        tuple(sorted((metadata.get("labels") or {}).items())),
        tuple(sorted((metadata.get("annotations") or {}).items())),
    )
    queues.observe(key, ("pool", str(key)), None if kind == "DELETED" else essence)


class ChildChanges:
    """Counts the changes of every pool's Service and PodDisruptionBudget; they are checked again when the count has grown."""

    def __init__(self) -> None:
        self._counts: Counter[PoolKey] = Counter()

    def count(self, pool: PoolKey) -> int:
        """A number that changes with every change."""
        return self._counts[pool]

    def count_event(self, queues: PoolQueues, kind: str | None, child: Mapping[str, Any]) -> None:
        """An event about a child: its spec, labels and owners matter, not its status."""
        metadata = child["metadata"]
        key = PoolKey(namespace=metadata["namespace"], name=metadata["labels"][POOL_LABEL])
        essence = json.dumps([child.get("spec"), metadata.get("labels"), metadata.get("ownerReferences")], sort_keys=True)
        if queues.observe(key, ("child", metadata.get("uid")), None if kind == "DELETED" else essence):
            self._counts[key] += 1


def filter_pod_event(queues: PoolQueues, kind: str | None, pod: Mapping[str, Any]) -> None:
    """An event about a pod of a pool: its health, address, restarts and deletion matter."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    key = PoolKey(namespace=metadata["namespace"], name=metadata["labels"][POOL_LABEL])
    restarts = sum(int(container.get("restartCount") or 0) for container in status.get("containerStatuses") or [])
    essence: Hashable = (pod_health(status), status.get("podIP"), restarts, bool(metadata.get("deletionTimestamp")))
    queues.observe(key, ("pod", metadata.get("uid")), None if kind == "DELETED" else essence)
