"""Handles changes that others make to the pool's pods: records each change, and repairs it if possible.

The record of the control API shows which instances a state lacks, so a restarted operator notices all instances that
went while no operator ran. A pod that still exists has only lost its labels and annotations (marks).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.pool_states import EndedInstance
from fairlead.pools import PoolSpec
from fairlead.reconciling.actions import Action, CreateInstance
from fairlead_operator.applying.ownership import is_owned
from fairlead_operator.applying.retrying import ActionRetries
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.events import EventRecorder
from fairlead_operator.observing.lost_marks import KnownMarks, LostMarks
from fairlead_operator.pool_identity import PoolIdentity

AGAIN_SECONDS = 60.0
"""Pause in seconds before a mark that was removed again is restored again."""


class OthersActs:
    """The changes that others make to one pool's pods. The memory only prevents that a change is recorded twice; it
    decides nothing.
    """

    def __init__(self, cluster: Cluster, recorder: EventRecorder, retries: ActionRetries, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._retries = retries
        self._clock = clock
        self._marks = KnownMarks()
        self._told: set[str] = set()
        """Instances about which an event has already recorded that they are being removed."""
        self._restored: dict[tuple[str, str], float] = {}
        """When each mark of a pod was last restored, by pod and mark: a webhook, for example, may remove a mark again
        at once.
        """
        self._unreplaced: dict[str, Role] = {}
        """Instances that went and have no successor yet, with their roles."""

    def told(self, instance: str) -> None:
        """Remember that an event has recorded the removal of this instance, so that its end is not recorded again."""
        self._told.add(instance)

    def is_told(self, instance: str) -> bool:
        """Return whether an event has recorded that this instance is being removed."""
        return instance in self._told

    async def restore_marks(
        self, identity: PoolIdentity, documents: Iterable[Mapping[str, Any]], spec: PoolSpec | None, last_ordinal: int
    ) -> bool:
        """Restore missing marks on those of these pods that are the pool's own; return whether any mark was missing."""
        lost = [one for one in self._marks.lost(documents, identity, spec, last_ordinal) if not self._was_restored(one)]
        return any([await self._restore(identity, one) for one in lost])

    async def account_for(self, identity: PoolIdentity, ended: Sequence[EndedInstance], spec: PoolSpec | None, last_ordinal: int) -> bool:
        """Record instances that ended without an event. Return whether one of them still exists and was repaired.

        Raises ClusterError.
        """
        present = []
        for one in ended:
            if one.id in self._told:
                self._told.discard(one.id)
                continue
            found = await self._cluster.get(Resource.PODS, identity.namespace, one.id)
            if found is not None and is_owned(found["metadata"], identity.uid) and not found["metadata"].get("deletionTimestamp"):
                present.append(found)
            else:
                self._tell_of_end(identity, one)
        return any([await self._restore(identity, self._marks.of(one, identity, spec, last_ordinal)) for one in present])

    def unreplaced(self) -> Mapping[str, Role]:
        """Return instances that went and were not replaced yet, with their roles."""
        return self._unreplaced

    def planned(self, actions: Iterable[Action], *, is_planned: bool) -> None:
        """Forget the instances that a plan replaces. If the plan creates no instance, forget all of them, because then
        no instance is missing.
        """
        creations = [action for action in actions if isinstance(action, CreateInstance)]
        if is_planned and not creations:
            self._unreplaced = {}
        for action in creations:
            self._unreplaced.pop(action.replaces, None)

    def _tell_of_end(self, identity: PoolIdentity, one: EndedInstance) -> None:
        served = one.state in ACCEPTING or one.state is InstanceState.CORDONED
        words = f"{one.id} is gone: its pod was deleted by somebody else, without its grace period; it was {one.state}"
        if not served:
            words = f"{one.id} is gone; it was {one.state}"
        if one.state is not InstanceState.DRAINING:
            self._unreplaced[one.id] = one.role
        self._recorder.record(identity, self._clock(), "InstanceVanished" if served else "InstanceGone", words, instance=one.id)

    def _was_restored(self, lost: LostMarks) -> bool:
        at = self._restored.get((str(lost.pod["metadata"].get("uid")), lost.names))
        return at is not None and 0 <= self._clock() - at < AGAIN_SECONDS

    async def _restore(self, identity: PoolIdentity, lost: LostMarks) -> bool:
        metadata = lost.pod["metadata"]
        body = {"metadata": {"uid": metadata["uid"], "labels": lost.labels, "annotations": lost.annotations}}
        act = partial(self._cluster.patch, Resource.PODS, identity.namespace, metadata["name"], body)
        if not await self._retries.attempt(identity, ("marks", (metadata["name"], lost.names)), act):
            return False
        self._restored[str(metadata.get("uid")), lost.names] = self._clock()
        words = f"{metadata['name']} lacked {lost.names}, which somebody had removed ({_last_writer(metadata)}); they are back"
        self._recorder.record(identity, self._clock(), "InstanceMarksRestored", words, instance=metadata["name"])
        return True


def _last_writer(metadata: Mapping[str, Any]) -> str:
    entries: list[Mapping[str, Any]] = sorted(metadata.get("managedFields") or [], key=lambda entry: str(entry.get("time") or ""))
    return str(entries[-1].get("manager") or "unknown") if entries else "unknown"
