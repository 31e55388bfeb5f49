"""Fills in the defaults of users' CustomResourceDefinitions, and finds their faults.

It follows k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation, with three differences. Conversion webhooks
are not offered. Selectable fields and the field paths of rules are not looked up in the schema. At an update, all
versions are checked, even if their schemas did not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from processkube.kubernetes_api.definitions.defaults import default_faults
from processkube.kubernetes_api.definitions.rules import rule_faults
from processkube.kubernetes_api.definitions.schemas import root_faults, schema_faults
from processkube.kubernetes_api.objects.errors import Cause, invalid_value, not_supported, required_value
from processkube.kubernetes_api.objects.naming import label_1035_faults, subdomain_faults
from processkube.kubernetes_api.objects.objects import Object, at_path
from processkube.kubernetes_api.schemas.structural import structural_faults

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_STATUS_ROOTS = (".spec.", ".status.")
_DATA = frozenset({"default", "enum", "example"})
_STORAGE = "must have exactly one version marked as storage version"


def default_definition(crd: Object) -> None:
    """Fill in the defaults of a definition in place."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})
    for version in spec.get("versions", ()):
        if isinstance(schema := at_path(version, "schema", "openAPIV3Schema"), dict):
            version["schema"]["openAPIV3Schema"] = _without_nulls(schema)


