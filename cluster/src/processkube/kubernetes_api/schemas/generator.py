"""Writes `builtin_schemas.json`: structural schemas of the built-in kinds, made from the models of the official client.

Run `python -m processkube.kubernetes_api.schemas.generator` after an upgrade of the `kubernetes` package; a test fails
if the file does not fit the installed package. The models do not contain the keys by which lists are merged. These are
in the table `LIST_KEYS`, taken from the markers `listMapKey` in the types of Kubernetes 1.36. The table also has keys
that only a strategic merge patch uses (`hostIPs`).
"""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("builtin_schemas.json")

ROOTS = (
    "V1Namespace",
    "V1Pod",
    "V1Service",
    "V1Endpoints",
    "V1EndpointSlice",
    "V1ConfigMap",
    "V1Secret",
    "V1PersistentVolumeClaim",
    "V1ServiceAccount",
    "CoreV1Event",
    "EventsV1Event",
    "V1Lease",
    "V1PodDisruptionBudget",
    "V1Eviction",
    "V1Binding",
    "V1Deployment",
    "V1ReplicaSet",
    "V1StatefulSet",
    "V1DaemonSet",
    "V1ControllerRevision",
    "V1Job",
    "V1Node",
    "V1Role",
    "V1RoleBinding",
    "V1ClusterRole",
    "V1ClusterRoleBinding",
    "V1SelfSubjectAccessReview",
    "V1SelfSubjectRulesReview",
    "V1SelfSubjectReview",
    "V1SubjectAccessReview",
    "V1TokenReview",
    "V1PriorityClass",
    "V1NetworkPolicy",
    "V1Ingress",
    "ResourceV1ResourceClaim",
    "V1ResourceClaimTemplate",
    "V1DeviceClass",
    "V1CustomResourceDefinition",
    "V1Scale",
    "V1DeleteOptions",
    "V1Status",
)

OPAQUE = {"V1JSONSchemaProps"}
"""Models whose schemas allow any members: other code checks the schemas within a definition."""

LIST_KEYS: dict[tuple[str, str], list[str]] = {
    ("V1PodSpec", "containers"): ["name"],
    ("V1PodSpec", "initContainers"): ["name"],
    ("V1PodSpec", "ephemeralContainers"): ["name"],
    ("V1PodSpec", "volumes"): ["name"],
    ("V1PodSpec", "imagePullSecrets"): ["name"],
    ("V1PodSpec", "hostAliases"): ["ip"],
    ("V1PodSpec", "schedulingGates"): ["name"],
    ("V1PodSpec", "resourceClaims"): ["name"],
    ("V1PodSpec", "topologySpreadConstraints"): ["topologyKey", "whenUnsatisfiable"],
    ("V1Container", "env"): ["name"],
    ("V1Container", "ports"): ["containerPort", "protocol"],
    ("V1Container", "volumeMounts"): ["mountPath"],
    ("V1Container", "volumeDevices"): ["devicePath"],
    ("V1EphemeralContainer", "env"): ["name"],
    ("V1EphemeralContainer", "ports"): ["containerPort", "protocol"],
    ("V1EphemeralContainer", "volumeMounts"): ["mountPath"],
    ("V1PodStatus", "conditions"): ["type"],
    ("V1PodStatus", "podIPs"): ["ip"],
    ("V1PodStatus", "hostIPs"): ["ip"],
    ("V1PodStatus", "resourceClaimStatuses"): ["name"],
    ("V1ContainerStatus", "allocatedResourcesStatus"): ["name"],
    ("V1ContainerStatus", "volumeMounts"): ["mountPath"],
    ("V1ServiceSpec", "ports"): ["port", "protocol"],
    ("V1ServiceStatus", "conditions"): ["type"],
    ("V1PersistentVolumeClaimStatus", "conditions"): ["type"],
    ("V1NodeStatus", "conditions"): ["type"],
    ("V1NodeStatus", "addresses"): ["type"],
    ("V1NamespaceStatus", "conditions"): ["type"],
    ("V1DeploymentStatus", "conditions"): ["type"],
    ("V1ReplicaSetStatus", "conditions"): ["type"],
    ("V1StatefulSetStatus", "conditions"): ["type"],
    ("V1DaemonSetStatus", "conditions"): ["type"],
    ("V1PodDisruptionBudgetStatus", "conditions"): ["type"],
    ("V1CustomResourceDefinitionStatus", "conditions"): ["type"],
    ("V1ServiceAccount", "secrets"): ["name"],
    ("V1ObjectMeta", "ownerReferences"): ["uid"],
}
SETS = {("V1ObjectMeta", "finalizers"), ("V1NodeSpec", "podCIDRs")}
REPLACED = {("V1PodDisruptionBudgetSpec", "selector")}
"""Fields that are maps, but that a strategic merge patch replaces as a whole."""

