"""The parts of a Pod's manifest that the kubelet needs, typed.

A part that it cannot honour is refused with a reason, never ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


class PodRefused(Exception):
    """The pod asks for something that this kubelet cannot do.

    `reason` becomes the container's waiting reason, and the error's text becomes its message.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpec:
    """One probe; times in seconds.

    If `path` is None, a TCP connection is enough. If `host` is None, the probe goes to the pod's address.
    """

    port: int
    path: str | None = None
    host: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container; `command` replaces the image's entry point, `env` is as written in the manifest."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()
    readiness: ProbeSpec | None = None
    liveness: ProbeSpec | None = None
    startup: ProbeSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """One pod.

    `deletion_at` is the deadline (POSIX seconds) of a pod that is being deleted, None otherwise; `grace_seconds` is the
    time granted for the deletion.
    """

    uid: str
    namespace: str
    name: str
    node: str | None
    containers: tuple[ContainerSpec, ...]
    restart_policy: str = "Always"
    grace_seconds: float = 30.0
    deletion_at: float | None = None
    readiness_gates: tuple[str, ...] = ()

    @property
    def deleted(self) -> bool:
        """Whether the pod's deletion has been requested."""
        return self.deletion_at is not None


def read_pod(manifest: Mapping[str, Any]) -> PodSpec:
    """Read a Pod. Raises PodRefused when its spec asks for something that this kubelet cannot do."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    if spec.get("initContainers"):
        raise PodRefused("CreateContainerConfigError", "spec.initContainers: the sandbox's kubelet runs no init containers; remove them")
    deletion = metadata.get("deletionTimestamp")
    grace = metadata.get("deletionGracePeriodSeconds") if deletion else spec.get("terminationGracePeriodSeconds")
    return PodSpec(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        node=spec.get("nodeName"),
        containers=tuple(_read_container(container) for container in spec["containers"]),
        restart_policy=spec.get("restartPolicy", "Always"),
        grace_seconds=30.0 if grace is None else float(grace),
        deletion_at=datetime.fromisoformat(deletion).timestamp() if deletion else None,
        readiness_gates=tuple(gate["conditionType"] for gate in spec.get("readinessGates") or ()),
    )


def _read_container(container: Mapping[str, Any]) -> ContainerSpec:
    name = container["name"]
    if container.get("envFrom"):
        raise PodRefused("CreateContainerConfigError", f"container {name}: envFrom is not supported by the sandbox's kubelet; use env")
    if (container.get("lifecycle") or {}).keys():
        raise PodRefused("CreateContainerConfigError", f"container {name}: lifecycle hooks are not supported by the sandbox's kubelet")
    return ContainerSpec(
        name=name,
        image=container.get("image", ""),
        command=tuple(container.get("command") or ()),
        args=tuple(container.get("args") or ()),
        env=tuple(container.get("env") or ()),
        readiness=_read_probe(container, "readinessProbe"),
        liveness=_read_probe(container, "livenessProbe"),
        startup=_read_probe(container, "startupProbe"),
    )


def _read_probe(container: Mapping[str, Any], key: str) -> ProbeSpec | None:
    probe = container.get(key)
    if not probe:
        return None
    where = f"container {container['name']}: {key}"
    http, tcp = probe.get("httpGet"), probe.get("tcpSocket")
    action = http or tcp
    if action is None:
        raise PodRefused("CreateContainerConfigError", f"{where}: the sandbox's kubelet knows httpGet and tcpSocket only")
    if http and str(http.get("scheme", "HTTP")).upper() != "HTTP":
        raise PodRefused("CreateContainerConfigError", f"{where}.httpGet.scheme: the sandbox's kubelet asks over plain HTTP only")
    return ProbeSpec(
        port=_port_number(container, action["port"], where),
        path=(http.get("path") or "/") if http else None,
        host=action.get("host") or None,
        headers=tuple((header["name"], header["value"]) for header in (http or {}).get("httpHeaders") or ()),
        initial_delay=float(probe.get("initialDelaySeconds") or 0),
        period=float(probe.get("periodSeconds") or 10),
        timeout=float(probe.get("timeoutSeconds") or 1),
        success_threshold=int(probe.get("successThreshold") or 1),
        failure_threshold=int(probe.get("failureThreshold") or 3),
    )


def _port_number(container: Mapping[str, Any], port: int | str, where: str) -> int:
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for declared in container.get("ports") or ():
        if declared.get("name") == port:
            return int(declared["containerPort"])
    raise PodRefused("CreateContainerConfigError", f"{where}: port {port!r} is not the name of one of the container's ports")
