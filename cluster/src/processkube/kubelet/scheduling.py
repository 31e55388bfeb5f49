"""Decides whether a node accepts a new pod. The checks have the same order and the same messages as in Kubernetes'
scheduler.

This module is pure. It considers cordons, taints, `nodeSelector`, host ports, devices (`nvidia.com/gpu: 1`) and
ResourceClaims. There is no driver for ResourceClaims, so somebody else must have allocated their devices. It ignores
CPU and memory, affinities, and other nodes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from processkube.tolerations import tolerates

_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint of a cordoned node, which a pod must tolerate to be placed there."""
_NEVER = "Preemption is not helpful for scheduling."
_NOT_NOW = "No preemption victims found for incoming pod."
"""Part of the message for a pod that could fit after other pods have ended. This scheduler never preempts a pod."""


def refusal(
    node: Mapping[str, Any],
    pod: Mapping[str, Any],
    others: Iterable[Mapping[str, Any]] = (),
    allocated: Collection[str] = (),
) -> str | None:
    """Return the reason why the cluster's only node cannot accept the pod, as the message of the condition
    PodScheduled; None if the node accepts it. `others` are the pods on the node; `allocated` has the names of the pod's
    ResourceClaims that have a device.
    """
    spec, present = pod["spec"], [other["spec"] for other in others]
    reason, preemption = _of_the_node(node, spec), _NEVER
    if reason is None and _host_ports(spec) & set().union(*(_host_ports(other) for other in present)):
        reason, preemption = "node(s) didn't have free ports for the requested pod ports", _NOT_NOW
    if reason is None:
        reason, preemption = _missing_device(node, spec, present)
    if reason is None and any(one.get("resourceClaimName") not in allocated for one in spec.get("resourceClaims") or ()):
        reason, preemption = "cannot allocate all claims", _NEVER
    if reason is None:
        return None
    none_is_available = "0/1 nodes are available: 1"
    return f"{none_is_available} {reason}. preemption: {none_is_available} {preemption}"


def _of_the_node(node: Mapping[str, Any], spec: Mapping[str, Any]) -> str | None:
    """Return the reason why the node refuses this pod because of the node's cordon, taints or labels; None if it does
    not. Other pods and devices are not considered.
    """
    tolerations = spec.get("tolerations") or ()

    def repels(taint: Mapping[str, Any]) -> bool:
        return taint.get("effect") in _REPELLING and not any(tolerates(one, taint) for one in tolerations)

    if node["spec"].get("unschedulable") and repels(_CORDON):
        return "node(s) were unschedulable"
    if taint := next((one for one in node["spec"].get("taints") or () if repels(one)), None):
        return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    labels = (node.get("metadata") or {}).get("labels") or {}
    if any(labels.get(name) != value for name, value in (spec.get("nodeSelector") or {}).items()):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def _missing_device(node: Mapping[str, Any], spec: Mapping[str, Any], present: Iterable[Mapping[str, Any]]) -> tuple[str | None, str]:
    """Return two texts. The first is the reason that names a device of which too few are free, or None if enough are
    free. The second is the part of the message that says whether preemption of other pods would help.
    """
    total = {name: int(amount) for name, amount in ((node.get("status") or {}).get("allocatable") or {}).items() if _is_device(name)}
    used: Counter[str] = sum((_devices(other) for other in present), Counter())
    for name, wanted in sorted(_devices(spec).items()):
        if wanted > total.get(name, 0) - used[name]:
            return f"Insufficient {name}", _NOT_NOW if wanted <= total.get(name, 0) else _NEVER
    return None, _NEVER


def _devices(spec: Mapping[str, Any]) -> Counter[str]:
    """Return the number of devices of each kind that a pod requests: the sum over its containers or, if larger, the
    maximum over its init containers, which run one after the other.
    """
    wanted = _sum_of(spec.get("containers") or ())
    for container in spec.get("initContainers") or ():
        wanted |= _sum_of((container,))
    return wanted


def _sum_of(containers: Iterable[Mapping[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for container in containers:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        found.update({name: int(amount) for name, amount in asked.items() if _is_device(name)})
    return found


def _is_device(name: str) -> bool:
    """Return whether a resource is a device. The names of devices have a domain, such as `nvidia.com`, that is not
    Kubernetes' own. Devices are counted in whole numbers.
    """
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _host_ports(spec: Mapping[str, Any]) -> set[tuple[str, int]]:
    ports = (port for container in spec.get("containers") or () for port in container.get("ports") or ())
    return {(port.get("protocol", "TCP"), int(port["hostPort"])) for port in ports if port.get("hostPort")}
