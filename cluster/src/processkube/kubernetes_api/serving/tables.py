"""Responses in the form of a Table, which `kubectl get` prints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from processkube.kubernetes_api.kinds.kinds import PrinterColumn, ResourceKind
from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.serving import json_paths
from processkube.kubernetes_api.serving.ages import age_since
from processkube.kubernetes_api.serving.builtin_columns import BUILTIN_COLUMNS

_NAME = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name must be unique within a namespace. Is required when creating resources, although some resources "
    "may allow a client to request the generation of an appropriate name automatically.",
    "priority": 0,
}
_AGE = {"name": "Age", "type": "date", "format": "", "description": "Time since creation.", "priority": 0}


def table(kind: ResourceKind, items: Iterable[Object], *, version: str, include: str, now: datetime) -> Object:
    """Return a `meta.k8s.io/v1` Table. Each row describes an object. `include` says which part of the object the row
    contains: None, Metadata or Object.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": column_definitions(kind),
        "rows": [{"cells": cells(kind, item, now), "object": _carried(item, include)} for item in items],
    }


def column_definitions(kind: ResourceKind) -> list[Object]:
    if not kind.custom:
        columns = BUILTIN_COLUMNS.get(kind.kind)
        if columns is None:
            return [_NAME, _AGE]
        return [_NAME] + [
            {"name": column.name, "type": column.type, "format": "", "description": "", "priority": column.priority} for column in columns
        ]
    if not kind.columns:
        return [_NAME, _AGE]
    return [_NAME] + [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description or f"Custom resource definition column (in JSONPath format): {column.json_path}",
            "priority": column.priority,
        }
        for column in kind.columns
    ]


def cells(kind: ResourceKind, item: Object, now: datetime) -> list[Any]:
    name = item["metadata"].get("name", "")
    if kind.custom and kind.columns:
        return [name] + [_custom_cell(column, item, now) for column in kind.columns]
    columns = None if kind.custom else BUILTIN_COLUMNS.get(kind.kind)
    if columns is None:
        return [name, age_since(item["metadata"].get("creationTimestamp"), now)]
    return [name] + [column.cell(item, now) for column in columns]


def _custom_cell(column: PrinterColumn, item: Object, now: datetime) -> Any:
    found = json_paths.find(item, column.json_path)
    value = found[0] if found else None
    if value is None:
        return None if column.type != "date" else "<unknown>"
    if column.type == "date":
        return age_since(str(value), now)
    if column.type == "string":
        return ",".join(map(_text, found)) if len(found) > 1 else _text(value)
    if column.type == "integer" and isinstance(value, float):
        return int(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + " ".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_text(inner)}" for key, inner in sorted(value.items())) + "]"
    return str(value)


def _carried(item: Object, include: str) -> Object | None:
    match include:
        case "None":
            return None
        case "Object":
            return item
    return partial_metadata(item)


def partial_metadata(item: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
