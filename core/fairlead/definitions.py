"""Parts common to our CustomResourceDefinitions: the frame, the scale subresource, columns, small schemas. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.pools import GROUP, VERSION


def definition(
    *,
    kind: str,
    plural: str,
    short_name: str,
    description: str,
    spec: dict[str, Any],
    status: Mapping[str, Any],
    rules: Mapping[str, str],
    columns: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return a whole CRD object, ready to be applied.

    `spec` is a schema, `status` the properties of a schema. `rules` maps CEL rules about the object to their error
    messages.
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "fairlead"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short_name],
                "categories": ["fairlead"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _object_schema(kind, description, spec, status, rules)},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": sorted((*columns, _AGE), key=lambda one: one.get("priority", 0)),
                }
            ],
        },
    }


def column(name: str, kind: str, path: str, description: str, *, wide: bool = False) -> dict[str, Any]:
    """Return a column of `kubectl get`. With `wide`, the column is shown only with `-o wide`."""
    return {"name": name, "type": kind, "jsonPath": path, "description": description, **({"priority": 1} if wide else {})}


_AGE = column("Age", "date", ".metadata.creationTimestamp", "Time since creation.")


def text(description: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a text; `more` are further schema keywords."""
    return {"type": "string", "description": description, **more}


def count(description: str) -> dict[str, Any]:
    """Return the schema of a whole number."""
    return {"type": "integer", "description": description}


def _object_schema(
    kind: str, description: str, spec: dict[str, Any], status: Mapping[str, Any], rules: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": text("Version of this schema."),
            "kind": text(f"{kind}."),
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {
                "type": "object",
                "description": f"The observed state of the {kind}; written by the operator.",
                "properties": {"observedGeneration": count("Generation of the spec this status is about."), **status},
            },
        },
        "x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules.items()],
    }
