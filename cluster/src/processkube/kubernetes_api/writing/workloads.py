"""Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: defaults and checks."""

from __future__ import annotations

from typing import Any

from processkube.kubernetes_api.objects.errors import Cause, forbidden_value, invalid_value, not_supported, required_value
from processkube.kubernetes_api.objects.naming import label_selector_faults
from processkube.kubernetes_api.objects.objects import Object, at_path
from processkube.kubernetes_api.objects.selectors import selector_of_object
from processkube.kubernetes_api.writing.pods import default_pod_spec, pod_spec_faults

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
"""The message of the real server for a forbidden change of a StatefulSet."""
_JOB_LABELS = "batch.kubernetes.io/"
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
    selector = spec.get("selector")
    template = spec.get("template", {})
    if not selector:
        causes.append(required_value("spec.selector"))
    elif faults := label_selector_faults(selector, "spec.selector"):
        causes += faults
    elif not selector_of_object(selector).requirements:
        causes.append(invalid_value("spec.selector", selector, f"empty selector is invalid for {item['kind'].lower()}"))
    elif not selector_of_object(selector).matches(at_path(template, "metadata", "labels")):
        labels = at_path(template, "metadata", "labels", default={})
        causes.append(invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
    causes += _number_faults(spec)
    if item["kind"] == "Deployment":
        causes += _strategy_faults(spec["strategy"])
    elif item["kind"] == "StatefulSet":
        causes += _stateful_faults(spec)
    if (policy := at_path(template, "spec", "restartPolicy", default="Always")) != "Always":
        causes.append(not_supported("spec.template.spec.restartPolicy", policy, ["Always"]))
    claimed = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())]
    causes += pod_spec_faults(template.get("spec", {}), "spec.template.spec", claimed)
    if old is not None and item["kind"] == "StatefulSet" and _fixed_part(old) != _fixed_part(item):
        causes.append(forbidden_value("spec", _OF_STATEFUL_SETS))
    elif old is not None and at_path(old, "spec", "selector") != selector:
        causes.append(invalid_value("spec.selector", selector, "field is immutable"))
    return causes


