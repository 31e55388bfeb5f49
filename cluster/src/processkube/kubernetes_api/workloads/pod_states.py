"""The states of a pod that controllers of workloads distinguish: active, terminating, ready since a time, available."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from processkube.kubernetes_api.objects.objects import Object, at_path, parse_timestamp
from processkube.kubernetes_api.writing.pods import FINISHED, is_ready


def is_active(pod: Object) -> bool:
    """Return whether a pod counts as a replica: it has not finished and is not being deleted."""
    return not is_finished(pod) and not is_deleted(pod)


def is_finished(pod: Object) -> bool:
    return at_path(pod, "status", "phase") in FINISHED


def is_deleted(item: Object) -> bool:
    """Return whether an object is being deleted."""
    return bool(item["metadata"].get("deletionTimestamp"))


def is_terminating(pod: Object) -> bool:
    return is_deleted(pod) and not is_finished(pod)


def ready_since(pod: Object) -> datetime | None:
    """Return the time since which a pod is ready; None if it is not ready or the time is not reported."""
    for condition in at_path(pod, "status", "conditions", default=[]):
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            text = condition.get("lastTransitionTime")
            return parse_timestamp(text) if text else None
    return None


def is_available(pod: Object, min_ready_seconds: int, now: datetime) -> bool:
    """Return whether a pod has been ready for at least `min_ready_seconds`."""
    if not is_ready(pod):
        return False
    since = ready_since(pod)
    return min_ready_seconds == 0 or (since is not None and since + timedelta(seconds=min_ready_seconds) <= now)


def next_availability(pods: Iterable[Object], min_ready_seconds: int, now: datetime) -> datetime | None:
    """Return the time at which the next of these pods becomes available if nothing changes; None if no ready pod is
    waiting to become available.
    """
    moments = (since + timedelta(seconds=min_ready_seconds) for pod in pods if (since := ready_since(pod)) is not None)
    return min((moment for moment in moments if moment > now), default=None)
