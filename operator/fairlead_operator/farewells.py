"""The end of a pool: its instances are emptied for a short while, the control API is told, the finalizer goes. Never longer than promised."""

import logging
from typing import Any

from fairlead.draining import is_drained
from fairlead.instances import InstanceState
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.actions import RecordState
from fairlead.tables import PoolKey
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.observing import Pod, parse_time
from fairlead_operator.settings import Pace
from fairlead_operator.synchronizing import ControlPlane, ControlPlaneSilent

logger = logging.getLogger(__name__)

FINALIZER = "fairlead.dev/farewell"

_ORPHAN = "orphan"
"""Kubernetes' own finalizer of a deletion that leaves the children alone."""


class Farewell:
    """One pool's end, step by step. Remembers only whether the control API still has to be told of a pool that is gone already."""

    def __init__(self, pool: PoolKey, cluster: Cluster, control_plane: ControlPlane, pace: Pace) -> None:
        self._pool = pool
        self._cluster = cluster
        self._control_plane = control_plane
        self._pace = pace
        self._owes_word = False

    def forget(self) -> None:
        """A pool of this name lives (again): nothing is owed."""
        self._owes_word = False

    def wants_draining(self, pool: dict[str, Any], pods: tuple[Pod, ...]) -> tuple[RecordState, ...]:
        """Instances to mark as draining first, unless their deletion was not wished. Also those whose pods end already, as in a foreground
        deletion: routers must stop sending to them, so that what is in flight has the pod's grace period for itself."""
        if _ORPHAN in (pool["metadata"].get("finalizers") or []) or FINALIZER not in (pool["metadata"].get("finalizers") or []):
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
        if FINALIZER not in finalizers:
            return self._pace.busy
        deleted_at = parse_time(pool["metadata"]["deletionTimestamp"]) or now
        elapsed = max(0.0, now - deleted_at)
        if _ORPHAN not in finalizers and elapsed < min(drain_timeout, self._pace.farewell_drain):
            waiting = [pod for pod in pods if not pod.instance.terminating and not is_drained(observations, pod.instance.id)]
            if waiting:
                return self._pace.busy / 2
        told = await self._tell()
        if not told and elapsed < self._pace.farewell:
            return self._pace.busy
        self._owes_word = not told
        body = {
            "metadata": {
                "finalizers": [name for name in finalizers if name != FINALIZER],
                "resourceVersion": pool["metadata"]["resourceVersion"],
            }
        }
        await self._cluster.patch(Resource.POOLS, self._pool.namespace, self._pool.name, body)
        logger.info("pool deleted pool=%s control_plane_told=%s", self._pool, told)
        return self._pace.busy

    async def of_gone_pool(self) -> float | None:
        """The object is gone. None when nothing is owed any more; otherwise when to try to tell again."""
        if self._owes_word and not await self._tell():
            return self._pace.settled
        self._owes_word = False
        return None

    async def _tell(self) -> bool:
        try:
            await self._control_plane.delete_pool(self._pool)
        except ControlPlaneSilent as error:
            logger.warning("deletion not told pool=%s error=%r", self._pool, str(error))
            return False
        return True