def _number_faults(spec: Object) -> list[Cause]:
    names = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    causes = [invalid_value(f"spec.{name}", spec[name], "must be greater than or equal to 0") for name in names if spec.get(name, 0) < 0]
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        causes.append(invalid_value("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return causes


def _strategy_faults(strategy: Object) -> list[Cause]:
    """Return the faults of a Deployment's strategy."""
    rolling: Any = strategy.get("rollingUpdate")
    field = "spec.strategy.rollingUpdate"
    if strategy["type"] == "Recreate":
        return [forbidden_value(field, "may not be specified when strategy `type` is 'Recreate'")] if rolling is not None else []
    if strategy["type"] != "RollingUpdate":
        return [not_supported("spec.strategy", strategy, ["Recreate", "RollingUpdate"])]
    causes = [fault for name in ("maxUnavailable", "maxSurge") for fault in share_faults(f"{field}.{name}", rolling[name])]
    if causes:
        return causes
    unavailable = rolling["maxUnavailable"]
    if _plain_number(unavailable) == 0 and _plain_number(rolling["maxSurge"]) == 0:
        causes.append(invalid_value(f"{field}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    if isinstance(unavailable, str) and _plain_number(unavailable) > 100:
        causes.append(invalid_value(f"{field}.maxUnavailable", unavailable, "must not be greater than 100%"))
    return causes


def _stateful_faults(spec: Object) -> list[Cause]:
    """Return the faults of the fields that only a StatefulSet has."""
    causes: list[Cause] = []
    if (management := spec["podManagementPolicy"]) not in {"OrderedReady", "Parallel"}:
        causes.append(invalid_value("spec.podManagementPolicy", management, "must be 'OrderedReady' or 'Parallel'"))
    strategy = spec["updateStrategy"]
    if strategy["type"] not in {"RollingUpdate", "OnDelete"}:
        causes.append(invalid_value("spec.updateStrategy", strategy, "must be 'RollingUpdate' or 'OnDelete'"))
    rolling = strategy.get("rollingUpdate") or {}
    if (partition := rolling.get("partition", 0)) < 0:
        field = "spec.updateStrategy.rollingUpdate.partition"
        causes.append(invalid_value(field, partition, "must be greater than or equal to 0"))
    if "maxUnavailable" in rolling:
        why = "processkube updates one pod at a time, as Kubernetes 1.36 does by default; leave the field out"
        causes.append(forbidden_value("spec.updateStrategy.rollingUpdate.maxUnavailable", why))
    return causes


def share_faults(field: str, value: int | str) -> list[Cause]:
    """Return the faults of a value that must be a number or a percentage."""
    if isinstance(value, int):
        return [invalid_value(field, value, "must be greater than or equal to 0")] if value < 0 else []
    if value.endswith("%") and value[:-1].isdigit():
        return []
    return [invalid_value(field, value, "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")]  # fmt: skip  # noqa: E501 - the server's own sentence


def _plain_number(value: int | str) -> int:
    return value if isinstance(value, int) else int(value.rstrip("%"))


def _fixed_part(stateful_set: Object) -> Object:
    """Return the part of a StatefulSet's spec that no update may change."""
    return {name: value for name, value in stateful_set.get("spec", {}).items() if name not in _MUTABLE_OF_STATEFUL_SETS}


def default_job(item: Object) -> None:
    spec = item.setdefault("spec", {})
    if "parallelism" not in spec:
        spec.setdefault("completions", 1)
    defaults = {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    for name, value in defaults.items():
        spec.setdefault(name, value)
    if not spec["manualSelector"]:
        _select_own_pods(item)
    if isinstance(pod_spec := at_path(spec, "template", "spec"), dict):
        default_pod_spec(pod_spec)


def _own_labels(job: Object) -> dict[str, str]:
    """Return the labels that the server adds to the pods of a Job."""
    own = {"controller-uid": job["metadata"]["uid"], "job-name": job["metadata"].get("name", "")}
    return {f"{prefix}{name}": value for prefix in ("", _JOB_LABELS) for name, value in own.items()}


def _select_own_pods(job: Object) -> None:
    """Add the Job's uid and name as labels to its pod template, and select its pods by the uid."""
    spec = job["spec"]
    spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {}).update(_own_labels(job))
    asked = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    asked.setdefault(f"{_JOB_LABELS}controller-uid", job["metadata"]["uid"])


def _job_selector_faults(job: Object) -> list[Cause]:
    """Return the faults of a Job's selector. Unless `manualSelector` is set, it must match the labels that the server
    adds to the Job's pods.
    """
    selector = job["spec"].get("selector")
    if (faults := label_selector_faults(selector, "spec.selector")) or job["spec"].get("manualSelector"):
        return faults
    generated = selector_of_object(selector).matches(_own_labels(job))
    return [] if generated else [invalid_value("spec.selector", selector, "`selector` not auto-generated")]


def job_faults(item: Object, old: Object | None) -> list[Cause]:
    spec = item.get("spec", {})
    pod_spec = at_path(spec, "template", "spec", default={})
    causes = [*_job_selector_faults(item), *pod_spec_faults(pod_spec, "spec.template.spec")]
    if (policy := pod_spec.get("restartPolicy", "Always")) == "Always":
        causes.append(required_value("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    elif policy not in _ENDING_POLICIES:
        causes.append(not_supported("spec.template.spec.restartPolicy", policy, _ENDING_POLICIES))
    if old is not None and at_path(old, "spec", "template") != spec.get("template"):
        causes.append(invalid_value("spec.template", spec.get("template"), "field is immutable"))
    if old is not None and at_path(old, "spec", "selector") != spec.get("selector"):
        causes.append(invalid_value("spec.selector", spec.get("selector"), "field is immutable"))
    names = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    causes += [
        invalid_value(f"spec.{name}", spec[name], "must be greater than or equal to 0") for name in names if (spec.get(name) or 0) < 0
    ]
    why = "processkube's Job controller cannot do it; leave the field out, or use a real cluster"
    plain = (
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("manualSelector", False),
        ("podReplacementPolicy", "TerminatingOrFailed"),
    )
    causes += [forbidden_value(f"spec.{name}", why) for name, value in plain if spec.get(name, value) != value]
    beyond = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "managedBy")
    return causes + [forbidden_value(f"spec.{name}", why) for name in beyond if spec.get(name) is not None]
