"""Finalizes a deleted pool: drains its instances, at most as long as the settings allow, then reports to the control
API.

Kopf puts the finalizer on every living pool, calls the deletion handler, and removes the finalizer when that returns.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fairlead.draining import is_drained
from fairlead.instances import InstanceState
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.actions import RecordState, ReleaseInstance, ReleaseReason
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Taken
from fairlead_operator.control_plane import ControlPlane
from fairlead_operator.observing.pods import Pod
from fairlead_operator.settings import Pace
from fairlead_operator.times import parse_time

logger = logging.getLogger(__name__)

FINALIZER = "fairlead.dev/finalizer"

_ORPHAN = "orphan"
"""Kubernetes' finalizer of a deletion that keeps the children (`--cascade=orphan`)."""


def has_finalizer(pool: Mapping[str, Any], finalizer: str) -> bool:
    """Return whether the pool has this finalizer."""
    return finalizer in (pool["metadata"].get("finalizers") or [])


def drains(pool: Mapping[str, Any], pods: tuple[Pod, ...]) -> tuple[RecordState, ...]:
    """Return the actions that mark the instances of a deleted pool as Draining; empty if the deletion keeps the pool's
    children.

    Instances whose pods are already terminating, as in a foreground deletion, are included. Routers must stop sending
    to these instances too, so that the requests in flight have the pod's whole grace period.
    """
    if has_finalizer(pool, _ORPHAN):
        return ()
    done = {InstanceState.DRAINING, InstanceState.GONE}
    return tuple(
        RecordState(instance=pod.instance.id, before=pod.instance.state, state=InstanceState.DRAINING, reason="PoolDeleted")
        for pod in pods
        if pod.instance.state not in done
    )


def releases(pods: tuple[Pod, ...]) -> tuple[ReleaseInstance, ...]:
    """Return the actions that release the adopted pods of a deleted pool."""
    return tuple(
        ReleaseInstance(instance=pod.instance.id, reason=ReleaseReason.POOL_DELETED)
        for pod in pods
        if pod.instance.adopted and not pod.instance.terminating
    )


class Finalization:
    """Decides when a deleted pool may be removed. Its only memory is whether the control API has confirmed the
    deletion.
    """

    def __init__(self, pool: PoolKey, control_plane: ControlPlane, pace: Pace) -> None:
        self._pool = pool
        self._control_plane = control_plane
        self._pace = pace
        self.is_told = False

    async def step(
        self,
        pool: Mapping[str, Any],
        pods: tuple[Pod, ...],
        observations: PoolObservations | None,
        drain_timeout: float,
        now: float,
        release: Callable[[], Awaitable[bool]],
    ) -> float | None:
        """Wait for the instances, call `release` for adopted pods, then report the deletion to the control API. Returns
        the seconds until the next step, None if the pool may be removed.

        A pool whose adopted pods cannot be released is not removed, because the pods would keep the pool's labels and
        annotations. Instances whose pods are already terminating must also end first, because in a foreground deletion
        all pods terminate while requests are in flight.
        """
        deleted_at = parse_time(pool["metadata"]["deletionTimestamp"]) or now
        elapsed = max(0.0, now - deleted_at)
        waits = not has_finalizer(pool, _ORPHAN) and elapsed < min(drain_timeout, self._pace.finalizing_drain)
        if waits and not all(is_drained(observations, pod.instance.id) for pod in pods):
            return self._pace.busy / 2
        if not await release():
            return self._pace.busy
        if not await self.report() and elapsed < self._pace.finalizing:
            return self._pace.busy
        logger.info("pool finalized", extra={"pool": str(self._pool), "control_plane_told": self.is_told})
        return None

    async def report(self) -> bool:
        """Report to the control API that the pool is gone. Return whether the API accepted the report."""
        outcome = await self._control_plane.delete_pool(self._pool)
        if not isinstance(outcome, Taken):
            logger.warning("deletion not reported", extra={"pool": str(self._pool), "error": outcome.problem})
            return False
        self.is_told = True
        return True