ATOMIC_MAPS = {
    "CoreV1EndpointPort",
    "DiscoveryV1EndpointPort",
    "RbacV1Subject",
    "V1ConfigMapKeySelector",
    "V1EndpointAddress",
    "V1FileKeySelector",
    "V1LabelSelector",
    "V1LocalObjectReference",
    "V1NodeSelector",
    "V1NodeSelectorTerm",
    "V1ObjectFieldSelector",
    "V1ObjectReference",
    "V1OwnerReference",
    "V1ResourceFieldSelector",
    "V1RoleRef",
    "V1SecretKeySelector",
    "V1ServiceBackendPort",
    "V1TypedLocalObjectReference",
}
"""Models that server-side apply treats as a single value. They have the marker `structType=atomic` in the types of
Kubernetes 1.36.
"""

ATOMIC_FIELDS = {("V1PodSpec", "nodeSelector"), ("V1ServiceSpec", "selector")}
"""Maps that are replaced as a whole (`mapType=atomic`)."""

QUANTITIES = {"limits", "requests", "capacity", "allocatable", "overhead", "sizeLimit", "allocatedResources", "divisor"}
NUMBERS_OR_NAMES = {"port", "targetPort", "minAvailable", "maxUnavailable", "maxSurge"}
"""Fields of the type IntOrString in the API, for which the models only say `object`."""

_MODEL = re.compile(r"^([A-Z][a-z]+)?V(1(?:alpha\d+|beta\d+)?)([A-Z].*)$")
_LIST = re.compile(r"^List\[(.+)\]$")
_MAP = re.compile(r"^Dict\[str, (.+)\]$")
_SCALARS: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    "object": {"x-kubernetes-preserve-unknown-fields": True},
}


def definition_name(model: str) -> str:
    """Return the definition's name for a model: `V1Pod` → `io.k8s.api.v1.Pod`. Only the names of the two Event kinds
    contain their groups.
    """
    if found := _MODEL.match(model):
        return f"io.k8s.api.{found[1].lower() + '.' if found[1] else ''}v{found[2]}.{found[3]}"
    raise ValueError(f"model {model!r} has another kind of name; teach definition_name its name")


def build_schemas() -> dict[str, Any]:
    """Return the schemas by definition name, with references as in OpenAPI v3. The target of every reference is
    included.
    """
    models = importlib.import_module("kubernetes.client.models")
    schemas: dict[str, Any] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        key = definition_name(name)
        if key in schemas:
            continue
        if name in OPAQUE:
            schemas[key] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            continue
        model = getattr(models, name)
        schemas[key] = _schema_of(name, model, waiting)
    return dict(sorted(schemas.items()))


def _schema_of(name: str, model: Any, waiting: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for attribute, wire_name in model.attribute_map.items():
        field = model.model_fields.get(attribute) or model.model_fields["var_" + attribute.lstrip("_")]
        schema = _schema_of_type(model.openapi_types[attribute], wire_name, waiting)
        if field.description and "$ref" not in schema:
            schema["description"] = field.description.strip()
        elif field.description:
            schema = {"allOf": [schema], "description": field.description.strip()}
        if keys := LIST_KEYS.get((name, wire_name)):
            schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        elif (name, wire_name) in SETS:
            schema["x-kubernetes-list-type"] = "set"
        if (name, wire_name) in ATOMIC_FIELDS:
            schema["x-kubernetes-map-type"] = "atomic"
        if (name, wire_name) in REPLACED:
            schema["x-kubernetes-patch-strategy"] = "replace"
        properties[wire_name] = schema
        if field.is_required():
            required.append(wire_name)
    schema = {"type": "object", "description": _first_paragraph(model.__doc__), "properties": properties}
    if name in ATOMIC_MAPS:
        schema["x-kubernetes-map-type"] = "atomic"
    if required:
        schema["required"] = required
    return schema


def _schema_of_type(spelling: str, wire_name: str, waiting: list[str]) -> dict[str, Any]:
    if found := _LIST.match(spelling):
        return {"type": "array", "items": _schema_of_type(found[1], "", waiting)}
    if found := _MAP.match(spelling):
        inner = "quantity" if wire_name in QUANTITIES else ""
        return {"type": "object", "additionalProperties": _schema_of_type(found[1], inner, waiting)}
    if spelling == "object" and wire_name in NUMBERS_OR_NAMES:
        return {"x-kubernetes-int-or-string": True}
    if spelling == "str" and (wire_name == "quantity" or wire_name in QUANTITIES):
        return {"type": "string", "format": "quantity"}
    if spelling in _SCALARS:
        return dict(_SCALARS[spelling])
    waiting.append(spelling)
    return {"$ref": f"#/components/schemas/{definition_name(spelling)}"}


def _first_paragraph(text: str | None) -> str:
    return (text or "").strip().split("\n\n")[0].strip()


def render() -> str:
    lines = [f"{json.dumps(name)}: {json.dumps(schema, sort_keys=True)}" for name, schema in build_schemas().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
