"""CustomResourceDefinitions: what is wrong with one, the kinds it defines, and the status it gets when it is served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlead_sandbox.kubernetes_api import builtin_schemas
from fairlead_sandbox.kubernetes_api.cel import InvalidRule, compile_rules
from fairlead_sandbox.kubernetes_api.errors import Cause, invalid_value, not_supported, required_value
from fairlead_sandbox.kubernetes_api.kinds import OBJECT_META, PrinterColumn, ResourceKind, ScalePaths
from fairlead_sandbox.kubernetes_api.objects import Object, at_path
from fairlead_sandbox.kubernetes_api.schemas import INT_OR_STRING, LIST_KEYS, LIST_TYPE, PRESERVE

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def default_definition(crd: Object) -> None:
    """Fills a definition in place."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})


def definition_faults(crd: Object, old: Object | None) -> list[Cause]:
    """Everything that keeps a definition from being served."""
    spec = crd.get("spec", {})
    names = spec.get("names", {})
    causes: list[Cause] = []
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if at_path(crd, "metadata", "name") != expected:
        name = at_path(crd, "metadata", "name")
        causes.append(invalid_value("metadata.name", name, f'must be spec.names.plural+"."+spec.group ({expected})'))
    if spec.get("scope") not in {"Namespaced", "Cluster"}:
        causes.append(not_supported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced")))
    if at_path(spec, "conversion", "strategy", default="None") != "None":
        strategy = spec["conversion"]["strategy"]
        causes.append(not_supported("spec.conversion.strategy", strategy, ("None",)))
    versions = spec.get("versions", [])
    if not versions:
        causes.append(required_value("spec.versions"))
    elif sum(bool(version.get("storage")) for version in versions) != 1:
        message = "must have exactly one version marked as storage version"
        causes.append(invalid_value("spec.versions", versions, message))
    for index, version in enumerate(versions):
        at = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = at_path(version, "schema", "openAPIV3Schema")
        if not isinstance(schema, dict):
            causes.append(required_value(at, "schemas are required"))
        else:
            causes += list(_schema_faults(schema, at, root=True))
            try:
                compile_rules(schema)
            except InvalidRule as error:
                causes.append(invalid_value(f"{at}.x-kubernetes-validations", schema, str(error)))
    if old is not None:
        before = old.get("spec", {})
        for field in ("group", "scope"):
            if before.get(field) != spec.get(field):
                causes.append(invalid_value(f"spec.{field}", spec.get(field), "field is immutable"))
    return causes


def _schema_faults(schema: Object, path: str, *, root: bool = False) -> Iterable[Cause]:
    """Departures from a structural schema that would make defaulting, pruning or merging ambiguous."""
    kind = schema.get("type")
    if root and kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object at the root")
    elif kind is None and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        yield required_value(f"{path}.type", "must not be empty for specified object fields")
    elif kind is not None and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("properties") and schema.get("additionalProperties") not in (None, False):
        yield invalid_value(f"{path}.additionalProperties", True, "additionalProperties and properties are mutual exclusive")
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield required_value(f"{path}.items", "must be specified")
    if schema.get(LIST_TYPE) == "map" and not schema.get(LIST_KEYS):
        yield required_value(f"{path}.{LIST_KEYS}", f"must not be empty if {LIST_TYPE} is map")
    for name, inner in schema.get("properties", {}).items():
        if not (root and name == "metadata"):
            yield from _schema_faults(inner, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), dict):
            yield from _schema_faults(inner, f"{path}.{name}")


def kinds_of(crd: Object) -> list[ResourceKind]:
    """The kinds a sound definition serves, one per served version, the storage version first."""
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
    """The schema with the members every object has; what the definition says about metadata applies on top."""
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
    """The status of a definition that is served; keeps the transition times of conditions that held already."""
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
