"""Properties of a Deployment's rollout: its limits, its revisions, and the ReplicaSet with its template.

This module follows pkg/controller/deployment/util of Kubernetes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from processkube.kubernetes_api.objects.objects import Object, at_path, copy_of
from processkube.kubernetes_api.workloads.owners import reference_to
from processkube.kubernetes_api.workloads.templates import POD_TEMPLATE_HASH, hash_of, same_template

NEVER = 2**31 - 1
"""A deadline or a limit that has no effect."""
REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
_HISTORY = "deployment.kubernetes.io/revision-history"
_HISTORY_LIMIT_CHARACTERS = 2000
_NOT_COPIED = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", REVISION, _HISTORY, DESIRED, MOST, "deprecated.deployment.rollback.to"}
)


def replicas_of(item: Object) -> int:
    """Return the number of replicas in a workload's spec."""
    return int(item["spec"]["replicas"])


def count_in_status(items: Iterable[Object], name: str) -> int:
    return sum(int(at_path(item, "status", name, default=0)) for item in items)


def is_rolling(deployment: Object) -> bool:
    return bool(deployment["spec"]["strategy"]["type"] == "RollingUpdate")


def max_surge(deployment: Object) -> int:
    """Return the maximum number of pods in addition to the wanted replicas; 0 if the Deployment's strategy is not
    RollingUpdate.
    """
    return _limits(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Object) -> int:
    """Return the maximum number of wanted replicas that may be unavailable; 0 if the Deployment's strategy is not
    RollingUpdate.
    """
    replicas = replicas_of(deployment)
    return min(_limits(deployment)[1], replicas) if is_rolling(deployment) and replicas else 0


def _limits(deployment: Object) -> tuple[int, int]:
    """Return `maxSurge` and `maxUnavailable` as numbers of pods. If both would be 0, `maxUnavailable` is 1, because the
    rollout could not proceed otherwise.
    """
    rolling, replicas = deployment["spec"]["strategy"]["rollingUpdate"], replicas_of(deployment)
    surge = scaled(rolling["maxSurge"], replicas, up=True)
    unavailable = scaled(rolling["maxUnavailable"], replicas, up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def scaled(value: int | str, total: int, *, up: bool) -> int:
    """Return `value` if it is a number. If it is a percentage, return this share of `total`, rounded up or down."""
    if isinstance(value, int):
        return value
    share = int(value.rstrip("%")) * total
    return -(-share // 100) if up else share // 100


def by_age(replica_sets: Iterable[Object]) -> list[Object]:
    """Return the ReplicaSets sorted by age, oldest first."""
    return sorted(replica_sets, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))


def of_template(deployment: Object, replica_sets: Iterable[Object]) -> Object | None:
    """Return the ReplicaSet that has the Deployment's template, the oldest if there are several; None if there is
    none.
    """
    wanted = deployment["spec"]["template"]
    return next((one for one in by_age(replica_sets) if same_template(one["spec"]["template"], wanted)), None)


def revision_of(replica_set: Object) -> int:
    """Return the ReplicaSet's revision number from its annotation; 0 if the annotation is missing or not a number."""
    text = at_path(replica_set, "metadata", "annotations", default={}).get(REVISION, "0")
    return int(text) if text.isdecimal() else 0


def new_replica_set(deployment: Object, replica_sets: Sequence[Object], taken_names: Iterable[str]) -> Object:
    """Return a ReplicaSet with the Deployment's template, a name that is not in `taken_names`, and as many pods as are
    allowed now.

    Each name that is taken increases the Deployment's `collisionCount`.
    """
    taken, status = set(taken_names), deployment["status"]
    while _name(deployment) in taken:
        status["collisionCount"] = status.get("collisionCount", 0) + 1
    spec, name = deployment["spec"], _name(deployment)
    label = {POD_TEMPLATE_HASH: name.rsplit("-", 1)[-1]}
    template: Object = copy_of(spec["template"])
    template["metadata"]["labels"] |= label
    selector: Object = copy_of(spec["selector"])
    selector["matchLabels"] = {**selector.get("matchLabels", {}), **label}
    made: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": deployment["metadata"]["namespace"],
            "labels": copy_of(template["metadata"]["labels"]),
            "ownerReferences": [reference_to(deployment)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }
    if spec.get("minReadySeconds"):
        made["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    made["spec"]["replicas"] = replicas_of_new(deployment, [*replica_sets, made], made)
    annotate(deployment, made, 1 + max(map(revision_of, replica_sets), default=0))
    annotate_replicas(deployment, made)
    return made


def _name(deployment: Object) -> str:
    name = deployment["metadata"]["name"]
    return f"{name}-{hash_of(deployment['spec']['template'], deployment['status'].get('collisionCount'))}"


def replicas_of_new(deployment: Object, replica_sets: Iterable[Object], new: Object) -> int:
    """Return the number of pods that the ReplicaSet `new` may have now, as long as the other ReplicaSets keep their
    sizes.
    """
    wanted = replicas_of(deployment)
    if not is_rolling(deployment):
        return wanted
    surge = scaled(deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"], wanted, up=True)
    room = wanted + surge - sum(map(replicas_of, replica_sets))
    return replicas_of(new) + min(room, wanted - replicas_of(new)) if room > 0 else replicas_of(new)


def annotate(deployment: Object, replica_set: Object, revision: int) -> None:
    """Copy the Deployment's annotations to the ReplicaSet, and set the ReplicaSet's revision number if it is lower. The
    previous number is added to the revision history.
    """
    annotations = replica_set["metadata"].setdefault("annotations", {})
    given = deployment["metadata"].get("annotations", {})
    annotations |= {name: value for name, value in given.items() if name not in _NOT_COPIED}
    before = annotations.get(REVISION)
    if revision_of(replica_set) >= revision:
        return
    annotations[REVISION] = str(revision)
    if before is not None:
        history = [*filter(None, annotations.get(_HISTORY, "").split(",")), before]
        while len(",".join(history)) > _HISTORY_LIMIT_CHARACTERS:
            history.pop(0)
        annotations[_HISTORY] = ",".join(history)


def annotate_replicas(deployment: Object, replica_set: Object) -> None:
    """Record in the ReplicaSet the number of replicas that the Deployment wants. If the Deployment later wants another
    number, the recorded number shows that the Deployment was scaled.
    """
    wanted = replicas_of(deployment)
    annotations = replica_set["metadata"].setdefault("annotations", {})
    annotations |= {DESIRED: str(wanted), MOST: str(wanted + max_surge(deployment))}


def share_of(deployment: Object, replica_set: Object, to_add: int, added: int) -> int:
    """Return the number of pods to add to this ReplicaSet; a negative number of pods is removed. All ReplicaSets
    together get `to_add` pods, of which `added` are already given to other ReplicaSets. This ReplicaSet gets its
    proportional share, but not more than the rest.
    """
    size = replicas_of(replica_set)
    if not size or to_add == added:
        return 0
    fraction = _fraction(deployment, replica_set)
    return min(fraction, to_add - added) if to_add > 0 else max(fraction, to_add - added)


def _fraction(deployment: Object, replica_set: Object) -> int:
    size, wanted = replicas_of(replica_set), replicas_of(deployment)
    if not wanted:
        return -size
    noted = number_in(replica_set, MOST) or count_in_status([deployment], "replicas")
    if not noted:
        return 0
    return math.floor(size * (wanted + max_surge(deployment)) / noted + 0.5) - size


def number_in(replica_set: Object, annotation: str) -> int | None:
    text = at_path(replica_set, "metadata", "annotations", default={}).get(annotation, "")
    return int(text) if text.isdecimal() else None
