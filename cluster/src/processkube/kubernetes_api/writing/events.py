"""The rules for the content of Events, in the core group and, stricter, in `events.k8s.io`.

They follow `ValidateEventCreate` and `ValidateEventUpdate` of Kubernetes 1.36. As in the real server, faults name the
fields as the core group does, except for `reportingComponent`.
"""

from __future__ import annotations

from processkube.kubernetes_api.objects.errors import Cause, invalid_value, required_value
from processkube.kubernetes_api.objects.objects import Object, at_path

_LONGEST = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_DEPRECATED = ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount", "deprecatedSource")
_FIXED = ("regarding", "reason", "note", "type", "eventTime", "action", "related", "reportingController", "reportingInstance", *_DEPRECATED)


def event_faults(event: Object, old: Object | None) -> list[Cause]:
    """Return the faults of a new or changed Event."""
    older = event["apiVersion"] == "v1"
    faults = _common_faults(event, older=older)
    if older:
        return faults
    series = event.get("series")
    if series and series != (old or {}).get("series"):
        if series.get("count", 0) < 2:
            faults.append(invalid_value("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            faults.append(required_value("series.lastObservedTime"))
    if old is not None:
        changed = [name for name in _FIXED if event.get(name) != old.get(name)]
        return faults + [invalid_value(_older_name(name), event.get(name), "field is immutable") for name in changed]
    if not event.get("eventTime"):
        faults.append(required_value("eventTime"))
    if event.get("type") not in {"Normal", "Warning"}:
        faults.append(invalid_value("type", "", f"has invalid value: {event.get('type', '')}"))
    return faults + [invalid_value(_older_name(name), "", "needs to be unset") for name in _DEPRECATED if event.get(name)]


def _common_faults(event: Object, *, older: bool) -> list[Cause]:
    namespace = event["metadata"].get("namespace", "")
    target = at_path(event, "involvedObject" if older else "regarding", "namespace", default="")
    timed = bool(event.get("eventTime"))
    faults: list[Cause] = []
    without = {"default", "kube-system"} if timed else {"default"}
    if (not target and namespace not in without) or (target and target != namespace and not timed):
        faults.append(invalid_value("involvedObject.namespace", target, "does not match event.namespace"))
    if not timed:
        return faults
    texts = {
        "reportingComponent" if older else "reportingController": event.get("reportingComponent" if older else "reportingController"),
        "reportingInstance": event.get("reportingInstance"),
        "action": event.get("action"),
        "reason": event.get("reason"),
    }
    faults += [required_value(name) for name, text in texts.items() if not text]
    texts["message"] = event.get("message" if older else "note")
    for name, longest in _LONGEST.items():
        if len((texts[name] or "").encode()) > longest:
            faults.append(invalid_value(name, "", f"can have at most {longest} characters"))
    return faults


def _older_name(name: str) -> str:
    names = {"regarding": "involvedObject", "note": "message"}
    bare = name.removeprefix("deprecated")
    return names.get(name) or (bare[0].lower() + bare[1:])
