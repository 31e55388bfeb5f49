"""Instances of several pods: a LeaderWorkerSet with one group, whose leader pod represents the instance. Pure.

The leader is read like a single pod of the pool: the owner and the deletion of its LeaderWorkerSet count as the
leader's own. The controller of LeaderWorkerSets ends a leader to restart its group; the instance is then lost for a
while and returns under the same name. While the leader pod does not exist, a document made from the set's template
represents it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairlead.conditions.facts import Trouble
from fairlead.instance_marks import GROUP_LABEL
from fairlead_operator.pod_marks import LEADER

GROUP = "leaderWorkerSet"
"""Member of a leader's document: its LeaderWorkerSet."""
WORKERS = "workers"
"""Key in a leader's document; its value lists the other pods of the group."""
_SET_NAME = "leaderworkerset.sigs.k8s.io/name"
_ENDED = frozenset({"Failed", "Succeeded"})
_RESTARTS = "GroupRestarts"
LEADERLESS_SECONDS = 30.0
"""Age of a set, in seconds, from which a missing leader pod is a problem. The set's controller usually creates the
leader in less than a second.
"""

Document = Mapping[str, Any]


def has_groups(documents: Iterable[Document]) -> bool:
    """Return whether one of these pods is the leader of a group."""
    return any(GROUP_LABEL in (document["metadata"].get("labels") or {}) for document in documents)


def with_groups(pods: Sequence[Document], sets: Iterable[Document], members: Iterable[Document]) -> list[dict[str, Any]]:
    """Return the pool's single pods, and one leader document for each of the pool's LeaderWorkerSets; `members` are all
    pods of their groups.

    A leader pod that remains from a deleted set is left out, because the operator need not act on it.
    """
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    members, leaders = list(members), {}
    for found in sets:
        name = f"{found['metadata']['name']}{LEADER}"
        workers = [one for one in members if _set_of(one) == found["metadata"]["name"] and one["metadata"]["name"] != name]
        leaders[name] = _leader(found, by_name.get(name), workers)
    others = [dict(pod) for pod in pods if GROUP_LABEL not in (pod["metadata"].get("labels") or {})]
    return [*others, *leaders.values()]


def group_of(document: Document) -> str:
    """Return the name of the LeaderWorkerSet to which a leader pod belongs; empty for a pod without a set."""
    found: Document = document.get(GROUP) or {}
    return str(found["metadata"]["name"]) if found else ""


def is_leaderless(document: Document) -> bool:
    """Return whether this is a LeaderWorkerSet that has no leader pod."""
    return bool(document.get(GROUP)) and bool(document["metadata"].get("uid") == document[GROUP]["metadata"].get("uid"))


def no_leader(group: str) -> Trouble:
    """Return the problem of a set whose leader pod does not appear."""
    words = (
        f"LeaderWorkerSet {group} has no leader pod: look at its events and those of StatefulSet {group}, and whether its controller runs"
    )
    return Trouble(instance=f"{group}{LEADER}", reason="LeaderMissing", message=words)


def _leader(found: Document, pod: Document | None, workers: list[Document]) -> dict[str, Any]:
    metadata, template = found["metadata"], found["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    own = pod if pod is not None else {"metadata": {**template["metadata"], "uid": metadata.get("uid")}, "spec": template["spec"]}
    shown = {
        **own["metadata"],
        "name": f"{metadata['name']}{LEADER}",
        "namespace": metadata.get("namespace"),
        "ownerReferences": metadata.get("ownerReferences") or [],
        "deletionTimestamp": metadata.get("deletionTimestamp"),
        "creationTimestamp": own["metadata"].get("creationTimestamp") or metadata.get("creationTimestamp"),
    }
    return {**own, "metadata": shown, "status": _status(pod), GROUP: found, WORKERS: workers}


def _status(pod: Document | None) -> dict[str, Any]:
    """Return the leader's status. A leader that ends or has ended is created again with its group, so it is not lost
    permanently.
    """
    if pod is None:
        return {"phase": "Pending"}
    status: dict[str, Any] = dict(pod.get("status") or {})
    if status.get("phase") in _ENDED or pod["metadata"].get("deletionTimestamp"):
        return {"phase": "Pending", "reason": status.get("reason") or _RESTARTS, "podIP": status.get("podIP")}
    return status


def _set_of(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_SET_NAME, ""))
