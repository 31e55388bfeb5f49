"""Records events: each becomes a Kubernetes Event and an entry of the pool's history in the control API."""

import logging
from collections import deque
from typing import Any, Protocol

from fairlead.conditions.facts import ActionFailureReason
from fairlead.pool_states import PoolEvent
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Later, Refused
from fairlead_operator.control_plane import ControlPlane
from fairlead_operator.pool_identity import PoolIdentity

logger = logging.getLogger(__name__)

WARNINGS = frozenset(
    {
        "CanaryRejected",
        "DrainTimedOut",
        "InstanceLost",
        "InstanceVanished",
        "RolloutRegressed",
        "ScaleBounded",
        "SpecRefused",
        *ActionFailureReason,
    }
)

_BACKLOG = 1000
_BATCH = 100


class PostEvent(Protocol):
    """A function that posts a Kubernetes Event about a pool, at once or later; it handles its own failures."""

    def __call__(self, pool: PoolIdentity, *, type_: str, reason: str, message: str) -> None: ...


class EventRecorder:
    """Records one pool's events.

    Events that the control API could not accept are kept (the newest 1,000) and sent later, in order.
    """

    def __init__(self, pool: PoolKey, post: PostEvent, control_plane: ControlPlane) -> None:
        self._pool = pool
        self._post = post
        self._control_plane = control_plane
        self._backlog: deque[PoolEvent] = deque(maxlen=_BACKLOG)

    @property
    def is_delivered(self) -> bool:
        """Whether the control API has received all events."""
        return not self._backlog

    def record(
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
        """Queue the Kubernetes Event and the history entry."""
        logger.info("pool event", extra={"pool": str(self._pool), "reason": reason, "instance": instance, "text": message})
        self._backlog.append(PoolEvent(at=now, reason=reason, message=message, instance=instance, before=before, after=after))
        self._post(identity, type_="Warning" if reason in WARNINGS else "Normal", reason=reason, message=message)

    async def deliver(self) -> None:
        """Send the queued events, oldest first. Stop at the first failure and keep the unsent events. Drop a batch that
        the control API refuses permanently.
        """
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
