"""Services: their defaults. A Service keeps its addresses as long as it exists. This server does not forward
traffic.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from processkube.kubernetes_api.objects.errors import Cause, duplicate_value, invalid_value, not_supported, required_value
from processkube.kubernetes_api.objects.objects import Object, at_path

CLUSTER_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
_NODE_PORTS = range(30000, 32768)
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def default_service(service: Object, others: Collection[Object]) -> None:
    """Fill in a Service's defaults in place. It gets an address and node ports that none of the Services `others`
    has.
    """
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {}).setdefault("timeoutSeconds", 10800)
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if spec["type"] == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address({at_path(other, "spec", "clusterIP") for other in others})
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")
        taken = {port.get("nodePort") for other in others for port in at_path(other, "spec", "ports", default=[])}
        for port in spec.get("ports", ()):
            if not port.get("nodePort"):
                port["nodePort"] = next(number for number in _NODE_PORTS if number not in taken)
            taken.add(port["nodePort"])


def _free_address(taken: Collection[str | None]) -> str:
    return next(str(address) for address in CLUSTER_NETWORK.hosts() if str(address) not in taken)


def service_faults(service: Object, old: Object | None) -> list[Cause]:
    spec = service.get("spec", {})
    causes: list[Cause] = []
    if spec.get("type") not in _TYPES:
        causes.append(not_supported("spec.type", spec.get("type"), _TYPES))
    headless = spec.get("clusterIP") == "None"
    if not spec.get("ports") and not headless and spec.get("type") != "ExternalName":
        causes.append(required_value("spec.ports"))
    names: set[str] = set()
    for index, port in enumerate(spec.get("ports", ())):
        at = f"spec.ports[{index}]"
        if not 0 < port.get("port", 0) < 65536:
            causes.append(invalid_value(f"{at}.port", port.get("port", 0), "must be between 1 and 65535, inclusive"))
        if len(spec["ports"]) > 1 and not port.get("name"):
            causes.append(required_value(f"{at}.name"))
        if port.get("name") and port["name"] in names:
            causes.append(duplicate_value(f"{at}.name", port["name"]))
        names.add(port.get("name", ""))
    if old is not None and at_path(old, "spec", "clusterIP") not in (None, spec.get("clusterIP")):
        causes.append(invalid_value("spec.clusterIPs[0]", spec.get("clusterIP"), "may not change once set"))
    return causes