def _without_nulls(schema: Any) -> Any:
    """Return the schema without members whose value is null, because such a member counts as absent.

    Nulls within data, such as a default value, are kept.
    """
    if isinstance(schema, list):
        return [_without_nulls(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: value if name in _DATA else _without_nulls(value) for name, value in schema.items() if value is not None}


_APPROVED = "api-approved.kubernetes.io"


def definition_faults(crd: Object, old: Object | None) -> list[Cause]:
    """Return all faults of a definition. `old` is the definition before the write; None at its creation."""
    spec = crd.get("spec", {})
    causes = [*_name_faults(crd, spec), *_spec_faults(spec), *_version_faults(spec), *_names_faults(spec.get("names", {}))]
    if old is not None:
        causes += _immutable_faults(spec, old.get("spec", {}))
    return causes


def _name_faults(crd: Object, spec: Object) -> Iterator[Cause]:
    name = at_path(crd, "metadata", "name")
    if name != f"{at_path(spec, 'names', 'plural')}.{spec.get('group')}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    protected = str(spec.get("group", "")).endswith((".k8s.io", ".kubernetes.io"))
    if protected and not (at_path(crd, "metadata", "annotations") or {}).get(_APPROVED):
        yield required_value(f"metadata.annotations[{_APPROVED}]", f'protected groups must have approval annotation "{_APPROVED}"')


def _spec_faults(spec: Object) -> Iterator[Cause]:
    group = spec.get("group", "")
    if not group:
        yield required_value("spec.group")
    elif faults := subdomain_faults(group):
        yield invalid_value("spec.group", group, ",".join(faults))
    elif "." not in group:
        yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    if not spec.get("scope"):
        yield required_value("spec.scope")
    elif spec["scope"] not in {"Namespaced", "Cluster"}:
        yield not_supported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
    strategy = at_path(spec, "conversion", "strategy", default="None")
    if strategy != "None":
        yield not_supported("spec.conversion.strategy", strategy, ("None",))
    if spec.get("preserveUnknownFields"):
        yield invalid_value(
            "spec.preserveUnknownFields",
            True,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        )


def _version_faults(spec: Object) -> Iterator[Cause]:
    """Yield the faults of the versions. A member that is equal in all versions is checked only once, and the paths of
    its faults name no version.
    """
    versions = spec.get("versions", [])
    for index, version in enumerate(versions):
        at = f"spec.versions[{index}]"
        if faults := label_1035_faults(str(version.get("name", ""))):
            yield invalid_value(f"{at}.name", version.get("name", ""), ",".join(faults))
        if not isinstance(at_path(version, "schema", "openAPIV3Schema"), dict):
            yield required_value(f"{at}.schema.openAPIV3Schema")
    for at, schema, version in _places(versions, "schema", "validation"):
        if isinstance(schema.get("openAPIV3Schema"), dict):
            yield from openapi_faults(schema["openAPIV3Schema"], f"{at}.openAPIV3Schema", has_status=_has_status(version))
    for at, subresources, _ in _places(versions, "subresources", "subresources"):
        yield from _subresource_faults(subresources, at)
    for at, columns, _ in _places(versions, "additionalPrinterColumns", "additionalPrinterColumns"):
        for number, column in enumerate(columns):
            yield from _column_faults(column, f"{at}[{number}]")
    names = [version.get("name") for version in versions]
    if len(set(names)) < len(names):
        yield invalid_value("spec.versions", versions, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid_value("spec.versions", versions, _STORAGE)


def _places(versions: list[Object], member: str, shared: str) -> Iterator[tuple[str, Any, Object]]:
    """Yield (path, value, version) of a member for each version that has it.

    If the member is equal in all versions, it is yielded only once, with the path `spec.` followed by `shared`.
    """
    if versions and versions[0].get(member) and all(version.get(member) == versions[0][member] for version in versions):
        yield f"spec.{shared}", versions[0][member], next((version for version in versions if _has_status(version)), versions[0])
        return
    for index, version in enumerate(versions):
        if version.get(member):
            yield f"spec.versions[{index}].{member}", version[member], version


def openapi_faults(schema: Object, path: str, *, has_status: bool) -> list[Cause]:
    """Return all faults of one schema. Some checks need a schema without faults of an earlier check. They are skipped
    if the earlier check found faults.
    """
    causes = list(root_faults(schema, path, has_status=has_status))
    earlier = structural_faults(schema, path) or list(default_faults(schema, path))
    words = list(schema_faults(schema, path, root=True))
    causes += earlier + words
    return causes if earlier else causes + rule_faults(schema, path, words)


def _has_status(version: Object) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _subresource_faults(subresources: Object, path: str) -> Iterator[Cause]:
    scale = subresources.get("scale")
    if not isinstance(scale, dict):
        return
    for name, roots in (("specReplicasPath", (".spec.",)), ("statusReplicasPath", (".status.",)), ("labelSelectorPath", _STATUS_ROOTS)):
        found = scale.get(name)
        if not found:
            if name != "labelSelectorPath":
                yield required_value(f"{path}.scale.{name}")
        elif not found.startswith("."):
            yield invalid_value(f"{path}.scale.{name}", found, "must be a simple json path starting with .")
        elif not found.startswith(roots):
            where = "either .spec or .status" if len(roots) > 1 else roots[0].rstrip(".")
            yield invalid_value(f"{path}.scale.{name}", found, f"should be a json path under {where}")


def _column_faults(column: Object, path: str) -> Iterator[Cause]:
    if not column.get("name"):
        yield required_value(f"{path}.name")
    kind, known = column.get("type"), f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield required_value(f"{path}.type", known)
    elif kind not in _COLUMN_TYPES:
        yield invalid_value(f"{path}.type", kind, known)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid_value(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not column.get("jsonPath"):
        yield required_value(f"{path}.JSONPath")
    elif not column["jsonPath"].startswith("."):
        yield invalid_value(f"{path}.JSONPath", column["jsonPath"], "must be a simple json path starting with .")


def _names_faults(names: Object) -> Iterator[Cause]:
    for name in ("plural", "singular", "kind", "listKind"):
        word = str(names.get(name) or "")
        mixed = name in {"kind", "listKind"}
        if not word:
            yield required_value(f"spec.names.{name}")
        elif faults := label_1035_faults(word.lower() if mixed else word):
            detail = ",".join(faults)
            yield invalid_value(
                f"spec.names.{name}", word, f"may have mixed case, but should otherwise match: {detail}" if mixed else detail
            )
    for name in ("shortNames", "categories"):
        for index, word in enumerate(names.get(name, ())):
            if faults := label_1035_faults(word):
                yield invalid_value(f"spec.names.{name}[{index}]", word, ",".join(faults))
    if names.get("kind") and names["kind"] == names.get("listKind"):
        yield invalid_value("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _immutable_faults(spec: Object, before: Object) -> Iterator[Cause]:
    for path in (("scope",), ("names", "kind"), ("group",), ("names", "plural")):
        new: Any = at_path(spec, *path)
        if at_path(before, *path) != new:
            yield invalid_value("spec." + ".".join(path), new, "field is immutable")
