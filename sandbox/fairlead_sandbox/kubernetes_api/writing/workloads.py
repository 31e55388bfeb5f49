"""Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: defaults and checks. No controller acts on them here."""

from __future__ import annotations

from fairlead_sandbox.kubernetes_api.objects.errors import Cause, forbidden_value, invalid_value, not_supported, required_value
from fairlead_sandbox.kubernetes_api.objects.objects import Object, at_path
from fairlead_sandbox.kubernetes_api.objects.selectors import selector_of_object
from fairlead_sandbox.kubernetes_api.writing.pods import default_pod_spec, pod_spec_faults

_ENDING_POLICIES = ("OnFailure", "Never")
_MUTABLE_OF_STATEFUL_SETS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_OF_STATEFUL_SETS = (
    "updates to statefulset spec for fields other than "
    + ", ".join(f"'{name}'" for name in _MUTABLE_OF_STATEFUL_SETS[:-1])
    + f" and '{_MUTABLE_OF_STATEFUL_SETS[-1]}' are forbidden"
)
"""The server's own sentence."""
_ROLLING = {"maxUnavailable": "25%", "maxSurge": "25%"}


def default_workload(item: Object) -> None:
    spec = item.setdefault("spec", {})
    kind = item["kind"]
    if kind != "DaemonSet":
        spec.setdefault("replicas", 1)
    if kind == "Deployment":
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = {**_ROLLING, **strategy.get("rollingUpdate", {})}
        spec.setdefault("progressDeadlineSeconds", 600)
    elif kind in {"StatefulSet", "DaemonSet"}:
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            default = {"partition": 0} if kind == "StatefulSet" else {"maxUnavailable": 1, "maxSurge": 0}
            strategy["rollingUpdate"] = {**default, **strategy.get("rollingUpdate", {})}
    if kind == "StatefulSet":
        spec.setdefault("podManagementPolicy", "OrderedReady")
        spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
    if kind != "ReplicaSet":
        spec.setdefault("revisionHistoryLimit", 10)
    if isinstance(pod_spec := at_path(spec, "template", "spec"), dict):
        default_pod_spec(pod_spec)


def workload_faults(item: Object, old: Object | None) -> list[Cause]:
    spec = item.get("spec", {})
    causes: list[Cause] = []
    if (replicas := spec.get("replicas", 0)) < 0:
        causes.append(invalid_value("spec.replicas", replicas, "must be greater than or equal to 0"))
    selector = spec.get("selector")
    template = spec.get("template", {})
    if not selector:
        causes.append(required_value("spec.selector"))
    elif not selector_of_object(selector).requirements:
        causes.append(invalid_value("spec.selector", selector, f"empty selector is invalid for {item['kind'].lower()}"))
    elif not selector_of_object(selector).matches(at_path(template, "metadata", "labels")):
        labels = at_path(template, "metadata", "labels", default={})
        causes.append(invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
    claimed = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())]
    causes += pod_spec_faults(template.get("spec", {}), "spec.template.spec", claimed)
    if old is not None and item["kind"] == "StatefulSet" and _fixed_part(old) != _fixed_part(item):
        causes.append(forbidden_value("spec", _OF_STATEFUL_SETS))
    elif old is not None and at_path(old, "spec", "selector") != selector:
        causes.append(invalid_value("spec.selector", selector, "field is immutable"))
    return causes


def _fixed_part(stateful_set: Object) -> Object:
    """What of a StatefulSet's spec no update may change."""
    return {name: value for name, value in stateful_set.get("spec", {}).items() if name not in _MUTABLE_OF_STATEFUL_SETS}


def default_job(item: Object) -> None:
    spec = item.setdefault("spec", {})
    for name, value in (("completions", 1), ("parallelism", 1), ("backoffLimit", 6), ("completionMode", "NonIndexed"), ("suspend", False)):
        spec.setdefault(name, value)
    if isinstance(pod_spec := at_path(spec, "template", "spec"), dict):
        default_pod_spec(pod_spec)


def job_faults(item: Object, old: Object | None) -> list[Cause]:
    spec = item.get("spec", {})
    pod_spec = at_path(spec, "template", "spec", default={})
    causes = pod_spec_faults(pod_spec, "spec.template.spec")
    if (policy := pod_spec.get("restartPolicy")) not in _ENDING_POLICIES:
        causes.append(not_supported("spec.template.spec.restartPolicy", policy, _ENDING_POLICIES))
    if old is not None and at_path(old, "spec", "template") != spec.get("template"):
        causes.append(invalid_value("spec.template", spec.get("template"), "field is immutable"))
    return causes
