"""Handles changes that others make to the pool's pods: records each change, and repairs it if possible.

The control API stores the pool's instances, and reports which of them are missing in the state that the operator sent.
So a restarted operator also notices instances that ended while no operator ran. If the pod of a missing instance still
exists, the pod has only lost its labels and annotations (marks).
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
"""Pause in seconds before a mark that was removed or changed again is restored again. It doubles each time, up to an
hour.
"""
_LONGEST_SECONDS = 3600.0


class OthersActs:
    """The changes that others make to one pool's pods. The memory of this object only prevents duplicate records of a
    change.
    """

    def __init__(self, cluster: Cluster, recorder: EventRecorder, retries: ActionRetries, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._retries = retries
        self._clock = clock
        self._marks = KnownMarks()
        self._told: set[str] = set()
        """Instances about which an event has already recorded that they are being removed."""
        self._restored: dict[tuple[str, str], tuple[float, float]] = {}
        """By pod and mark: the time when the mark was last restored, and the seconds until it may be restored again.
        The pause is needed because a webhook, for example, may remove or change a mark again at once.
        """
        self._unreplaced: dict[str, Role] = {}
        """Instances that ended and have no successor yet, with their roles."""

    def told(self, instance: str) -> None:
        """Remember that an event has recorded the removal of this instance, so that its end is not recorded again."""
        self._told.add(instance)

    def is_told(self, instance: str) -> bool:
        """Return whether an event has recorded that this instance is being removed."""
        return instance in self._told

    async def restore_marks(
        self, identity: PoolIdentity, documents: Iterable[Mapping[str, Any]], spec: PoolSpec | None, last_ordinal: int
    ) -> bool:
        """Restore marks that are missing or changed on the pool's own pods: the pods in `documents`, and pods that are
        missing there because their label changed. Return whether any mark was restored. Raises ClusterError.
        """
        documents = tuple(documents)
        documents = [*documents, *await self._relabelled(identity, documents)]
        lost = [one for one in self._marks.lost(documents, identity, spec, last_ordinal) if not self._was_restored(one)]
        return any([await self._restore(identity, one) for one in lost])

    async def account_for(self, identity: PoolIdentity, ended: Sequence[EndedInstance], spec: PoolSpec | None, last_ordinal: int) -> bool:
        """Record the end of each of these instances, unless an event has already recorded it. An instance whose pod
        still exists gets its marks back instead. Return True if at least one instance got its marks back.

        Raises ClusterError.
        """
        present = []
        for one in ended:
            if one.id in self._told:
                self._told.discard(one.id)
                continue
            found = await self._own(identity, one.id)
            lost = None if found is None else self._marks.of(found, identity, spec, last_ordinal)
            if lost is None:
                self._tell_of_end(identity, one)
            elif self._was_restored(lost):
                self._tell_of_loss(identity, one, lost)
            else:
                present.append(lost)
        return any([await self._restore(identity, one) for one in present])

    def unreplaced(self) -> Mapping[str, Role]:
        """Return the instances that ended and have no successor yet, with their roles."""
        return self._unreplaced

    def planned(self, actions: Iterable[Action], *, is_planned: bool) -> None:
        """Forget the ended instances that these actions replace, so that each of them is replaced only once. If a plan
        was made and it creates no instance, forget all ended instances, because then the pool needs no further
        successor.
        """
        creations = [action for action in actions if isinstance(action, CreateInstance)]
        if is_planned and not creations:
            self._unreplaced = {}
        for action in creations:
            self._unreplaced.pop(action.replaces, None)

    async def _relabelled(self, identity: PoolIdentity, documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the pool's own pods that the last reading contained, that are not among `documents`, and that still
        exist. Somebody has probably changed their labels.
        """
        names = sorted(self._marks.missing(documents) - self._told)
        return [found for name in names if (found := await self._own(identity, name)) is not None]

    async def _own(self, identity: PoolIdentity, name: str) -> Mapping[str, Any] | None:
        """Return the pool's own pod of this name; None if it does not exist or is being deleted."""
        found = await self._cluster.get(Resource.PODS, identity.namespace, name)
        is_there = found is not None and is_owned(found["metadata"], identity.uid) and not found["metadata"].get("deletionTimestamp")
        return found if is_there else None

    def _tell_of_loss(self, identity: PoolIdentity, one: EndedInstance, lost: LostMarks) -> None:
        self._unreplaced[one.id] = one.role
        words = f"{one.id} has left the pool and runs on without requests: it again {lost.words} ({_last_writer(lost.pod['metadata'])})"
        self._recorder.record(identity, self._clock(), "InstanceVanished", words, instance=one.id)

    def _tell_of_end(self, identity: PoolIdentity, one: EndedInstance) -> None:
        served = one.state in ACCEPTING or one.state is InstanceState.CORDONED
        words = f"{one.id} is gone: its pod was deleted by somebody else, without its grace period; it was {one.state}"
        if not served:
            words = f"{one.id} is gone; it was {one.state}"
        if one.state is not InstanceState.DRAINING:
            self._unreplaced[one.id] = one.role
        self._recorder.record(identity, self._clock(), "InstanceVanished" if served else "InstanceGone", words, instance=one.id)

    def _was_restored(self, lost: LostMarks) -> bool:
        at, pause = self._restored.get((str(lost.pod["metadata"].get("uid")), lost.names), (0.0, 0.0))
        return 0 <= self._clock() - at < pause

    async def _restore(self, identity: PoolIdentity, lost: LostMarks) -> bool:
        metadata = lost.pod["metadata"]
        body = {"metadata": {"uid": metadata["uid"], "labels": lost.labels, "annotations": lost.annotations}}
        act = partial(self._cluster.patch, Resource.PODS, identity.namespace, metadata["name"], body)
        if not await self._retries.attempt(identity, ("marks", (metadata["name"], lost.names)), act):
            return False
        mark, now = (str(metadata.get("uid")), lost.names), self._clock()
        _, pause = self._restored.get(mark, (now, AGAIN_SECONDS / 2))
        self._restored[mark] = now, min(_LONGEST_SECONDS, 2 * pause)
        words = f"{metadata['name']} {lost.words} ({_last_writer(metadata)}); the labels and annotations are restored"
        self._recorder.record(identity, self._clock(), "InstanceMarksRestored", words, instance=metadata["name"])
        return True


def _last_writer(metadata: Mapping[str, Any]) -> str:
    entries: list[Mapping[str, Any]] = sorted(metadata.get("managedFields") or [], key=lambda entry: str(entry.get("time") or ""))
    return str(entries[-1].get("manager") or "unknown") if entries else "unknown"
