"""The definition of LeaderWorkerSets with the fields, bounds, defaults and scale of kubernetes-sigs/lws.

The real definition spells out the schema of a pod template. This definition takes it from the server's own schemas.
"""

from __future__ import annotations

from typing import Any

from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.schemas import builtin as builtin_schemas

_SHARE: Object = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
_KEPT = frozenset({"type", "properties", "items", "additionalProperties", "required", "format", "x-kubernetes-preserve-unknown-fields"})


def leader_worker_set_definition() -> Object:
    """Return the CustomResourceDefinition of LeaderWorkerSets, ready to be applied."""
    plural, group = "leaderworkersets", "leaderworkerset.x-k8s.io"
    names = {
        "kind": "LeaderWorkerSet",
        "listKind": "LeaderWorkerSetList",
        "plural": plural,
        "singular": "leaderworkerset",
        "shortNames": ["lws"],
    }
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.hpaPodSelector"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _spec(), "status": _status()}}},
        "subresources": {"status": {}, "scale": scale},
    }
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/lws"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": approved},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _spec() -> Object:
    template = _plain(builtin_schemas.resolved("io.k8s.api.v1.PodTemplateSpec"))
    rolling = {
        "type": "object",
        "properties": {"maxUnavailable": {**_SHARE, "default": 1}, "maxSurge": {**_SHARE, "default": 0}, "partition": _whole(0)},
    }
    group = {
        "type": "object",
        "required": ["workerTemplate"],
        "properties": {
            "leaderTemplate": template,
            "workerTemplate": template,
            "size": _whole(1, 1),
            "restartPolicy": _word("RecreateGroupOnPodRestart", "Default", "RecreateGroupAfterStart", "None"),
            "subGroupPolicy": _free(),
            "volumeClaimTemplates": {"type": "array", "items": _free()},
            "persistentVolumeClaimRetentionPolicy": _free(),
        },
    }
    strategy = {"type": _word("RollingUpdate"), "rollingUpdateConfiguration": {**rolling, "default": {}}}
    return {
        "type": "object",
        "required": ["leaderWorkerTemplate"],
        "properties": {
            "replicas": _whole(1),
            "leaderWorkerTemplate": group,
            "rolloutStrategy": {"type": "object", "properties": strategy, "default": {}},
            "startupPolicy": _word("LeaderCreated", "LeaderReady"),
            "networkConfig": {"type": "object", "properties": {"subdomainPolicy": _word("Shared", "UniquePerReplica")}, "default": {}},
        },
    }


def _status() -> Object:
    names = ("replicas", "readyReplicas", "updatedReplicas", "observedGeneration")
    condition = {**_free(), "required": ["type", "status"], "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}
    conditions = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": condition}
    numbers = {name: {"type": "integer"} for name in names}
    return {"type": "object", "properties": {**numbers, "hpaPodSelector": {"type": "string"}, "conditions": conditions}}


def _whole(default: int, minimum: int = 0) -> Object:
    return {"type": "integer", "format": "int32", "default": default, "minimum": minimum}


def _word(default: str, *others: str) -> Object:
    return {"type": "string", "default": default, "enum": [default, *others]}


def _free() -> Object:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _plain(schema: Any) -> Any:
    """Return the schema of a built-in kind in a form that a definition may have: quantities may be numbers, and lists
    have no keys.
    """
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "quantity":
        return dict(_SHARE)
    plain = {name: value for name, value in schema.items() if name in _KEPT and not (name == "format" and value == "byte")}
    if "properties" in plain:
        plain["properties"] = {name: _plain(one) for name, one in plain["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(plain.get(name), dict):
            plain[name] = _plain(plain[name])
    if "type" not in plain:
        plain["type"] = "object"
    return plain
