"""OpenAPI documents, with which kubectl validates and explains objects and makes dry runs.

There is one v3 document for each group and version, and one v2 document for everything.
"""

from __future__ import annotations

import hashlib
from typing import Any

from processkube.kubernetes_api.kinds.kinds import CREATE_ONLY, OBJECT_META, ResourceKind
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.objects.objects import Object, encode
from processkube.kubernetes_api.schemas import builtin as builtin_schemas
from processkube.kubernetes_api.schemas.builtin import REFERENCE
from processkube.kubernetes_api.serving.openapi_v2 import merged

_V2 = "openapi/v2"
_GVK = "x-kubernetes-group-version-kind"
_WRITE_PARAMETERS = [
    {"name": name, "in": "query", "description": description, "schema": {"type": kind, "uniqueItems": True}}
    for name, kind, description in (
        ("dryRun", "string", "All: process the request without persisting it."),
        ("fieldManager", "string", "The name of the actor that is making these changes."),
        ("fieldValidation", "string", "Ignore, Warn or Strict: what happens to unknown fields."),
    )
]
_FORCE = {"name": "force", "in": "query", "description": "Take over fields other managers own.", "schema": {"type": "boolean"}}
_PATCH_TYPES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")


class OpenApi:
    """Builds OpenAPI documents when they are requested, and keeps them until a kind is added or removed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = -1
        self._documents: dict[str, bytes] = {}

    def index(self) -> Object:
        """Return the document `/openapi/v3`: the path of every v3 document, with a hash of its content."""
        paths = {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hashlib.sha256(self.document(path) or b'').hexdigest()}"}
            for path in map(_document_path, self._registry.versions())
        }
        return {"paths": paths}

    def second_version(self) -> bytes:
        """Return the encoded document `/openapi/v2`, which has all kinds."""
        self._forget_stale()
        if _V2 not in self._documents:
            self._documents[_V2] = encode(merged(_document(self._registry, *pair) for pair in self._registry.versions()))
        return self._documents[_V2]

    def _forget_stale(self) -> None:
        if self._generation != self._registry.generation:
            self._documents.clear()
            self._generation = self._registry.generation

    def document(self, path: str) -> bytes | None:
        """Return the encoded v3 document for `api/v1` or `apis/<group>/<version>`; None if nothing is served there."""
        self._forget_stale()
        if path not in self._documents:
            pair = next((pair for pair in self._registry.versions() if _document_path(pair) == path), None)
            if pair is None:
                return None
            self._documents[path] = encode(_document(self._registry, *pair))
        return self._documents[path]


def _document_path(pair: tuple[str, str]) -> str:
    return f"apis/{pair[0]}/{pair[1]}" if pair[0] else f"api/{pair[1]}"


def _document(registry: Registry, group: str, version: str) -> Object:
    paths: Object = {}
    schemas: Object = {}
    for kind in registry:
        if (kind.group, kind.version) == (group, version):
            name = _add_schema(kind, schemas)
            paths |= _paths(kind, name)
    return {
        "openapi": "3.0.0",
        "info": {"title": "processkube", "version": "v1.33.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _add_schema(kind: ResourceKind, schemas: Object) -> str:
    """Add a kind's schema and all schemas to which it refers. Return the schema's name."""
    identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    if not kind.custom:
        _add_definition(kind.definition, schemas)
        schemas[kind.definition] = {**schemas[kind.definition], _GVK: [identity]}
        return kind.definition
    _add_definition(OBJECT_META, schemas)
    described = builtin_schemas.definitions()["io.k8s.api.v1.Namespace"]["properties"]
    meta = {name: described[name] for name in ("apiVersion", "kind")}
    name = ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
    properties = {**meta, **kind.definition_schema.get("properties", {})}
    properties["metadata"] = {"allOf": [{"$ref": REFERENCE + OBJECT_META}], "description": "Standard object's metadata."}
    schemas[name] = {**kind.definition_schema, "properties": properties, _GVK: [identity]}
    return name


def _add_definition(name: str, schemas: Object) -> None:
    if name in schemas:
        return
    schemas[name] = builtin_schemas.definitions()[name]
    for reference in _references(schemas[name]):
        _add_definition(reference, schemas)


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [found for item in node for found in _references(item)]
    if not isinstance(node, dict):
        return []
    own = [str(node["$ref"]).removeprefix(REFERENCE)] if isinstance(node.get("$ref"), str) else []
    return own + [found for value in node.values() for found in _references(value)]


def _paths(kind: ResourceKind, schema: str) -> Object:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    item = f"{collection}/{{name}}"
    paths: Object = {collection: _operations(kind, schema, ("get", "post", "delete"))}
    if kind.verbs == CREATE_ONLY:
        return {collection: _operations(kind, schema, ("post",))}
    paths[item] = _operations(kind, schema, ("get", "put", "patch", "delete"))
    if kind.has_status:
        paths[f"{item}/status"] = _operations(kind, schema, ("get", "put", "patch"))
    return paths


def _operations(kind: ResourceKind, schema: str, methods: tuple[str, ...]) -> Object:
    identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    content = {"application/json": {"schema": {"$ref": REFERENCE + schema}}}
    operations: Object = {}
    for method in methods:
        operation: Object = {
            "tags": [f"{kind.group or 'core'}_{kind.version}"],
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": method,
            _GVK: identity,
        }
        if method in {"post", "put"}:
            operation["requestBody"] = {"content": content, "required": True}
        if method == "patch":
            patch = {"schema": {"type": "object"}}
            operation["requestBody"] = {"content": dict.fromkeys(_PATCH_TYPES, patch), "required": True}
        if method != "get":
            operation["parameters"] = _WRITE_PARAMETERS + ([_FORCE] if method == "patch" else [])
        operations[method] = operation
    return operations
