"""The probes in a container's manifest, as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from processkube.kubelet.refusals import bad_configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpec:
    """One probe. Times are in seconds.

    If the probe has a `command`, this command runs in the container. Otherwise the probe connects to `port`. With a
    `path` it sends an HTTP request, over TLS if `tls`; without a path, an accepted TCP connection is enough. If `host`
    is None, it connects to the pod's address.
    """

    port: int = 0
    path: str | None = None
    host: str | None = None
    tls: bool = False
    command: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3


def read_probe(container: Mapping[str, Any], key: str) -> ProbeSpec | None:
    """Return the container's probe `key`, such as `readinessProbe`; None if the container has no such probe. Raises
    PodRefused for a kind of probe that this kubelet does not support.
    """
    probe = container.get(key)
    if not probe:
        return None
    where = f"container {container['name']}: {key}"
    http, tcp, command = probe.get("httpGet"), probe.get("tcpSocket"), (probe.get("exec") or {}).get("command") or ()
    action = http or tcp
    if action is None and not command:
        raise bad_configuration(f"{where}: processkube's kubelet knows httpGet, tcpSocket and exec only")
    return ProbeSpec(
        port=_port_number(container, action["port"], where) if action else 0,
        path=(http.get("path") or "/") if http else None,
        host=(action or {}).get("host") or None,
        tls=str((http or {}).get("scheme") or "HTTP").upper() == "HTTPS",
        command=tuple(command),
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
    raise bad_configuration(f"{where}: port {port!r} is not the name of one of the container's ports")
