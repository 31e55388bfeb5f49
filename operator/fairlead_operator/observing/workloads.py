"""The workloads that a pool scales: their scale, their pods, and the reasons why they must not be scaled. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.adoption_specs import ScaleTargetSpec, WorkloadKind
from fairlead.conditions.facts import ScaleProblem, ScaleProblemReason
from fairlead.instances import Role
from fairlead.reconciling.observed import Workload

GROUP_NAME = "leaderworkerset.sigs.k8s.io/name"
_ORDINALS = ("leaderworkerset.sigs.k8s.io/group-index", "apps.kubernetes.io/pod-index")
_TEMPLATES = ("leaderworkerset.sigs.k8s.io/template-revision-hash", "controller-revision-hash", "pod-template-hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadReading:
    """The workload of a role. If the workload is not scaled, `workload` is None and `problem` gives the reason."""

    role: Role
    workload: Workload | None
    problem: ScaleProblem | None


def refused_workload(role: Role, target: ScaleTargetSpec, words: str) -> WorkloadReading:
    """Return the result for a workload that could not be read from the Kubernetes API. `words` give the reason."""
    message = f"{target.kind} {target.name} is not scaled, because the Kubernetes API refuses to show it: {words}"
    return WorkloadReading(role=role, workload=None, problem=ScaleProblem(reason=ScaleProblemReason.REFUSED, message=message))


def read_workload(
    role: Role,
    target: ScaleTargetSpec,
    scale: Mapping[str, Any] | None,
    pods: Iterable[Mapping[str, Any]],
    others: Iterable[Mapping[str, Any]],
    autoscalers: Iterable[Mapping[str, Any]],
) -> WorkloadReading:
    """Return the workload, from its scale (None = the workload does not exist), its role's adopted pods, the selected
    pods that belong to other pools, and the namespace's HorizontalPodAutoscalers.
    """

    def refused(reason: ScaleProblemReason, message: str) -> WorkloadReading:
        return WorkloadReading(role=role, workload=None, problem=ScaleProblem(reason=reason, message=message))

    what = f"{target.kind} {target.name}"
    if scale is None:
        return refused(ScaleProblemReason.MISSING, f"{what} does not exist; correct roles[].scaleTargetRef")
    strange = sorted(pod["metadata"]["name"] for pod in pods if not _is_of(pod["metadata"], target))
    if strange:
        message = (
            f"{strange[0]} is selected but is not a pod of {what}, so the workload is not scaled; let roles[].selector select only its pods"
        )
        return refused(ScaleProblemReason.OTHER_PODS, message)
    elsewhere = sorted(pod["metadata"]["name"] for pod in others if _is_of(pod["metadata"], target))
    if elsewhere:
        message = (
            f"{elsewhere[0]} of {what} is an instance of another pool, so this pool does not scale it; let only one pool select its pods"
        )
        return refused(ScaleProblemReason.OTHER_POOL, message)
    for autoscaler in autoscalers:
        of = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
        if (of.get("kind"), of.get("name")) == (target.kind, target.name):
            name = autoscaler["metadata"]["name"]
            message = f"HorizontalPodAutoscaler {name} scales {what}, so Fairlead does not; remove the autoscaler or roles[].scaleTargetRef"
            return refused(ScaleProblemReason.AUTOSCALER, message)
    replicas, there = (int((scale.get(part) or {}).get("replicas") or 0) for part in ("spec", "status"))
    workload = Workload(replicas=replicas, pods=there, ordered=target.kind is not WorkloadKind.DEPLOYMENT)
    return WorkloadReading(role=role, workload=workload, problem=None)


def place_of(metadata: Mapping[str, Any]) -> int:
    """Return the ordinal of a pod of a workload that numbers its pods, such as a StatefulSet; 0 for other pods."""
    labels = metadata.get("labels") or {}
    told = next((labels[name] for name in _ORDINALS if name in labels), None) or str(metadata["name"]).rpartition("-")[2]
    return int(told) if told.isdecimal() else 0


def template_of(metadata: Mapping[str, Any]) -> str:
    """Return the identifier of the template of a workload's pod."""
    labels = metadata.get("labels") or {}
    return next((str(labels[name]) for name in _TEMPLATES if name in labels), "")


def _is_of(metadata: Mapping[str, Any], target: ScaleTargetSpec) -> bool:
    labels = metadata.get("labels") or {}
    owner: Mapping[str, Any] = next((one for one in metadata.get("ownerReferences") or [] if one.get("controller")), {})
    match target.kind:
        case WorkloadKind.DEPLOYMENT:
            return (owner.get("kind"), owner.get("name")) == ("ReplicaSet", f"{target.name}-{labels.get('pod-template-hash')}")
        case WorkloadKind.STATEFUL_SET:
            return (owner.get("kind"), owner.get("name")) == ("StatefulSet", target.name)
        case WorkloadKind.LEADER_WORKER_SET:
            return bool(labels.get(GROUP_NAME) == target.name)
