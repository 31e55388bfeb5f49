"""The columns of built-in kinds in `kubectl get`, computed as the real server's printers compute them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from processkube.kubernetes_api.objects.objects import Object, at_path, parse_timestamp
from processkube.kubernetes_api.serving.ages import age_since
from processkube.kubernetes_api.serving.pod_cells import pod_ready, pod_restarts, pod_status, readiness_gates
from processkube.kubernetes_api.storing.representations import selector_text


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and the function that makes its cell from an object and the current time."""

    name: str
    cell: Callable[[Object, datetime], Any]
    type: str = "string"
    priority: int = 0


def _at(*path: str, default: Any = "<none>") -> Callable[[Object, datetime], Any]:
    def cell(item: Object, _now: datetime) -> Any:
        value = at_path(item, *path)
        return default if value is None or value == "" else value

    return cell


def _size(*names: str) -> Callable[[Object, datetime], Any]:
    return lambda item, _now: sum(len(item.get(name) or ()) for name in names)


def _selector(item: Object, _now: datetime) -> str:
    selector = at_path(item, "spec", "selector")
    if not selector:
        return "<none>"
    return selector_text(selector if item["kind"] != "Service" else {"matchLabels": selector})


def _containers(field: str) -> Callable[[Object, datetime], str]:
    def cell(item: Object, _now: datetime) -> str:
        containers = at_path(item, "spec", "template", "spec", "containers", default=[])
        return ",".join(container.get(field, "") for container in containers)

    return cell


def _job_status(job: Object, _now: datetime) -> str:
    true = {one.get("type") for one in at_path(job, "status", "conditions", default=[]) if one.get("status") == "True"}
    ended = next((name for name in ("Complete", "Failed") if name in true), "")
    if not ended and job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return ended or next((name for name in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if name in true), "Running")


def _job_completions(job: Object, _now: datetime) -> str:
    succeeded, spec = at_path(job, "status", "succeeded", default=0), job.get("spec", {})
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    return f"{succeeded}/1 of {spec['parallelism']}" if spec.get("parallelism", 0) > 1 else f"{succeeded}/1"


def _job_duration(job: Object, now: datetime) -> str:
    start, end = at_path(job, "status", "startTime"), at_path(job, "status", "completionTime")
    return age_since(start, parse_timestamp(end) if end else now) if start else ""


def _claim_phase(claim: Object, _now: datetime) -> str:
    return "Terminating" if claim["metadata"].get("deletionTimestamp") else str(at_path(claim, "status", "phase", default=""))


def _access_modes(claim: Object, _now: datetime) -> str:
    names = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    modes = at_path(claim, "status", "accessModes", default=[])
    return ",".join(short for name, short in names.items() if name in modes)


def _ingress_hosts(ingress: Object, _now: datetime) -> str:
    rules = at_path(ingress, "spec", "rules", default=[])
    shown: list[str] = []
    more = ""
    for rule in rules:
        if len(shown) == 3:
            more = f" + {len(rules) - 3} more..."
        elif rule.get("host"):
            shown.append(rule["host"])
    return ",".join(shown) + more or "*"


def _ingress_addresses(ingress: Object, _now: datetime) -> str:
    found = at_path(ingress, "status", "loadBalancer", "ingress", default=[])
    return ",".join(sorted({address for one in found if (address := one.get("ip") or one.get("hostname"))}))


def _service_ports(service: Object, _now: datetime) -> str:
    def text(port: Object) -> str:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"

    return ",".join(map(text, at_path(service, "spec", "ports", default=[]))) or "<none>"


def _endpoint_list(item: Object, _now: datetime) -> str:
    found = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in item.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    ]
    return ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "") or "<none>"


def _slice_ports(item: Object, _now: datetime) -> str:
    return ",".join(str(port.get("port", "*")) for port in item.get("ports") or ()) or "<unset>"


def _slice_addresses(item: Object, _now: datetime) -> str:
    found = [address for endpoint in item.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "") or "<unset>"


