"""Pods: the fields that the server fills in, the faults for which it refuses a pod, and the state of a pod."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from processkube.kubernetes_api.objects.errors import (
    Cause,
    duplicate_value,
    forbidden_value,
    invalid_value,
    not_supported,
    required_value,
)
from processkube.kubernetes_api.objects.objects import Object, at_path, copy_of

DEFAULT_GRACE_SECONDS = 30
DEFAULT_ACCOUNT = "default"
"""The name of the service account that every namespace has. A pod that names no account gets this account."""
FINISHED = frozenset({"Succeeded", "Failed"})
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
DEFAULT_TOLERATION_SECONDS = 300
"""Seconds for which a pod stays bound to a node that is not ready or is unreachable, unless the pod's spec says
otherwise.
"""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""The annotation with a pod's deletion cost. A ReplicaSet deletes pods with a low cost first."""
_WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]*|-[0-9]+")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_MUTABLE_SPEC = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`"


def default_pod_spec(spec: Object) -> None:
    """Fill in the defaults of a pod's spec, or of the spec in a pod template, in place."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account  # the older name of the field stays beside the newer
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _default_container(container)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)


def _default_volume(volume: Object) -> None:
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if source in volume:
            volume[source].setdefault("defaultMode", 420)
    sources = [volume, *at_path(volume, "projected", "sources", default=[])]
    for source in sources:
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in at_path(source, "downwardAPI", "items", default=[]):
            _default_field(item)


def _default_field(source: Object) -> None:
    """Fill in the API version with which a reference names a field of the pod."""
    if "fieldRef" in source:
        source["fieldRef"].setdefault("apiVersion", "v1")


def _default_container(container: Object) -> None:
    image = container.get("image", "")
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    container.setdefault("imagePullPolicy", "IfNotPresent" if tag and tag != "latest" else "Always")
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        _default_field(variable.get("valueFrom") or {})
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _default_probe(container[name])


def _default_requests(resources: Object) -> None:
    """Set the missing resource requests of a pod's container to its limits. This is not done in a pod template, but in
    each pod made from the template.
    """
    for name, limit in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, limit)


def _default_probe(probe: Object) -> None:
    for name, number in {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}.items():
        probe.setdefault(name, number)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def default_pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    if not spec.get("serviceAccountName") and not spec.get("serviceAccount"):
        spec["serviceAccountName"] = DEFAULT_ACCOUNT
    default_pod_spec(spec)
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _default_requests(container["resources"])
        if spec.get("hostNetwork"):
            _default_host_ports(container)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    _default_tolerations(spec)


def _default_host_ports(container: Object) -> None:
    """Set the host ports of a pod on the host's network, where each container port is also a port of the node."""
    for port in container.get("ports", ()):
        port.setdefault("hostPort", port.get("containerPort"))


def _default_tolerations(spec: Object) -> None:
    """Add the tolerations that the admission plugin DefaultTolerationSeconds adds."""
    given = spec.get("tolerations", [])
    covered = {one.get("key", "") for one in given if one.get("effect", "") in {"", "NoExecute"}}
    for taint in (NOT_READY, UNREACHABLE):
        if not covered & {"", taint}:
            toleration = {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT_TOLERATION_SECONDS}
            given = [*given, toleration]
    spec["tolerations"] = given


