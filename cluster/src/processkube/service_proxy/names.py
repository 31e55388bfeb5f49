"""The content of /etc/hosts for the pods of a namespace, with the names that a cluster's DNS gives Services and pods.
This module is pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from processkube.kubelet.hosts_files import BEGINNING
from processkube.service_endpoints import backing_pods, own_address

Document = Mapping[str, Any]


def hosts_text(namespace: str, services: Iterable[Document], pods: Iterable[Document], network: str) -> str:
    """Return the text of /etc/hosts for the pods of a namespace. A Service of the same namespace can also be reached
    under its name alone.
    """
    lines, pods = [BEGINNING], list(pods)
    for service in sorted(services, key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"])):
        name, home = service["metadata"]["name"], service["metadata"]["namespace"]
        address = own_address(service, network)
        if address is not None:
            lines.append(_line(address, name, home, namespace))
            continue
        if service["spec"].get("type") == "ExternalName":
            continue
        for pod in sorted(backing_pods(service, pods), key=lambda one: str(one["metadata"]["name"])):
            ip, spec = pod["status"]["podIP"], pod["spec"]
            lines.append(_line(ip, name, home, namespace))
            if spec.get("hostname") and spec.get("subdomain") == name:
                lines.append(_line(ip, f"{spec['hostname']}.{name}", home, namespace))
    return "".join(lines)


def _line(address: str, name: str, home: str, namespace: str) -> str:
    names = [f"{name}.{home}.svc.cluster.local", f"{name}.{home}.svc", f"{name}.{home}"]
    return f"{address} {' '.join([*names, name] if home == namespace else names)}\n"