def _node_status(node: Object, _now: datetime) -> str:
    conditions = {one.get("type"): one.get("status") for one in at_path(node, "status", "conditions", default=[])}
    ready = {"True": "Ready", None: "Unknown"}.get(conditions.get("Ready"), "NotReady")
    return ready + (",SchedulingDisabled" if at_path(node, "spec", "unschedulable") else "")


def _node_roles(node: Object, _now: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels", {})
    return ",".join(sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))) or "<none>"


def _node_address(kind: str) -> Callable[[Object, datetime], str]:
    def cell(node: Object, _now: datetime) -> str:
        addresses = at_path(node, "status", "addresses", default=[])
        return next((one["address"] for one in addresses if one.get("type") == kind), "<none>")

    return cell


def _kernel(node: Object, _now: datetime) -> str:
    info = at_path(node, "status", "nodeInfo", default={})
    architecture = f" ({info['architecture']})" if info.get("architecture") else ""
    return (info.get("kernelVersion") or "<unknown>") + architecture


def _node_selector(item: Object, _now: datetime) -> str:
    wanted = at_path(item, "spec", "template", "spec", "nodeSelector", default={})
    return ",".join(f"{name}={value}" for name, value in sorted(wanted.items())) or "<none>"


def _event_seen(event: Object, now: datetime) -> str:
    times = (event.get("lastTimestamp"), event.get("deprecatedLastTimestamp"), at_path(event, "series", "lastObservedTime"))
    fallback = event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return age_since(next(filter(None, times), fallback), now)


def _event_object(event: Object, _now: datetime) -> str:
    target = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(target.get('kind', '')).lower()}/{target.get('name', '')}"


def _event_message(event: Object, _now: datetime) -> str:
    return str(event.get("message") or event.get("note") or "").strip()


def _ready_replicas(item: Object, _now: datetime) -> str:
    return f"{at_path(item, 'status', 'readyReplicas', default=0)}/{at_path(item, 'spec', 'replicas', default=0)}"


def _role_reference(item: Object, _now: datetime) -> str:
    return f"{at_path(item, 'roleRef', 'kind')}/{at_path(item, 'roleRef', 'name')}"


_AGE = Column("Age", lambda item, now: age_since(item["metadata"].get("creationTimestamp"), now))
_CREATED_AT = Column("Created At", _at("metadata", "creationTimestamp"), "date")
_TEMPLATE = (
    Column("Containers", _containers("name"), priority=1),
    Column("Images", _containers("image"), priority=1),
    Column("Selector", _selector, priority=1),
)


def _count(*path: str) -> Callable[[Object, datetime], Any]:
    return _at(*path, default=0)


