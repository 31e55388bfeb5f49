"""The kinds that a valid CustomResourceDefinition adds, and the status of a definition that is served."""

from __future__ import annotations

from typing import Any

from processkube.kubernetes_api.cel.rules import compile_rules
from processkube.kubernetes_api.kinds.kinds import OBJECT_META, PrinterColumn, ResourceKind, ScalePaths
from processkube.kubernetes_api.objects.objects import Object, at_path
from processkube.kubernetes_api.schemas import builtin as builtin_schemas

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def kinds_of(crd: Object) -> list[ResourceKind]:
    """Return the kinds of a valid definition: one per served version, the storage version first."""
    spec = crd["spec"]
    names = spec["names"]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    versions = sorted((one for one in spec["versions"] if one.get("served")), key=lambda one: one["name"] != storage)
    return [_kind_of(spec, names, version, storage) for version in versions]


def _kind_of(spec: Object, names: Object, version: Object, storage: str) -> ResourceKind:
    written: Object = version["schema"]["openAPIV3Schema"]
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    return ResourceKind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names.get("singular", ""),
        namespaced=spec["scope"] == "Namespaced",
        schema=_with_metadata(written),
        rules=compile_rules(written),
        definition_schema=written,
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        has_status="status" in subresources,
        has_generation=True,
        scale=_scale_of(scale) if scale else None,
        columns=tuple(_column(column) for column in version.get("additionalPrinterColumns", ())),
        selectable_fields=tuple(str(one["jsonPath"]).lstrip(".") for one in version.get("selectableFields", ())),
        custom=True,
        storage_version=storage,
    )


def _with_metadata(schema: Object) -> Object:
    """Return the schema with the members that every object has. The definition's own restrictions of metadata are
    kept.
    """
    properties = dict(schema.get("properties", {}))
    metadata = builtin_schemas.resolved(OBJECT_META)
    if extra := properties.get("metadata"):
        metadata = {**metadata, "allOf": [{key: value for key, value in extra.items() if key != "type"}]}
    text: dict[str, Any] = {"type": "string"}
    return {**schema, "properties": {**properties, "apiVersion": text, "kind": text, "metadata": metadata}}


def _scale_of(scale: Object) -> ScalePaths:
    return ScalePaths(
        spec_replicas=scale["specReplicasPath"],
        status_replicas=scale["statusReplicasPath"],
        selector=scale.get("labelSelectorPath", ""),
    )


def _column(column: Object) -> PrinterColumn:
    return PrinterColumn(
        name=column["name"],
        type=column["type"],
        json_path=column["jsonPath"],
        description=column.get("description", ""),
        format=column.get("format", ""),
        priority=column.get("priority", 0),
    )


def established_status(crd: Object, time: str) -> Object:
    """Return the status of a definition that is served. Conditions that the definition already has do not change."""
    spec = crd["spec"]
    before = {one["type"]: one for one in at_path(crd, "status", "conditions", default=[])}
    wanted = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    conditions = [
        before.get(kind) or {"type": kind, "status": "True", "lastTransitionTime": time, "reason": reason, "message": message}
        for kind, reason, message in wanted
    ]
    kept = [one for kind, one in before.items() if kind not in {"NamesAccepted", "Established"}]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    stored = at_path(crd, "status", "storedVersions", default=[])
    return {
        "acceptedNames": spec["names"],
        "conditions": conditions + kept,
        "storedVersions": stored if storage in stored else [*stored, storage],
    }
