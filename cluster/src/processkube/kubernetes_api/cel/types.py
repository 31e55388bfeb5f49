"""The types that rules see: a structural schema as CEL declares it, with the maximum sizes of its data.

A cost estimate multiplies these sizes. If a schema sets no limit, the limit is the size of the largest request (3 MiB)
divided by the size of the smallest item. The module follows k8s.io/apiserver/pkg/cel/common/schemas.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.schemas.schemas import EMBEDDED, INT_OR_STRING, item_schema

LARGEST_REQUEST_BYTES = 3 * 1024 * 1024

_BYTES_PER_CHARACTER = 4  # a schema counts characters, and a request counts bytes
_RESERVED = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"}
    | {"let", "loop", "package", "namespace", "return"}
)
_SPELLINGS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CelType:
    """A type of CEL.

    `kind` is CEL's name of the type; `dyn` if the type is known only during evaluation, and `unknown` if this server
    cannot determine it. `max_elements` is the maximum length of texts, lists and maps (0 for other types). `min_bytes`
    is the size of the type's smallest value in JSON.
    """

    kind: str
    element: CelType | None = None
    fields: Mapping[str, CelType] = field(default_factory=dict)
    max_elements: int = 0
    min_bytes: int = 1

    def __str__(self) -> str:
        match self.kind:
            case "list":
                return f"list({self.element})"
            case "map":
                return f"map(string, {self.element})"
        return self.kind


UNKNOWN = CelType(kind="unknown")
DYN = CelType(kind="dyn")
NULL = CelType(kind="null")
BOOL = CelType(kind="bool", min_bytes=4)
INT = CelType(kind="int")
UINT = CelType(kind="uint")
DOUBLE = CelType(kind="double")
STRING = CelType(kind="string", min_bytes=2)
BYTES = CelType(kind="bytes", min_bytes=2)
DURATION = CelType(kind="duration")
TIMESTAMP = CelType(kind="timestamp")

SCALARS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})


def list_of(element: CelType) -> CelType:
    """Return the type of a list that an expression makes. No schema limits the size of such a list."""
    return CelType(kind="list", element=element, min_bytes=2)


def declared_type(schema: Object, *, root: bool = False) -> CelType | None:
    """Return the type of the data under a schema; None if rules cannot see the data.

    If `root`, the type also has apiVersion, kind and the object's name.
    """
    if schema.get(INT_OR_STRING):
        return CelType(kind="dyn", max_elements=_longest_text(schema), min_bytes=1)
    if root or schema.get(EMBEDDED):
        schema = _with_identity(schema)
    match schema.get("type"):
        case "array":
            return _list_type(schema)
        case "object":
            return _map_type(schema) if isinstance(schema.get("additionalProperties"), dict) else _object_type(schema)
        case "string":
            return _text_type(schema)
        case "boolean":
            return BOOL
        case "number":
            return DOUBLE
        case "integer":
            return INT
    return None


def escaped_name(name: str) -> str | None:
    """Return a field's name as rules must spell it; None if rules cannot spell it."""
    if not name or name[0].isdigit():
        return None
    if name in _RESERVED:
        return f"__{name}__"
    escaped = re.sub(r"__|[.\-/]", lambda found: _SPELLINGS[found.group()], name)
    return escaped if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", escaped) else None


def _with_identity(schema: Object) -> Object:
    text = {"type": "string"}
    metadata = {"type": "object", "properties": {"name": text, "generateName": text}}
    return {**schema, "properties": {**schema.get("properties", {}), "apiVersion": text, "kind": text, "metadata": metadata}}


def _list_type(schema: Object) -> CelType | None:
    items = item_schema(schema)
    element = None if items is None else declared_type(items)
    if element is None:
        return None
    most = schema["maxItems"] if "maxItems" in schema else (LARGEST_REQUEST_BYTES - 2) // (element.min_bytes + 1)
    return CelType(kind="list", element=element, max_elements=max(0, most), min_bytes=2)


def _map_type(schema: Object) -> CelType | None:
    element = declared_type(schema["additionalProperties"])
    if element is None:
        return None
    most = schema["maxProperties"] if "maxProperties" in schema else (LARGEST_REQUEST_BYTES - 2) // (element.min_bytes + 6)
    return CelType(kind="map", element=element, max_elements=max(0, most), min_bytes=2)


def _object_type(schema: Object) -> CelType:
    fields: dict[str, CelType] = {}
    required = frozenset(schema.get("required", ()))
    least = 2
    for name, inner in schema.get("properties", {}).items():
        member = declared_type(inner)
        if member is None:
            continue
        if (spelled := escaped_name(name)) is not None:
            fields[spelled] = member
        if name in required and "default" not in inner:
            least += len(name) + member.min_bytes + 4
    return CelType(kind="object", fields=fields, min_bytes=least)


def _text_type(schema: Object) -> CelType:
    match schema.get("format"):
        case "byte":
            most = schema["maxLength"] if "maxLength" in schema else LARGEST_REQUEST_BYTES - 2
            return CelType(kind="bytes", max_elements=max(0, most), min_bytes=2)
        case "duration":
            return CelType(kind="duration", max_elements=32, min_bytes=3)
        case "date":
            return CelType(kind="timestamp", max_elements=12, min_bytes=12)
        case "date-time":
            return CelType(kind="timestamp", max_elements=32, min_bytes=21)
    if "maxLength" not in schema and (words := schema.get("enum")):
        return CelType(
            kind="string", max_elements=max((len(word.encode()) for word in words if isinstance(word, str)), default=0), min_bytes=2
        )
    return CelType(kind="string", max_elements=_longest_text(schema), min_bytes=2)


def _longest_text(schema: Object) -> int:
    if "maxLength" in schema:
        return max(0, int(schema["maxLength"])) * _BYTES_PER_CHARACTER
    return LARGEST_REQUEST_BYTES - 2
