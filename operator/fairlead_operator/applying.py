"""Carrying out a plan's actions. Each is one idempotent call; what fails is named and tried again in the next round."""

import logging
from collections.abc import Callable, Sequence

from fairlead.instances import InstanceState, Role
from fairlead.pools import PoolSpec
from fairlead.reconciling.actions import Action, CreateInstance, DeleteInstance, DeletionReason, Drain, RecordState
from fairlead_operator.children import PoolIdentity, instance_name, pod, state_annotations
from fairlead_operator.cluster import Cluster, ClusterRefused, Resource
from fairlead_operator.observing import format_time
from fairlead_operator.telling import Teller

logger = logging.getLogger(__name__)

_SAYS = {
    DeletionReason.DRAINED: ("Drained", "is empty: no router sends it requests, and none runs there"),
    DeletionReason.DRAIN_TIMED_OUT: ("DrainTimedOut", "was not empty when the drain timeout ended; what still ran there is cut off"),
    DeletionReason.NEVER_SERVED: ("InstanceDeleted", "is not needed any more and never served"),
    DeletionReason.OUTDATED: ("InstanceReplaced", "never served and has an old template"),
    DeletionReason.POD_FAILED: ("InstanceReplaced", "failed for good"),
    DeletionReason.LOST_TOO_LONG: ("InstanceReplaced", "was lost for too long"),
}


class Applier:
    """Applies actions of one pool. `new_suffix` makes five characters never used before; Unix times come from `clock`."""

    def __init__(
        self,
        identity: PoolIdentity,
        cluster: Cluster,
        teller: Teller,
        *,
        image: str,
        clock: Callable[[], float],
        new_suffix: Callable[[], str],
    ) -> None:
        self._identity = identity
        self._cluster = cluster
        self._teller = teller
        self._image = image
        self._clock = clock
        self._new_suffix = new_suffix

    async def apply(self, actions: Sequence[Action], spec: PoolSpec | None) -> str | None:
        """Do all of them; one line about the first that was refused, None when all went well.

        Raises ClusterUnavailable at once: without the Kubernetes API the rest would fail too.
        """
        failure = None
        for action in actions:
            try:
                await self._apply(action, spec)
            except ClusterRefused as error:
                logger.warning("action refused pool=%s action=%r error=%r", self._identity.name, action, str(error))
                failure = failure or str(error)
        return failure

    async def _apply(self, action: Action, spec: PoolSpec | None) -> None:
        match action:
            case CreateInstance():
                if spec is None:
                    raise ValueError("instances are created from a valid spec only")
                await self._create(action.role, spec, action.reason)
            case RecordState():
                await self._record(action)
            case Drain():
                await self._annotate(action.instance, InstanceState.DRAINING, action.reason)
                message = (
                    f"{action.instance} takes no new requests and is emptied ({action.reason}); cost {action.cost:.1f}, the least of all"
                )
                await self._tell("Draining", message, action.instance)
            case DeleteInstance():
                await self._delete(action)

    async def _create(self, role: Role, spec: PoolSpec, reason: str) -> None:
        now = self._clock()
        name = instance_name(self._identity.name, role, self._new_suffix())
        body = pod(self._identity, spec, role=role, name=name, image=self._image, reason=reason, now=format_time(now))
        if await self._cluster.create(Resource.PODS, self._identity.namespace, body):
            await self._tell("InstanceCreated", f"{name} was created ({reason})", name)

    async def _record(self, action: RecordState) -> None:
        if not await self._annotate(action.instance, action.state, action.reason):
            return
        logger.info("instance state instance=%s before=%s after=%s reason=%s", action.instance, action.before, action.state, action.reason)
        if action.state is InstanceState.LOST:
            await self._tell("InstanceLost", f"{action.instance} is lost ({action.reason})", action.instance)

    async def _annotate(self, instance: str, state: InstanceState, reason: str) -> bool:
        body = {"metadata": {"annotations": state_annotations(state, format_time(self._clock()), reason)}}
        return await self._cluster.patch(Resource.PODS, self._identity.namespace, instance, body)

    async def _delete(self, action: DeleteInstance) -> None:
        if await self._cluster.delete(Resource.PODS, self._identity.namespace, action.instance):
            reason, words = _SAYS[action.reason]
            await self._tell(reason, f"{action.instance} {words}", action.instance)

    async def _tell(self, reason: str, message: str, instance: str) -> None:
        await self._teller.tell(self._identity, self._clock(), reason, message, instance=instance)
