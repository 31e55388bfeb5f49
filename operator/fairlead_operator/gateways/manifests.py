"""Builds the objects by which gateways find a pool's instances and their endpoint picker. Pure.

A GAIE InferencePool names its picker as a Service in its own namespace. Each pool has its own Service, `<pool>-picker`,
so that routers recognise the pool by the name that a gateway calls. The Service selects the routers: in the routers'
own namespace by their labels, in other namespaces by EndpointSlices with their addresses.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.gateway_specs import GATEWAY_GROUP, GATEWAY_KIND, GATEWAY_VERSION, GatewaySpec
from fairlead.instance_marks import POOL_LABEL
from fairlead_operator.manifests import child_metadata
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.settings import PickerSettings

SERVICE_LABEL = "kubernetes.io/service-name"
"""Kubernetes' label of an EndpointSlice: its Service."""

MOST_TARGET_PORTS = 8
"""Maximum number of target ports in GAIE's definition; version 1.0 allows only one port. A gateway counts each port of
each pod as an endpoint.
"""

_MANAGER_LABEL = "endpointslice.kubernetes.io/managed-by"
_PORT_NAME, _PROTOCOL = "grpc", "http2"


def own_service(pool: str) -> str:
    """Return the name of a pool's own Service; routers read the pool's name from it."""
    return f"{pool}-picker"


def gateway_pool(identity: PoolIdentity, gateway: GatewaySpec, ports: Iterable[int], picker: PickerSettings) -> dict[str, Any]:
    """Build the GAIE InferencePool: it selects the pool's instances at `ports`, and names the pool's own Service as its
    endpoint picker.

    Every instance has the pool's label: pods that the pool creates, adopted pods, and the leaders of a LeaderWorkerSet.
    """
    return {
        "apiVersion": f"{GATEWAY_GROUP}/{GATEWAY_VERSION}",
        "kind": GATEWAY_KIND,
        "metadata": child_metadata(identity, identity.name),
        "spec": {
            "selector": {"matchLabels": {POOL_LABEL: identity.name}},
            "targetPorts": [{"number": port} for port in ports],
            "endpointPickerRef": {
                "group": "",
                "kind": "Service",
                "name": own_service(identity.name),
                "port": {"number": picker.port},
                "failureMode": gateway.failure_mode.value,
            },
        },
    }


def picker_service(identity: PoolIdentity, picker: PickerSettings, of_routers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Build the pool's own Service. `of_routers` is the routers' Service if that is in the same namespace; otherwise
    `picker_slices` builds the endpoints of the pool's Service.
    """
    target: object = picker.port
    spec: dict[str, Any] = {}
    if of_routers is not None:
        told = of_routers["spec"]
        target = next((one["targetPort"] for one in told["ports"] if one["port"] == picker.port and "targetPort" in one), target)
        spec = {"selector": dict(told.get("selector") or {})}
    port = {"name": _PORT_NAME, "port": picker.port, "targetPort": target, "protocol": "TCP", "appProtocol": _PROTOCOL}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(identity, own_service(identity.name)),
        "spec": {**spec, "ports": [port]},
    }


def picker_slices(identity: PoolIdentity, picker: PickerSettings, of_routers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Build the EndpointSlices of the pool's own Service from the routers' EndpointSlices: one slice for each address
    type. The list is empty without routers, because Kubernetes then reports no ports.
    """
    found: dict[str, tuple[int, dict[str, bool]]] = {}
    for document in sorted(of_routers, key=lambda one: str(one["metadata"]["name"])):
        port = _port_of(document, picker)
        if port is not None:
            number, routers = found.setdefault(document["addressType"], (port, {}))
            if number == port:
                routers.update(_addresses(document))
    service = own_service(identity.name)
    return [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _slice_metadata(identity, f"{service}-{kind.lower()}", service),
            "addressType": kind,
            "endpoints": [{"addresses": [address], "conditions": {"ready": routers[address]}} for address in sorted(routers)],
            "ports": [{"name": _PORT_NAME, "port": number, "protocol": "TCP", "appProtocol": _PROTOCOL}],
        }
        for kind, (number, routers) in sorted(found.items())
    ]


def _port_of(document: Mapping[str, Any], picker: PickerSettings) -> int | None:
    """Return the port, in an EndpointSlice, at which routers listen for proxies. This is the port of the Service in the
    settings, else the port with the usual name, else the first port; None without ports. A Service may have other
    ports, for example for health checks.
    """
    told = [(one.get("name"), int(one["port"])) for one in document.get("ports") or ()]
    preferred = sorted(told, key=lambda one: (one[1] != picker.port, one[0] != _PORT_NAME))
    return preferred[0][1] if preferred else None


def _addresses(document: Mapping[str, Any]) -> dict[str, bool]:
    """Return, for each router address, whether it is ready; a missing value means ready."""
    return {
        address: (one.get("conditions") or {}).get("ready") is not False
        for one in document.get("endpoints") or ()
        for address in one["addresses"]
    }


def _slice_metadata(identity: PoolIdentity, name: str, service: str) -> dict[str, Any]:
    metadata = child_metadata(identity, name)
    return {**metadata, "labels": {**metadata["labels"], SERVICE_LABEL: service, _MANAGER_LABEL: "fairlead.dev"}}