def initial_status(pod: Object) -> Object:
    status = {"phase": "Pending", "qosClass": qos_class(pod)}
    if not at_path(pod, "spec", "schedulingGates"):
        return status
    message = "Scheduling is blocked due to non-empty scheduling gates"
    return {**status, "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}]}


def qos_class(pod: Object) -> str:
    resources = [container.get("resources", {}) for container in at_path(pod, "spec", "containers", default=[])]
    if not any(one.get("requests") or one.get("limits") for one in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= one.get("limits", {}).keys() and one.get("requests", one["limits"]) == one["limits"] for one in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def pod_spec_faults(spec: Object, path: str, further_volumes: Collection[str] = ()) -> list[Cause]:
    """Return the faults of a pod's spec at `path`. `further_volumes` are names of volumes that the spec does not
    declare, such as the volumes for a StatefulSet's claims.
    """
    causes: list[Cause] = []
    if not spec.get("containers"):
        causes.append(required_value(f"{path}.containers"))
    if spec.get("restartPolicy", "Always") not in _RESTART_POLICIES:
        causes.append(not_supported(f"{path}.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES))
    names: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group, ())):
            at = f"{path}.{group}[{index}]"
            if container.get("name") in names:
                causes.append(duplicate_value(f"{at}.name", container["name"]))
            names.add(container.get("name", ""))
            if not container.get("image"):
                causes.append(required_value(f"{at}.image"))
            if container.get("imagePullPolicy", "Always") not in _PULL_POLICIES:
                causes.append(not_supported(f"{at}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES))
    causes += _port_faults(spec, path)
    volumes = {volume.get("name") for volume in spec.get("volumes", ())} | set(further_volumes)
    for index, container in enumerate(spec.get("containers", ())):
        for position, mount in enumerate(container.get("volumeMounts", ())):
            if mount.get("name") not in volumes:
                field = f"{path}.containers[{index}].volumeMounts[{position}].name"
                causes.append(Cause(reason="FieldValueNotFound", field=field, message=f'Not found: "{mount.get("name")}"'))
    return causes


def _port_faults(spec: Object, path: str) -> Iterator[Cause]:
    """Yield a fault for each port of the node that two containers use. Init containers may use the same port, because
    they run one after the other.
    """
    together: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group, ())):
            taken = together if group == "containers" else set()
            yield from _second_uses(container.get("ports", ()), f"{path}.{group}[{index}].ports", taken)


def _second_uses(ports: Iterable[Object], path: str, taken: set[str]) -> Iterator[Cause]:
    """Yield a fault for each port name that a container uses twice, and for each port of the node that is in `taken`.
    The container's other ports of the node are added to `taken`.
    """
    names: set[str] = set()
    for place, port in enumerate(ports):
        name, use = str(port.get("name", "")), f"{port.get('protocol', 'TCP')}/{port.get('hostIP', '')}/{port.get('hostPort')}"
        if name and name in names:
            yield duplicate_value(f"{path}[{place}].name", name)
        if port.get("hostPort") and use in taken:
            yield duplicate_value(f"{path}[{place}].hostPort", use)
        names.add(name)
        taken.add(use)


def pod_faults(pod: Object, old: Object | None) -> list[Cause]:
    causes = [*pod_spec_faults(pod.get("spec", {}), "spec"), *_host_port_faults(pod.get("spec", {})), *_deletion_cost_faults(pod)]
    if old is not None and _frozen_part(pod) != _frozen_part(old):
        causes.append(forbidden_value("spec", f"pod updates may not change fields other than {_MUTABLE_SPEC}"))
    return causes


def _host_port_faults(spec: Object) -> list[Cause]:
    if not spec.get("hostNetwork"):
        return []
    return [
        invalid_value(
            f"spec.{group}[{index}].ports[{place}].hostPort", port["hostPort"], "must match `containerPort` when `hostNetwork` is true"
        )
        for group in ("containers", "initContainers")
        for index, container in enumerate(spec.get(group, ()))
        for place, port in enumerate(container.get("ports", ()))
        if port.get("hostPort") != port.get("containerPort")
    ]


def _deletion_cost_faults(pod: Object) -> list[Cause]:
    cost = at_path(pod, "metadata", "annotations", default={}).get(DELETION_COST)
    if cost is None or (_WHOLE_NUMBER.fullmatch(cost) and -(2**31) <= int(cost) < 2**31):
        return []
    return [invalid_value(f"metadata.annotations[{DELETION_COST}]", cost, "must be a 32bit integer")]


def _frozen_part(pod: Object) -> Object:
    """Return the part of a pod's spec that no update may change."""
    spec: Object = copy_of(pod.get("spec", {}))
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"):
        spec.pop(name, None)
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        container.pop("image", None)
        container.pop("imagePullPolicy", None)
    return spec


def is_ready(pod: Object) -> bool:
    conditions = at_path(pod, "status", "conditions", default=[])
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def grace_seconds(pod: Object, requested: int | None) -> int:
    """Return the grace period of a pod's deletion in seconds: the time that the kubelet has to end the pod. It is 0 for
    a pod that is on no node or has finished.
    """
    if not at_path(pod, "spec", "nodeName") or at_path(pod, "status", "phase") in FINISHED:
        return 0
    if requested is not None:
        return requested if requested >= 0 else 1
    return int(at_path(pod, "spec", "terminationGracePeriodSeconds", default=DEFAULT_GRACE_SECONDS))
