"""The status of a Deployment: counts over its ReplicaSets, and the conditions Available and Progressing.

This module follows pkg/controller/deployment/progress.go and sync.go of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from processkube.kubernetes_api.objects.objects import Object, at_path, copy_of, parse_timestamp, timestamp
from processkube.kubernetes_api.workloads.conditions import condition_in, with_condition, without
from processkube.kubernetes_api.workloads.rollouts import NEVER, count_in_status, max_unavailable, replicas_of

PROGRESSING = "Progressing"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"
_AVAILABLE, _FAILURE = "Available", "ReplicaFailure"
_COMPLETE, _UPDATED, _TIMED_OUT = "NewReplicaSetAvailable", "ReplicaSetUpdated", "ProgressDeadlineExceeded"


def condition(kind: str, status: str, reason: str, message: str, now: datetime) -> Object:
    moment = timestamp(now)
    return {
        "type": kind,
        "status": status,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }


def set_condition(status: Object, given: Object) -> None:
    status["conditions"] = with_condition(status.get("conditions", []), given)


def has_deadline(deployment: Object) -> bool:
    return bool(deployment["spec"].get("progressDeadlineSeconds", NEVER) != NEVER)


def note_pause(deployment: Object, now: datetime) -> None:
    """Record in the Deployment's status that its rollout pauses or resumes. When it resumes, its deadline begins
    again.
    """
    before = condition_in(deployment["status"].get("conditions", []), PROGRESSING)
    if not has_deadline(deployment) or (before and before["reason"] == _TIMED_OUT):
        return
    paused, said = bool(deployment["spec"].get("paused")), bool(before and before["reason"] == PAUSED)
    if paused and not said:
        set_condition(deployment["status"], condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now))
    elif said and not paused:
        set_condition(deployment["status"], condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now))


def counted_status(deployment: Object, replica_sets: Sequence[Object], new: Object | None, now: datetime) -> Object:
    """Return the Deployment's status with the counts of its ReplicaSets and a new condition Available. The other
    conditions stay as they are.
    """
    before, wanted = deployment["status"], replicas_of(deployment)
    available = count_in_status(replica_sets, "availableReplicas")
    counts = {
        "replicas": count_in_status(replica_sets, "replicas"),
        "updatedReplicas": count_in_status([new] if new else [], "replicas"),
        "readyReplicas": count_in_status(replica_sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(map(replicas_of, replica_sets)) - available),
        "collisionCount": before.get("collisionCount", 0),
    }
    status: Object = {name: count for name, count in counts.items() if count}
    status["terminatingReplicas"] = count_in_status(replica_sets, "terminatingReplicas")
    status["observedGeneration"] = deployment["metadata"]["generation"]
    status["conditions"] = copy_of(before.get("conditions", []))
    if available >= wanted - max_unavailable(deployment):
        message = "Deployment has minimum availability."
        set_condition(status, condition(_AVAILABLE, "True", "MinimumReplicasAvailable", message, now))
    else:
        message = "Deployment does not have minimum availability."
        set_condition(status, condition(_AVAILABLE, "False", "MinimumReplicasUnavailable", message, now))
    return status


def rollout_status(deployment: Object, replica_sets: Sequence[Object], new: Object | None, now: datetime) -> Object:
    """Return the result of `counted_status` with the rollout's progress since the previous status and with failures of
    the ReplicaSets.
    """
    before = deployment["status"]
    status = counted_status(deployment, replica_sets, new, now)
    was = condition_in(before.get("conditions", []), PROGRESSING)
    if not has_deadline(deployment):
        status["conditions"] = without(status["conditions"], PROGRESSING)
    elif not (was and was["reason"] == _COMPLETE and status.get("replicas", 0) == status.get("updatedReplicas", 0)):
        _note_progress(deployment, status, was, _named(deployment, new), now)
    failure = next((found for one in ([new] if new else []) + list(replica_sets) if (found := _failure_of(one))), None)
    if failure is None:
        status["conditions"] = without(status["conditions"], _FAILURE)
    else:
        set_condition(status, {**failure, "lastUpdateTime": failure["lastTransitionTime"]})
    return status


def _note_progress(deployment: Object, status: Object, was: Object | None, name: str, now: datetime) -> None:
    if is_complete(deployment, status):
        set_condition(status, condition(PROGRESSING, "True", _COMPLETE, f"{name} has successfully progressed.", now))
    elif _progressed(deployment["status"], status):
        progress = condition(PROGRESSING, "True", _UPDATED, f"{name} is progressing.", now)
        if was is not None and was["status"] == "True":
            progress["lastTransitionTime"] = was["lastTransitionTime"]
        status["conditions"] = [*without(status["conditions"], PROGRESSING), progress]
    elif _timed_out(deployment, was, now):
        set_condition(status, condition(PROGRESSING, "False", _TIMED_OUT, f"{name} has timed out progressing.", now))


def is_complete(deployment: Object, status: Object) -> bool:
    """Return whether all replicas have the Deployment's template and are available, and there are no other pods."""
    wanted = replicas_of(deployment)
    counts = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return all(count == wanted for count in counts) and status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]


def _progressed(before: Object, after: Object) -> bool:
    def grew(name: str) -> bool:
        return bool(after.get(name, 0) > before.get(name, 0))

    def old(status: Object) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    return grew("updatedReplicas") or grew("readyReplicas") or grew("availableReplicas") or old(after) < old(before)


def _timed_out(deployment: Object, was: Object | None, now: datetime) -> bool:
    if was is None or was["reason"] == _COMPLETE:
        return False
    return bool(was["reason"] == _TIMED_OUT) or _deadline(deployment, was) < now


def deadline_of(deployment: Object, status: Object) -> datetime | None:
    """Return the time at which the rollout fails with a timeout unless it makes progress before. Return None if the
    rollout has no deadline, is paused, is complete or has already failed.
    """
    was = condition_in(status.get("conditions", []), PROGRESSING)
    if not has_deadline(deployment) or deployment["spec"].get("paused") or was is None:
        return None
    if was["reason"] in {_TIMED_OUT, _COMPLETE} or is_complete(deployment, status):
        return None
    return _deadline(deployment, was) + timedelta(seconds=1)


def _deadline(deployment: Object, progress: Object) -> datetime:
    return parse_timestamp(progress["lastUpdateTime"]) + timedelta(seconds=deployment["spec"]["progressDeadlineSeconds"])


def _named(deployment: Object, new: Object | None) -> str:
    return f'ReplicaSet "{new["metadata"]["name"]}"' if new else f'Deployment "{deployment["metadata"]["name"]}"'


def _failure_of(replica_set: Object) -> Object | None:
    return condition_in(at_path(replica_set, "status", "conditions", default=[]), _FAILURE)
