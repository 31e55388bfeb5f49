"""Reads `builtin_schemas.json` and resolves its references, once per process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from processkube.kubernetes_api.objects.objects import Object, decode

REFERENCE = "#/components/schemas/"
_SOURCE = Path(__file__).with_name("builtin_schemas.json")


@cache
def definitions() -> dict[str, Object]:
    """Return the schemas by definition name, with references, as OpenAPI publishes them. They must not be changed."""
    loaded: dict[str, Object] = decode(_SOURCE.read_bytes())
    return loaded


@cache
def resolved(name: str) -> Object:
    """Return the schema of one definition, with every reference replaced by its target. It must not be changed, because
    schemas share parts.
    """
    schema = _resolve(definitions()[name])
    assert isinstance(schema, dict)
    return schema


def _resolve(node: Any) -> Any:
    if isinstance(node, list):
        return [_resolve(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return resolved(str(node["$ref"]).removeprefix(REFERENCE))
    if "allOf" in node and len(node["allOf"]) == 1:
        rest = {key: value for key, value in node.items() if key != "allOf"}
        return {**_resolve(node["allOf"][0]), **rest}
    return {key: (_resolve(value) if key not in {"required", "default"} else value) for key, value in node.items()}
