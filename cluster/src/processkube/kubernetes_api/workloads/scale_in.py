"""Chooses the pods to delete if there are too many, in the order of Kubernetes' `ActivePodsWithRanks`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cmp_to_key

from processkube.kubernetes_api.objects.objects import Object, at_path, parse_timestamp
from processkube.kubernetes_api.workloads.pod_states import is_active, ready_since
from processkube.kubernetes_api.writing.pods import DELETION_COST, is_ready

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def first_to_go(pods: Iterable[Object], related: Iterable[Object], count: int, now: datetime) -> list[Object]:
    """Return the `count` pods to delete. `related` are the pods of all ReplicaSets of the same Deployment, including
    `pods`.
    """
    given = list(pods)
    if count >= len(given):
        return given
    on_node = Counter(_node(pod) for pod in related if is_active(pod))
    ranks = {pod["metadata"]["uid"]: on_node[_node(pod)] for pod in given}

    def compare(one: Object, other: Object) -> int:
        if early := _sign(_standing(one, ranks), _standing(other, ranks)):
            return early
        if is_ready(one):
            since, other_since = ready_since(one), ready_since(other)
            if since != other_since:
                return _younger_first(one, other, since, other_since, now)
        if restarts := _sign(_restarts(other), _restarts(one)):
            return restarts
        created, other_created = _created(one), _created(other)
        return 0 if created == other_created else _younger_first(one, other, created, other_created, now)

    return sorted(given, key=cmp_to_key(compare))[:count]


def _standing(pod: Object, ranks: dict[str, int]) -> tuple[int, int, bool, int, int]:
    """Return a pod's sort key, lowest to be deleted first: pods without a node, pending pods, pods that are not ready,
    pods with a low deletion cost, and pods on a node with many related pods.
    """
    return (
        int(bool(_node(pod))),
        _PHASES.get(at_path(pod, "status", "phase", default="Pending"), 0),
        is_ready(pod),
        deletion_cost(pod),
        -ranks[pod["metadata"]["uid"]],
    )


def deletion_cost(pod: Object) -> int:
    """Return the deletion cost in the pod's annotation; 0 without this annotation."""
    return int(at_path(pod, "metadata", "annotations", default={}).get(DELETION_COST, 0))


def _younger_first(one: Object, other: Object, moment: datetime | None, other_moment: datetime | None, now: datetime) -> int:
    """Compare two pods by age; the younger pod comes first. Ages count as equal if their logarithms to base 2 round to
    the same number. Then the pods' uids decide, which are random.
    """
    if moment is None or other_moment is None:
        return -1 if moment is None else 1
    difference = _magnitude(now - moment) - _magnitude(now - other_moment)
    return difference or _sign((one["metadata"]["uid"],), (other["metadata"]["uid"],))


def _magnitude(age: timedelta) -> int:
    nanoseconds = age / timedelta(microseconds=1) * 1000
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _restarts(pod: Object) -> tuple[int, int]:
    """Return two numbers of restarts: the highest of any container of the pod, and the highest of any sidecar of the
    pod.
    """
    statuses = at_path(pod, "status", "containerStatuses", default=[])
    sidecars = {one["name"] for one in at_path(pod, "spec", "initContainers", default=[]) if one.get("restartPolicy") == "Always"}
    beside = [one for one in at_path(pod, "status", "initContainerStatuses", default=[]) if one.get("name") in sidecars]
    return _most(statuses), _most(beside)


def _most(statuses: Sequence[Object]) -> int:
    return max((int(one.get("restartCount", 0)) for one in statuses), default=0)


def _created(pod: Object) -> datetime:
    return parse_timestamp(pod["metadata"]["creationTimestamp"])


def _node(pod: Object) -> str:
    return str(at_path(pod, "spec", "nodeName", default=""))


def _sign(one: tuple[object, ...], other: tuple[object, ...]) -> int:
    return (one > other) - (one < other)