BUILTIN_COLUMNS: dict[str, tuple[Column, ...]] = {
    "Namespace": (Column("Status", _at("status", "phase")), _AGE),
    "Pod": (
        Column("Ready", pod_ready),
        Column("Status", pod_status),
        Column("Restarts", pod_restarts),
        _AGE,
        Column("IP", _at("status", "podIP"), priority=1),
        Column("Node", _at("spec", "nodeName"), priority=1),
        Column("Nominated Node", _at("status", "nominatedNodeName"), priority=1),
        Column("Readiness Gates", readiness_gates, priority=1),
    ),
    "Service": (
        Column("Type", _at("spec", "type")),
        Column("Cluster-IP", _at("spec", "clusterIP")),
        Column("External-IP", _at("spec", "externalName")),
        Column("Port(s)", _service_ports),
        _AGE,
        Column("Selector", _selector, priority=1),
    ),
    "Endpoints": (Column("Endpoints", _endpoint_list), _AGE),
    "EndpointSlice": (
        Column("AddressType", _at("addressType")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _slice_addresses),
        _AGE,
    ),
    "ConfigMap": (Column("Data", _size("data", "binaryData"), "integer"), _AGE),
    "Secret": (Column("Type", _at("type")), Column("Data", _size("data"), "integer"), _AGE),
    "ServiceAccount": (Column("Secrets", _size("secrets"), "integer"), _AGE),
    "Event": (
        Column("Last Seen", _event_seen),
        Column("Type", _at("type")),
        Column("Reason", _at("reason")),
        Column("Object", _event_object),
        Column("Message", _event_message),
    ),
    "Node": (
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _at("status", "nodeInfo", "kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        Column("OS-Image", _at("status", "nodeInfo", "osImage", default="<unknown>"), priority=1),
        Column("Kernel-Version", _kernel, priority=1),
        Column("Container-Runtime", _at("status", "nodeInfo", "containerRuntimeVersion", default="<unknown>"), priority=1),
    ),
    "Deployment": (
        Column("Ready", _ready_replicas),
        Column("Up-to-date", _count("status", "updatedReplicas"), "integer"),
        Column("Available", _count("status", "availableReplicas"), "integer"),
        _AGE,
        *_TEMPLATE,
    ),
    "ReplicaSet": (
        Column("Desired", _count("spec", "replicas"), "integer"),
        Column("Current", _count("status", "replicas"), "integer"),
        Column("Ready", _count("status", "readyReplicas"), "integer"),
        _AGE,
        *_TEMPLATE,
    ),
    "StatefulSet": (Column("Ready", _ready_replicas), _AGE, *_TEMPLATE[:2]),
    "DaemonSet": (
        Column("Desired", _count("status", "desiredNumberScheduled"), "integer"),
        Column("Current", _count("status", "currentNumberScheduled"), "integer"),
        Column("Ready", _count("status", "numberReady"), "integer"),
        Column("Up-to-date", _count("status", "updatedNumberScheduled"), "integer"),
        Column("Available", _count("status", "numberAvailable"), "integer"),
        Column("Node Selector", _node_selector),
        _AGE,
        *_TEMPLATE,
    ),
    "Job": (
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
        *_TEMPLATE,
    ),
    "PersistentVolumeClaim": (  # what a bound one has: here without the name of a volume, by which the real server asks
        Column("Status", _claim_phase),
        Column("Volume", _at("spec", "volumeName", default="")),
        Column("Capacity", _at("status", "capacity", "storage", default="")),
        Column("Access Modes", _access_modes),
        Column("StorageClass", _at("spec", "storageClassName", default="")),
        Column("VolumeAttributesClass", _at("spec", "volumeAttributesClassName", default="<unset>")),
        _AGE,
        Column("VolumeMode", _at("spec", "volumeMode", default="<unset>"), priority=1),
    ),
    "Ingress": (
        Column("Class", _at("spec", "ingressClassName")),
        Column("Hosts", _ingress_hosts),
        Column("Address", _ingress_addresses),
        Column("Ports", lambda item, _now: "80, 443" if at_path(item, "spec", "tls") else "80"),
        _AGE,
    ),
    "PodDisruptionBudget": (
        Column("Min Available", _at("spec", "minAvailable", default="N/A")),
        Column("Max Unavailable", _at("spec", "maxUnavailable", default="N/A")),
        Column("Allowed Disruptions", _count("status", "disruptionsAllowed"), "integer"),
        _AGE,
    ),
    "Lease": (Column("Holder", _at("spec", "holderIdentity")), _AGE),
    "Role": (_CREATED_AT,),
    "ClusterRole": (_CREATED_AT,),
    "RoleBinding": (Column("Role", _role_reference), _AGE),
    "ClusterRoleBinding": (Column("Role", _role_reference), _AGE),
    "PriorityClass": (
        Column("Value", _count("value"), "integer"),
        Column("Global-Default", lambda item, _now: bool(item.get("globalDefault")), "boolean"),
        _AGE,
        Column("PreemptionPolicy", _at("preemptionPolicy")),
    ),
    "NetworkPolicy": (
        Column("Pod-Selector", lambda item, _now: selector_text(at_path(item, "spec", "podSelector", default={})) or "<none>"),
        _AGE,
    ),
    "CustomResourceDefinition": (_CREATED_AT,),
}
