"""The special rules of built-in kinds, as tables from kind to function: defaults, checks, and the status of a new
object.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping

from processkube.kubernetes_api.objects.errors import Cause, forbidden_value, invalid_value, not_supported, required_value
from processkube.kubernetes_api.objects.naming import label_selector_faults
from processkube.kubernetes_api.objects.objects import Object, at_path
from processkube.kubernetes_api.writing.events import event_faults
from processkube.kubernetes_api.writing.pods import default_pod, initial_status, pod_faults
from processkube.kubernetes_api.writing.services import default_service, service_faults
from processkube.kubernetes_api.writing.workloads import default_job, default_workload, job_faults, share_faults, workload_faults

Siblings = Callable[[], Collection[Object]]
"""A function that returns the other objects of the same kind. Only the kinds that need these objects call it."""


def default_builtin(item: Object, old: Object | None, siblings: Siblings) -> None:
    """Fill in an object's defaults in place. `old` is the object before the write; None if the object is new."""
    kind = item["kind"]
    if kind == "Service":
        previous = at_path(old, "spec", "clusterIP")
        if previous and at_path(item, "spec", "type") != "ExternalName":
            item.setdefault("spec", {}).setdefault("clusterIP", previous)
        default_service(item, siblings())
    elif defaulting := _DEFAULTS.get(kind):
        defaulting(item)


def first_status(item: Object) -> Object | None:
    """Return the status of a new object; None if objects of its kind begin without a status."""
    match item["kind"]:
        case "Pod":
            return initial_status(item)
        case "Namespace":
            return {"phase": "Active"}
        case "PersistentVolumeClaim":
            return {"phase": "Pending"}
        case "Service":
            return {"loadBalancer": {}}
        case "Deployment" | "DaemonSet" | "Job":
            return {}
        case "ReplicaSet" | "StatefulSet":
            return {"replicas": 0}
        case "PodDisruptionBudget":
            return {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}
    return None


def builtin_faults(item: Object, old: Object | None) -> list[Cause]:
    """Return the faults of an object of a built-in kind that its schema does not find."""
    check = _CHECKS.get(item["kind"])
    return check(item, old) if check else []


def _default_namespace(item: Object) -> None:
    item.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    item["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = item["metadata"].get("name", "")


def _default_secret(item: Object) -> None:
    item.setdefault("type", "Opaque")
    if plain := item.pop("stringData", None):
        encoded = {name: base64.b64encode(value.encode()).decode() for name, value in plain.items()}
        item["data"] = {**item.get("data", {}), **encoded}


def _default_claim(item: Object) -> None:
    item.get("spec", {}).setdefault("volumeMode", "Filesystem")


def _default_priority_class(item: Object) -> None:
    item.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _default_binding(item: Object) -> None:
    group = "rbac.authorization.k8s.io"
    item.get("roleRef", {}).setdefault("apiGroup", group)
    for subject in item.get("subjects", ()):
        if subject.get("kind") in {"User", "Group"}:
            subject.setdefault("apiGroup", group)


def _default_endpoint_slice(item: Object) -> None:
    for port in item.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("name", "")


def _default_endpoints(item: Object) -> None:
    for subset in item.get("subsets", ()):
        for port in subset.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _data_faults(item: Object, old: Object | None) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    causes = [] if item.get("immutable") else [forbidden_value("immutable", "field is immutable when `immutable` is set")]
    changed = [name for name in ("data", "binaryData") if item.get(name) != old.get(name)]
    return causes + [forbidden_value(name, "field is immutable when `immutable` is set") for name in changed]


def _secret_faults(item: Object, old: Object | None) -> list[Cause]:
    causes = _data_faults(item, old)
    if old is not None and item.get("type") != old.get("type"):
        causes.append(invalid_value("type", item.get("type"), "field is immutable"))
    return causes


def _budget_faults(item: Object, old: Object | None) -> list[Cause]:
    spec = item.get("spec", {})
    if "minAvailable" in spec and "maxUnavailable" in spec:
        return [invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
    names = ("minAvailable", "maxUnavailable")
    causes = [fault for name in names if name in spec for fault in share_faults(f"spec.{name}", spec[name])]
    policies = ("AlwaysAllow", "IfHealthyBudget")
    causes += label_selector_faults(spec.get("selector"), "spec.selector")
    if (policy := spec.get("unhealthyPodEvictionPolicy")) and policy not in policies:
        causes.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, policies))
    return causes


