"""ReplicaSets: keeps as many active pods as the spec wants, and counts the pods in the status.

This module follows pkg/controller/replicaset of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from processkube.kubernetes_api.objects.objects import Object, copy_of, timestamp
from processkube.kubernetes_api.workloads.conditions import condition_in, with_condition, without
from processkube.kubernetes_api.workloads.plans import Create, Delete
from processkube.kubernetes_api.workloads.pod_states import is_active, is_available, is_deleted, is_terminating, next_availability
from processkube.kubernetes_api.workloads.scale_in import first_to_go
from processkube.kubernetes_api.workloads.templates import pod_from
from processkube.kubernetes_api.writing.pods import is_ready

BURST = 500
"""Maximum number of pods that are created or deleted in one step."""
_FAILURE = "ReplicaFailure"


def replica_writes(replica_set: Object, pods: Sequence[Object], related: Sequence[Object], now: datetime) -> list[Create | Delete]:
    """Return the writes that create missing pods or delete excess pods.

    `pods` are the pods of this ReplicaSet. `related` are the pods of all ReplicaSets with the same controller.
    """
    if is_deleted(replica_set):
        return []
    active = [pod for pod in pods if is_active(pod)]
    missing = replica_set["spec"]["replicas"] - len(active)
    if missing > 0:
        return [Create(item=pod_from(replica_set["spec"]["template"], replica_set)) for _ in range(min(missing, BURST))]
    return [Delete(item=pod) for pod in first_to_go(active, related, min(-missing, BURST), now)] if missing else []


def replica_set_status(replica_set: Object, pods: Sequence[Object], failure: str, now: datetime) -> Object:
    """Return the ReplicaSet's status, counted from its pods before the writes. `failure` is the reason why a write
    failed; "" if none failed.
    """
    spec, before = replica_set["spec"], replica_set.get("status", {})
    active = [pod for pod in pods if is_active(pod)]
    labels = spec["template"].get("metadata", {}).get("labels", {})
    least = spec.get("minReadySeconds", 0)
    counts = {
        "fullyLabeledReplicas": sum(labels.items() <= pod["metadata"].get("labels", {}).items() for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(is_available(pod, least, now) for pod in active),
    }
    conditions: list[Object] = copy_of(before.get("conditions", []))
    if not failure:
        conditions = without(conditions, _FAILURE)
    elif condition_in(conditions, _FAILURE) is None:
        reason = "FailedCreate" if len(active) < spec["replicas"] else "FailedDelete"
        condition = {"type": _FAILURE, "status": "True", "lastTransitionTime": timestamp(now), "reason": reason, "message": failure}
        conditions = with_condition(conditions, condition)
    return {
        "replicas": len(active),
        **{name: count for name, count in counts.items() if count},
        "terminatingReplicas": sum(is_terminating(pod) for pod in pods),
        "observedGeneration": replica_set["metadata"]["generation"],
        **({"conditions": conditions} if conditions else {}),
    }


def look_again_at(replica_set: Object, pods: Sequence[Object], now: datetime) -> datetime | None:
    """Return the next time at which a pod becomes available without any change; None if there is no such time."""
    least = replica_set["spec"].get("minReadySeconds", 0)
    return next_availability((pod for pod in pods if is_active(pod)), least, now) if least else None
