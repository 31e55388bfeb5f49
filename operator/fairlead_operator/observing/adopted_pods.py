"""Pods of workloads that a pool selects: which of them exist, which are the pool's instances, and which belong to other
pools. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.adoption_specs import ADOPTED_BY_ANNOTATION
from fairlead.instance_marks import GROUP_LABEL, POOL_LABEL
from fairlead.instances import Role
from fairlead.pools import KIND, PoolSpec
from fairlead_operator.pool_identity import PoolIdentity

_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
"""LeaderWorkerSet's label with a pod's index in its group; the leader's index is 0, and only the leader answers
requests.
"""

_ENDED = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A selected pod that is not an instance of the pool yet. `claimant` is the pool that already owns the pod, as uid
    and name from the pod's owner reference; None if no pool owns it.
    """

    pod: Mapping[str, Any]
    role: Role
    claimant: tuple[str, str] | None

    @property
    def name(self) -> str:
        name: str = self.pod["metadata"]["name"]
        return name


def is_adopted(metadata: Mapping[str, Any], uid: str) -> bool:
    """Return whether the pod was adopted by the pool with this uid."""
    return (metadata.get("annotations") or {}).get(ADOPTED_BY_ANNOTATION) == uid


def is_adopted_elsewhere(metadata: Mapping[str, Any], uid: str) -> bool:
    """Return whether another pool than the pool with this uid has adopted the pod."""
    return str((metadata.get("annotations") or {}).get(ADOPTED_BY_ANNOTATION, uid)) != uid


def selected_role(labels: Mapping[str, str], spec: PoolSpec | None) -> Role | None:
    """Return the first role that selects a pod with these labels; None if no role does."""
    roles = spec.roles if spec is not None else ()
    return next((role.name for role in roles if role.selector is not None and role.selector.holds(labels)), None)


def claims(documents: Iterable[Mapping[str, Any]], identity: PoolIdentity, spec: PoolSpec | None) -> Iterator[Claim]:
    """Yield the selected pods that are not the pool's instances yet, except terminating pods, workers of a group, and
    pods of groups that a pool created.
    """
    for document in documents:
        metadata = document["metadata"]
        labels = metadata.get("labels") or {}
        role = selected_role(labels, spec)
        if role is None or is_adopted(metadata, identity.uid) or labels.get(_WORKER_INDEX, "0") != "0" or GROUP_LABEL in labels:
            continue
        if metadata.get("deletionTimestamp") or (document.get("status") or {}).get("phase") in _ENDED:
            continue
        claimant = _claimant(metadata)
        if claimant is None or claimant[0] != identity.uid:
            yield Claim(pod=document, role=role, claimant=claimant)


def _claimant(metadata: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return uid and name of the pool that created or adopted a pod."""
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("kind") == KIND:
            return str(owner.get("uid")), str(owner.get("name"))
    uid = (metadata.get("annotations") or {}).get(ADOPTED_BY_ANNOTATION)
    return (str(uid), str((metadata.get("labels") or {}).get(POOL_LABEL))) if uid else None
