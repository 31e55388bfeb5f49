"""What of an event matters to a pool's loop. Its own writes (status, annotations) do not, or every round would cause the next."""

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


def notice_pod(loops: PoolLoops, kind: str | None, pod: Mapping[str, Any]) -> None:
    """An event about a pod of a pool: its health, address, restarts and deletion matter."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    key = PoolKey(namespace=metadata["namespace"], name=metadata["labels"][POOL_LABEL])
    restarts = sum(int(container.get("restartCount") or 0) for container in status.get("containerStatuses") or [])
    essence: Hashable = (pod_health(status), status.get("podIP"), restarts, bool(metadata.get("deletionTimestamp")))
    loops.notice(key, ("pod", metadata.get("uid")), None if kind == "DELETED" else essence)
