"""How controllers of workloads read a pod: active, terminating, ready since when, available."""

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
    """Return whether the deletion of an object was requested."""
    return bool(item["metadata"].get("deletionTimestamp"))


def is_terminating(pod: Object) -> bool:
    return is_deleted(pod) and not is_finished(pod)


def ready_since(pod: Object) -> datetime | None:
    """Return the time at which a ready pod became ready; None for a pod that is not ready or does not report it."""
    for condition in at_path(pod, "status", "conditions", default=[]):
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            text = condition.get("lastTransitionTime")
            return parse_timestamp(text) if text else None
    return None


def is_available(pod: Object, min_ready_seconds: int, now: datetime) -> bool:
    """Return whether a pod has been ready for `min_ready_seconds`."""
    if not is_ready(pod):
        return False
    since = ready_since(pod)
    return min_ready_seconds == 0 or (since is not None and since + timedelta(seconds=min_ready_seconds) <= now)


def next_availability(pods: Iterable[Object], min_ready_seconds: int, now: datetime) -> datetime | None:
    """Return the first time at which one of these pods becomes available without a further event; None if no
    pod will.
    """
    moments = (since + timedelta(seconds=min_ready_seconds) for pod in pods if (since := ready_since(pod)) is not None)
    return min((moment for moment in moments if moment > now), default=None)
