"""The CustomResourceDefinition of InferencePoolRole. Pure; `scripts/generate_crds.py` writes the file."""

from typing import Any

from fairlead.pool_roles import KIND, PLURAL, PoolRoleSpec
from fairlead.pools import GROUP, VERSION
from fairlead.schemas.openapi import structural_schema


def role_definition() -> dict[str, Any]:
    """The whole CRD object, ready to be applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "fairlead"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["fprole"],
                "categories": ["fairlead"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    columns = (
        ("Pool", "string", ".spec.pool", "The InferencePool."),
        ("Role", "string", ".spec.role", "Role of the pool."),
        ("Replicas", "integer", ".spec.replicas", "Instances wanted by this object."),
        ("Pinned", "integer", ".spec.pinned", "The number that the pool declares; empty if this object may be scaled."),
        ("Desired", "integer", ".status.desired", "Instances wanted now."),
        ("Serving", "integer", ".status.serving", "Instances that serve."),
        ("Age", "date", ".metadata.creationTimestamp", "Time since creation."),
    )
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": description} for name, kind, path, description in columns
        ],
    }


def _object_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "One role of an InferencePool, as something that can be scaled. The operator makes it.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this schema."},
            "kind": {"type": "string", "description": "InferencePoolRole."},
            "metadata": {"type": "object"},
            "spec": structural_schema(PoolRoleSpec, "How many instances are wanted."),
            "status": _status_schema(),
        },
        "x-kubernetes-validations": [
            {
                "rule": "self.metadata.name == self.spec.pool + '-' + self.spec.role",
                "message": "metadata.name must be <pool>-<role>; the operator makes this object, do not make it yourself",
            }
        ],
    }


def _status_schema() -> dict[str, Any]:
    def count(description: str) -> dict[str, Any]:
        return {"type": "integer", "description": description}

    return {
        "type": "object",
        "description": "What the role is; written by the operator.",
        "properties": {
            "observedGeneration": count("Generation of the spec this status is about."),
            "replicas": count("Instances that exist and do not drain."),
            "serving": count("Instances that serve."),
            "desired": count("Instances wanted now: replicas within the bounds in force."),
            "message": {"type": "string", "description": "Where the number asked for comes from, and what the role's bounds make of it."},
            "selector": {"type": "string", "description": "Label selector of the role's pods, for autoscalers."},
        },
    }
