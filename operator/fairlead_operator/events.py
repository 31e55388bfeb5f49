"""Events: everything that happens to a pool becomes a Kubernetes Event and an entry of the pool's history in the control API."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from fairlead.conditions import ActionFailureReason
from fairlead.pool_states import PoolEvent
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Later, Refused
from fairlead_operator.cluster import Cluster, ClusterError, Resource
from fairlead_operator.control_plane import ControlPlane
from fairlead_operator.manifests import PoolIdentity, event
from fairlead_operator.observing import format_second

logger = logging.getLogger(__name__)

WARNINGS = frozenset({"DrainTimedOut", "InstanceLost", "SpecRefused", *ActionFailureReason})

_BACKLOG = 1000
_BATCH = 100


class EventRecorder:
    """Records one pool's events. What the control API could not take is kept (the newest 1,000) and sent later, in order."""

    def __init__(self, pool: PoolKey, cluster: Cluster, control_plane: ControlPlane, new_id: Callable[[], str]) -> None:
        self._pool = pool
        self._cluster = cluster
        self._control_plane = control_plane
        self._new_id = new_id
        self._backlog: deque[PoolEvent] = deque(maxlen=_BACKLOG)

    async def record(
        self,
        identity: PoolIdentity,
        now: float,
        reason: str,
        message: str,
        *,
        instance: str | None = None,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> None:
        """Post the Kubernetes Event at once and queue the history entry. An Event that cannot be posted is only logged."""
        logger.info("pool event", extra={"pool": str(self._pool), "reason": reason, "instance": instance, "text": message})
        self._backlog.append(PoolEvent(at=now, reason=reason, message=message, instance=instance, before=before, after=after))
        body = event(
            identity,
            name=f"{identity.name}.{self._new_id()}",
            reason=reason,
            message=message,
            warning=reason in WARNINGS,
            now=format_second(now),
        )
        try:
            await self._cluster.create(Resource.EVENTS, identity.namespace, body)
        except ClusterError as error:
            logger.warning("event not posted", extra={"pool": str(self._pool), "reason": reason, "error": str(error)})

    async def deliver(self) -> None:
        """Send what is queued, oldest first; stop at the first failure and keep the rest. A batch that is refused for good is given up."""
        while self._backlog:
            batch = [self._backlog[index] for index in range(min(_BATCH, len(self._backlog)))]
            outcome = await self._control_plane.post_events(self._pool, batch)
            if isinstance(outcome, Later):
                logger.warning(
                    "history not delivered", extra={"pool": str(self._pool), "kept": len(self._backlog), "error": outcome.problem}
                )
                return
            if isinstance(outcome, Refused):
                logger.error("history refused", extra={"pool": str(self._pool), "dropped": len(batch), "error": outcome.problem})
            for _ in batch:
                self._backlog.popleft()
