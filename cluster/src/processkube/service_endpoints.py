"""Finds the pods behind a Service, by the rules of Kubernetes' EndpointSlices and kube-proxy. This module is pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address and a port at which connections to a Service are accepted, and the `targets` to which they are passed
    on.
    """

    address: str
    port: int
    targets: tuple[tuple[str, int], ...]


def backing_pods(service: Document, pods: Iterable[Document]) -> list[Document]:
    """Return the pods to which new connections go: the ready pods that are not being deleted. If there are none, return
    the ready pods that are being deleted.

    If the Service publishes addresses that are not ready, return all its pods.
    """
    selector, namespace = service["spec"].get("selector"), service["metadata"]["namespace"]
    if not selector:
        return []
    chosen = [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == namespace
        and selector.items() <= (pod["metadata"].get("labels") or {}).items()
        and (pod.get("status") or {}).get("podIP")
        and pod["status"].get("phase") not in {"Succeeded", "Failed"}
    ]
    if service["spec"].get("publishNotReadyAddresses"):
        return chosen
    serving = [pod for pod in chosen if _is_ready(pod)]
    return [pod for pod in serving if not pod["metadata"].get("deletionTimestamp")] or serving


def listeners(service: Document, pods: Iterable[Document], address: str, *, machine: str) -> list[Listener]:
    """Return the listeners of a Service: at its own `address` and, for the types LoadBalancer and NodePort, also at the
    address `machine`.
    """
    behind, spec, found = backing_pods(service, pods), service["spec"], []
    for port in spec.get("ports") or ():
        if port.get("protocol", "TCP") != "TCP":
            continue
        targets = targets_of(port, behind)
        found.append(Listener(address=address, port=port["port"], targets=targets))
        if spec.get("type") == "LoadBalancer":
            found.append(Listener(address=machine, port=port["port"], targets=targets))
        if spec.get("type") in {"LoadBalancer", "NodePort"} and port.get("nodePort"):
            found.append(Listener(address=machine, port=port["nodePort"], targets=targets))
    return found


def targets_of(port: Document, pods: Iterable[Document]) -> tuple[tuple[str, int], ...]:
    """Return the pods' addresses and ports to which a Service's port leads."""
    return tuple((pod["status"]["podIP"], number) for pod in pods if (number := _target_port(port, pod)) is not None)


def own_address(service: Document, network: str) -> str | None:
    """Return the Service's loopback address: `network`, such as 127.100, followed by the last two numbers of its
    clusterIP. Return None if it has no clusterIP.
    """
    cluster_ip = str(service["spec"].get("clusterIP") or "None")
    if cluster_ip == "None" or ":" in cluster_ip:
        return None
    return f"{network}.{'.'.join(cluster_ip.split('.')[2:])}"


def _is_ready(pod: Document) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


def _target_port(port: Document, pod: Document) -> int | None:
    target = port.get("targetPort", port["port"])
    if isinstance(target, int) or str(target).isdigit():
        return int(target)
    for container in pod["spec"]["containers"]:
        for declared in container.get("ports") or ():
            if declared.get("name") == target:
                return int(declared["containerPort"])
    return None
