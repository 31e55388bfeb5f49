"""The CRDs of the Gateway API Inference Extension (GAIE), written from its API types at version 1.6.

They refuse the same objects as the real ones: they have the same required fields, lengths, patterns, enumerations and
rules. Descriptions are left out. See `api/v1/inferencepool_types.go` of
kubernetes-sigs/gateway-api-inference-extension.
"""

from typing import Any

from processkube.testing.clients import KubernetesClient

OBJECTIVES = "/apis/llm-d.ai/v1alpha2/namespaces/default/inferenceobjectives"
GATEWAY_POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools"

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUP = {"type": "string", "maxLength": 253, "pattern": r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"}
_KIND = {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"}
_NAME = {"type": "string", "minLength": 1, "maxLength": 253}
_NAMESPACE = {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
_LABEL = {"type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}
_PORT = {
    "type": "object",
    "required": ["number"],
    "properties": {"number": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}},
}
_CONDITIONS = {
    "type": "array",
    "maxItems": 8,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string", "maxLength": 32768},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "type": {"type": "string", "maxLength": 316},
        },
    },
}
_PICKER = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "failureMode": {"type": "string", "default": "FailClose", "enum": ["FailOpen", "FailClose"]},
        "group": {**_GROUP, "default": ""},
        "kind": {**_KIND, "default": "Service"},
        "name": _NAME,
        "port": _PORT,
    },
    "x-kubernetes-validations": [
        {
            "rule": "self.kind != 'Service' || has(self.port)",
            "message": "port is required when kind is 'Service' or unspecified (defaults to 'Service')",
        }
    ],
}
_POOL_SPEC = {
    "type": "object",
    "required": ["selector", "targetPorts"],
    "properties": {
        "appProtocol": {"type": "string", "default": "http", "enum": ["http", "kubernetes.io/h2c"]},
        "endpointPickerRef": _PICKER,
        "selector": {
            "type": "object",
            "required": ["matchLabels"],
            "properties": {
                "matchLabels": {"type": "object", "minProperties": 1, "maxProperties": 64, "additionalProperties": _LABEL},
            },
        },
        "targetPorts": {
            "type": "array",
            "minItems": 1,
            "maxItems": 8,
            "x-kubernetes-list-type": "atomic",
            "items": _PORT,
            "x-kubernetes-validations": [
                {"rule": "self.all(p1, self.exists_one(p2, p1.number==p2.number))", "message": "port number must be unique"}
            ],
        },
    },
}
_PARENT = {
    "type": "object",
    "required": ["parentRef"],
    "properties": {
        "conditions": _CONDITIONS,
        "controllerName": {"type": "string", "minLength": 1, "maxLength": 253},
        "parentRef": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "group": {**_GROUP, "default": "gateway.networking.k8s.io"},
                "kind": {**_KIND, "default": "Gateway"},
                "name": _NAME,
                "namespace": _NAMESPACE,
            },
        },
    },
}
_POOL_STATUS = {
    "type": "object",
    "properties": {"parents": {"type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic", "items": _PARENT}},
}


def _definition(group: str, kind: str, plural: str, version: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    metadata = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    schema = {"type": "object", "required": ["spec"], "properties": {**metadata, "spec": spec, "status": status}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
            ],
        },
    }


_POOL_REF = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "group": {**_GROUP, "default": "inference.networking.k8s.io"},
        "kind": {**_KIND, "default": "InferencePool"},
        "name": _NAME,
    },
}
_OBJECTIVE_SPEC = {
    "type": "object",
    "required": ["poolRef"],
    "properties": {"poolRef": _POOL_REF, "priority": {"type": "integer", "format": "int32"}},
}
_OBJECTIVE_STATUS = {"type": "object", "properties": {"conditions": _CONDITIONS}}

OBJECTIVE_DEFINITION = _definition("llm-d.ai", "InferenceObjective", "inferenceobjectives", "v1alpha2", _OBJECTIVE_SPEC, _OBJECTIVE_STATUS)
POOL_DEFINITION = _definition("inference.networking.k8s.io", "InferencePool", "inferencepools", "v1", _POOL_SPEC, _POOL_STATUS)


def define(client: KubernetesClient, definition: dict[str, Any]) -> None:
    """Install a CRD, unless it is installed."""
    known = client.call("GET", _DEFINITIONS)["items"]
    if not any(one["metadata"]["name"] == definition["metadata"]["name"] for one in known):
        client.call("POST", _DEFINITIONS, definition)


def judge(client: KubernetesClient, name: str, gateway: str, **judgements: tuple[str, str]) -> None:
    """Write a gateway's conditions to the status of a GAIE InferencePool: status and reason by condition type."""
    found = client.call("GET", f"{GATEWAY_POOLS}/{name}")
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "said in a test",
            "lastTransitionTime": "2026-11-23T00:00:00Z",
            "observedGeneration": found["metadata"]["generation"],
        }
        for kind, (status, reason) in judgements.items()
    ]
    parent = {"parentRef": {"name": gateway, "namespace": "default"}, "controllerName": "example.net/gateways", "conditions": conditions}
    client.merge(f"{GATEWAY_POOLS}/{name}/status", {"status": {"parents": [parent]}})
