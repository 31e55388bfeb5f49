"""The OpenAPI v3 structural schema, as Kubernetes reads it, of a class whose fields were made by `shapes`."""

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from fairlead.schemas.shapes import Rule, Shape, document_name, shape_of
from fairlead.schemas.writing import written


def structural_schema(of: type[Any], description: str | None = None) -> dict[str, Any]:
    """Return the schema of a class, with defaults, bounds and CEL rules."""
    schema: dict[str, Any] = {"type": "object"}
    if description:
        schema["description"] = description
    schema["properties"] = {document_name(item): _schema_of(shape_of(item)) for item in fields(of)}
    required = [document_name(item) for item in fields(of) if shape_of(item).default is MISSING]
    if required:
        schema["required"] = required
    _add_rules(schema, getattr(of, "RULES", ()))
    return schema


def _schema_of(shape: Shape) -> dict[str, Any]:
    if shape.kind == "object" and shape.of is not None:
        schema = structural_schema(shape.of, shape.description)
    elif shape.kind == "list" and shape.of is not None:
        schema = _list_schema(shape, shape.of)
    elif shape.kind == "free":
        schema = {"type": "object", "description": shape.description, "x-kubernetes-preserve-unknown-fields": True}
    elif shape.kind == "verbatim":
        schema = {"description": shape.description, **(shape.schema or {})}
    elif shape.kind == "labels":
        one = {"type": "string", "pattern": shape.pattern, "maxLength": shape.max_length}
        schema = {"type": "object", "description": shape.description, "maxProperties": shape.max_items, "additionalProperties": one}
    elif shape.kind == "texts":
        item = {"type": "string", "pattern": shape.pattern, "maxLength": shape.max_length}
        schema = {"type": "array", "description": shape.description, "maxItems": shape.max_items, "items": item}
    else:
        schema = _scalar_schema(shape)
    if shape.kind == "list" and shape.default:
        # Kubernetes checks a default before it fills in the defaults nested in it, so every nested default is written
        # out.
        schema["default"] = [written(item) for item in shape.default]
    elif shape.default is not MISSING and shape.default is not None and shape.default != ():
        schema["default"] = shape.default
    _add_rules(schema, (*_rules_of_bounds(shape), *shape.rules))
    return schema


def _list_schema(shape: Shape, of: type[Any]) -> dict[str, Any]:
    return {
        "type": "array",
        "description": shape.description,
        **({"minItems": shape.min_items} if shape.min_items else {}),
        "maxItems": shape.max_items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [shape.list_key],
        "items": structural_schema(of),
    }


def _scalar_schema(shape: Shape) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string" if shape.kind == "duration" else shape.kind, "description": shape.description}
    if shape.kind != "duration":
        schema |= {key: value for key, value in (("minimum", shape.minimum), ("maximum", shape.maximum)) if value is not None}
    if shape.pattern:
        schema["pattern"] = shape.pattern
    if shape.enum:
        schema["enum"] = list(shape.enum)
    if shape.max_length:
        schema["maxLength"] = shape.max_length
    return schema


def _rules_of_bounds(shape: Shape) -> tuple[Rule, ...]:
    """Return bounds as CEL rules, for cases in which an OpenAPI bound is not enough.

    Kubernetes truncates a bound to a whole number before it compares the bound with a whole number. So 0 would satisfy
    a minimum of 0.01.
    """
    if shape.kind != "number" or shape.minimum is None or shape.minimum == int(shape.minimum):
        return ()
    return (Rule(cel=f"self >= {shape.minimum}", message=f"write {shape.wanted}"),)


def _add_rules(schema: dict[str, Any], rules: Sequence[Rule]) -> None:
    if rules:
        schema["x-kubernetes-validations"] = [{"rule": rule.cel, "message": rule.message} for rule in rules]
