"""Decodes objects of built-in kinds as Go decodes JSON into structs.

It refuses wrong types, drops nulls and unknown members, turns quantities that are written as numbers into text, and
rewrites times in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any

from processkube.kubernetes_api.objects.errors import BadRequest
from processkube.kubernetes_api.objects.objects import Object, parse_timestamp
from processkube.kubernetes_api.schemas.schemas import INT_OR_STRING, PRESERVE, item_schema
from processkube.kubernetes_api.schemas.validation import type_name

_MICRO_TIMES = frozenset({"acquireTime", "eventTime", "lastObservedTime", "renewTime"})
"""The fields of the type `metav1.MicroTime`. Go accepts such a time only with exactly six digits after the point."""
_MICRO = re.compile(r".{19}[.,]\d{6}(Z|[+-]\d\d:\d\d)")
_GO_TYPES = {"integer": "int32", "boolean": "bool", "array": "[]", "object": "struct", "number": "float64"}


def decode_typed(value: Any, schema: Object, *, path: str, struct: str) -> tuple[Any, list[str]]:
    """Return the decoded value, and the paths of the unknown members that were dropped.

    Raises BadRequest, which names the first field of a wrong type.
    """
    unknown: list[str] = []
    return _decode(value, schema, path, struct, unknown), unknown


def _decode(value: Any, schema: Object, path: str, struct: str, unknown: list[str]) -> Any:
    wanted = schema.get("type")
    if schema.get(PRESERVE):
        return value
    if schema.get(INT_OR_STRING):
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise _refusal(value, path, struct, "intstr.IntOrString")
        return value
    if wanted == "string" and schema.get("format") == "quantity" and type_name(value) in {"integer", "number"}:
        return str(value)
    actual = type_name(value)
    if actual != wanted and not (wanted == "number" and actual == "integer"):
        if wanted == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
        raise _refusal(value, path, struct, _GO_TYPES.get(str(wanted), str(wanted)))
    if isinstance(value, str) and schema.get("format") == "date-time":
        return _time(value, path)
    if isinstance(value, dict):
        return _decode_object(value, schema, path, struct, unknown)
    if isinstance(value, list):
        items = item_schema(schema) or {}
        return [_decode(item, items, f"{path}[{index}]", struct, unknown) for index, item in enumerate(value)]
    return value


def _decode_object(value: Object, schema: Object, path: str, struct: str, unknown: list[str]) -> Object:
    properties = schema.get("properties")
    extra = schema.get("additionalProperties")
    decoded: Object = {}
    for name, member in value.items():
        inner = f"{path}.{name}" if path else name
        if properties is not None and name in properties:
            if member is not None:
                decoded[name] = _decode(member, properties[name], inner, struct, unknown)
        elif isinstance(extra, dict):
            decoded[name] = "" if member is None else _decode(member, extra, inner, struct, unknown)
        elif properties is None:
            decoded[name] = member
        else:
            unknown.append(inner)
    return decoded


def _time(value: str, path: str) -> str:
    is_micro = path.rpartition(".")[2] in _MICRO_TIMES
    try:
        if is_micro and not _MICRO.fullmatch(value):
            raise ValueError("the fraction of the second has not six digits")
        moment = parse_timestamp(value).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        layout = "2006-01-02T15:04:05.000000Z07:00" if is_micro else "2006-01-02T15:04:05Z07:00"
        raise BadRequest(f'{path}: parsing time "{value}" as "{layout}": it is written otherwise, or does not exist') from error
    return moment.isoformat(timespec="microseconds" if is_micro else "seconds").removesuffix("+00:00") + "Z"


def _refusal(value: Any, path: str, struct: str, wanted: str) -> BadRequest:
    actual = {"integer": "number", "boolean": "bool"}.get(type_name(value), type_name(value))
    return BadRequest(f"json: cannot unmarshal {actual} into Go struct field {struct}.{path} of type {wanted}")
