"""Finalizing a deleted pool: drain its instances for a short while, tell the control API, remove the finalizer. Never longer than promised."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.draining import is_drained
from fairlead.instances import InstanceState
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.actions import RecordState
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Taken
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.control_plane import ControlPlane
from fairlead_operator.observing import Pod, parse_time
from fairlead_operator.settings import Pace

logger = logging.getLogger(__name__)

FINALIZER = "fairlead.dev/finalizer"

FORMER_FINALIZER = "fairlead.dev/farewell"
"""What the finalizer was called before. A pool that still has it is finalized all the same, and loses it for the new one while it lives."""

_ORPHAN = "orphan"
"""Kubernetes' own finalizer of a deletion that leaves the children alone."""


def is_held(pool: Mapping[str, Any]) -> bool:
    """Whether the pool waits for this operator before it goes."""
    return not {FINALIZER, FORMER_FINALIZER}.isdisjoint(pool["metadata"].get("finalizers") or [])


async def hold(cluster: Cluster, pool: Mapping[str, Any]) -> None:
    """Put the finalizer on a living pool, so that its end is not missed. Raises ClusterError."""
    metadata = pool["metadata"]
    present: list[str] = metadata.get("finalizers") or []
    if FINALIZER not in present or FORMER_FINALIZER in present:
        await cluster.patch(Resource.POOLS, metadata["namespace"], metadata["name"], _finalizers(pool, [*_others(present), FINALIZER]))


class Finalization:
    """Finalizes one pool, step by step. Remembers only whether the control API still has to be told of a pool that is gone already."""

    def __init__(self, pool: PoolKey, cluster: Cluster, control_plane: ControlPlane, pace: Pace) -> None:
        self._pool = pool
        self._cluster = cluster
        self._control_plane = control_plane
        self._pace = pace
        self._deletion_unreported = False

    def forget(self) -> None:
        """A pool of this name lives (again): nothing is owed."""
        self._deletion_unreported = False

    def drains(self, pool: dict[str, Any], pods: tuple[Pod, ...]) -> tuple[RecordState, ...]:
        """Instances to mark as draining first, unless their deletion was not wished. Also those whose pods end already, as in a foreground
        deletion: routers must stop sending to them, so that what is in flight has the pod's grace period for itself."""
        if _ORPHAN in (pool["metadata"].get("finalizers") or []) or not is_held(pool):
            return ()
        done = {InstanceState.DRAINING, InstanceState.GONE}
        return tuple(
            RecordState(instance=pod.instance.id, before=pod.instance.state, state=InstanceState.DRAINING, reason="PoolDeleted")
            for pod in pods
            if pod.instance.state not in done
        )

    async def step(
        self, pool: dict[str, Any], pods: tuple[Pod, ...], observations: PoolObservations | None, drain_timeout: float, now: float
    ) -> float:
        """Wait for the instances, tell the control API, remove the finalizer; seconds until the next step. Raises ClusterError."""
        finalizers = pool["metadata"].get("finalizers") or []
        if not is_held(pool):
            return self._pace.busy
        deleted_at = parse_time(pool["metadata"]["deletionTimestamp"]) or now
        elapsed = max(0.0, now - deleted_at)
        if _ORPHAN not in finalizers and elapsed < min(drain_timeout, self._pace.finalizing_drain):
            waiting = [pod for pod in pods if not pod.instance.terminating and not is_drained(observations, pod.instance.id)]
            if waiting:
                return self._pace.busy / 2
        told = await self._report_deletion()
        if not told and elapsed < self._pace.finalizing:
            return self._pace.busy
        self._deletion_unreported = not told
        await self._cluster.patch(Resource.POOLS, self._pool.namespace, self._pool.name, _finalizers(pool, _others(finalizers)))
        logger.info("pool deleted", extra={"pool": str(self._pool), "control_plane_told": told})
        return self._pace.busy

    async def finish(self) -> float | None:
        """The object is gone. None when nothing is owed any more; otherwise when to try to tell again."""
        if self._deletion_unreported and not await self._report_deletion():
            return self._pace.settled
        self._deletion_unreported = False
        return None

    async def _report_deletion(self) -> bool:
        outcome = await self._control_plane.delete_pool(self._pool)
        if not isinstance(outcome, Taken):
            logger.warning("deletion not told", extra={"pool": str(self._pool), "error": outcome.problem})
            return False
        return True


def _others(finalizers: Iterable[str]) -> list[str]:
    """The finalizers of others."""
    return [name for name in finalizers if name not in {FINALIZER, FORMER_FINALIZER}]


def _finalizers(pool: Mapping[str, Any], finalizers: list[str]) -> dict[str, Any]:
    """A patch of the pool as it was read: a list cannot be patched without losing what somebody else added since."""
    return {"metadata": {"finalizers": finalizers, "resourceVersion": pool["metadata"]["resourceVersion"]}}
