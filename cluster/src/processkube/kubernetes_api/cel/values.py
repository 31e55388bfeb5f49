"""Conversion of JSON values to the values that rules see."""

from __future__ import annotations

from typing import Any

from celpy import celtypes

from processkube.kubernetes_api.cel.types import escaped_name
from processkube.kubernetes_api.objects.objects import Object, parse_timestamp
from processkube.kubernetes_api.schemas.schemas import LIST_TYPE, child_schema, item_schema


def to_cel(value: Any, schema: Object | None) -> Any:
    """Return a JSON value as CEL sees it under its schema.

    Numbers, times and durations get CEL's types, and the names of fields are escaped.
    """
    schema = schema or {}
    if isinstance(value, dict):
        declared = schema.get("properties", {})
        return celtypes.MapType(
            {
                celtypes.StringType((escaped_name(name) or name) if name in declared else name): to_cel(member, child_schema(schema, name))
                for name, member in value.items()
            }
        )
    if isinstance(value, list):
        items = item_schema(schema)
        members = [to_cel(item, items) for item in value]
        if schema.get(LIST_TYPE) == "set":
            members.sort(key=str)
        return celtypes.ListType(members)
    if isinstance(value, bool):
        return celtypes.BoolType(value)
    if isinstance(value, int):
        return celtypes.DoubleType(value) if schema.get("type") == "number" else celtypes.IntType(value)
    if isinstance(value, float):
        return celtypes.IntType(int(value)) if schema.get("type") == "integer" else celtypes.DoubleType(value)
    if isinstance(value, str):
        return _text_to_cel(value, schema.get("format", ""))
    return value


def _text_to_cel(text: str, form: str) -> Any:
    try:
        match form:
            case "date-time":
                return celtypes.TimestampType(parse_timestamp(text))
            case "duration":
                return celtypes.DurationType(text)
    except ValueError:
        pass  # the text does not fit its format, which validation reports; rules see plain text
    return celtypes.StringType(text)