def _network_policy_faults(item: Object, old: Object | None) -> list[Cause]:
    spec = item.get("spec", {})
    causes = label_selector_faults(spec.get("podSelector"), "spec.podSelector")
    for rules, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(rules, ())):
            for position, peer in enumerate(rule.get(peers, ())):
                for name in ("podSelector", "namespaceSelector"):
                    causes += label_selector_faults(peer.get(name), f"spec.{rules}[{index}].{peers}[{position}].{name}")
    return causes


def _claim_faults(item: Object, old: Object | None) -> list[Cause]:
    spec = item.get("spec", {})
    causes = [] if spec.get("accessModes") else [required_value("spec.accessModes", "at least 1 access mode is required")]
    if not at_path(spec, "resources", "requests", "storage"):
        causes.append(required_value("spec.resources[storage]"))
    if old is not None and _fixed_claim(item) != _fixed_claim(old):
        causes.append(forbidden_value("spec", "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))  # fmt: skip  # noqa: E501 - the server's own sentence
    return causes


def _fixed_claim(claim: Object) -> Object:
    """Return the part of a PersistentVolumeClaim's spec that no update may change. The field `volumeName` is not in it,
    because this server never sets it.
    """
    return {name: value for name, value in claim.get("spec", {}).items() if name not in {"resources", "volumeAttributesClassName"}}


def _lease_faults(item: Object, old: Object | None) -> list[Cause]:
    spec = item.get("spec", {})
    causes = []
    if (duration := spec.get("leaseDurationSeconds")) is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if (transitions := spec.get("leaseTransitions")) is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def _binding_faults(item: Object, old: Object | None) -> list[Cause]:
    if old is not None and item.get("roleRef") != old.get("roleRef"):
        return [invalid_value("roleRef", item.get("roleRef"), "cannot change roleRef")]
    return []


def _priority_faults(item: Object, old: Object | None) -> list[Cause]:
    if old is not None and item.get("value") != old.get("value"):
        return [forbidden_value("value", "may not be changed in an update.")]
    return []


def _revision_faults(item: Object, old: Object | None) -> list[Cause]:
    """Return the faults of a changed ControllerRevision, whose data must never change. The real server compares the
    data as text, so the order of keys matters, too.
    """
    if old is not None and json.dumps(item.get("data")) != json.dumps(old.get("data")):
        return [invalid_value("data", item.get("data"), "field is immutable")]
    return []


_DEFAULTS: Mapping[str, Callable[[Object], None]] = {
    "Pod": default_pod,
    "Deployment": default_workload,
    "ReplicaSet": default_workload,
    "StatefulSet": default_workload,
    "DaemonSet": default_workload,
    "Job": default_job,
    "Namespace": _default_namespace,
    "Secret": _default_secret,
    "PersistentVolumeClaim": _default_claim,
    "PriorityClass": _default_priority_class,
    "RoleBinding": _default_binding,
    "ClusterRoleBinding": _default_binding,
    "EndpointSlice": _default_endpoint_slice,
    "Endpoints": _default_endpoints,
}
_CHECKS: Mapping[str, Callable[[Object, Object | None], list[Cause]]] = {
    "Pod": pod_faults,
    "Deployment": workload_faults,
    "ReplicaSet": workload_faults,
    "StatefulSet": workload_faults,
    "DaemonSet": workload_faults,
    "Job": job_faults,
    "ControllerRevision": _revision_faults,
    "Service": service_faults,
    "ConfigMap": _data_faults,
    "Secret": _secret_faults,
    "PersistentVolumeClaim": _claim_faults,
    "PodDisruptionBudget": _budget_faults,
    "NetworkPolicy": _network_policy_faults,
    "Lease": _lease_faults,
    "Event": event_faults,
    "RoleBinding": _binding_faults,
    "ClusterRoleBinding": _binding_faults,
    "PriorityClass": _priority_faults,
}
