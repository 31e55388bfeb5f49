"""What of an event matters to a pool's loop. Its own writes (status, annotations) do not, or every round would cause the next."""

import json
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from fairlead.tables import PoolKey
from fairlead_operator.children import POOL_LABEL
from fairlead_operator.loops import PoolLoops
from fairlead_operator.observing import pod_health


def notice_pool(loops: PoolLoops, kind: str | None, pool: Mapping[str, Any]) -> None:
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
    loops.notice(key, ("pool", str(key)), None if kind == "DELETED" else essence)


class ChildNotices:
    """How often something was noticed about a pool's Service or PodDisruptionBudget; a round looks at them when that has changed."""

    def __init__(self) -> None:
        self._counts: Counter[PoolKey] = Counter()

    def count(self, pool: PoolKey) -> int:
        """A number that changes with every notice."""
        return self._counts[pool]

    def notice(self, loops: PoolLoops, kind: str | None, child: Mapping[str, Any]) -> None:
        """An event about a child: its spec, labels and owners matter, not its status."""
        metadata = child["metadata"]
        key = PoolKey(namespace=metadata["namespace"], name=metadata["labels"][POOL_LABEL])
        essence = json.dumps([child.get("spec"), metadata.get("labels"), metadata.get("ownerReferences")], sort_keys=True)
        if loops.notice(key, ("child", metadata.get("uid")), None if kind == "DELETED" else essence):
            self._counts[key] += 1


def notice_pod(loops: PoolLoops, kind: str | None, pod: Mapping[str, Any]) -> None:
    """An event about a pod of a pool: its health, address, restarts and deletion matter."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    key = PoolKey(namespace=metadata["namespace"], name=metadata["labels"][POOL_LABEL])
    restarts = sum(int(container.get("restartCount") or 0) for container in status.get("containerStatuses") or [])
    essence: Hashable = (pod_health(status), status.get("podIP"), restarts, bool(metadata.get("deletionTimestamp")))
    loops.notice(key, ("pod", metadata.get("uid")), None if kind == "DELETED" else essence)
