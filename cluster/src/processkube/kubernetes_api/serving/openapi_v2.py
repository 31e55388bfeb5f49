"""The OpenAPI v2 document of all kinds, made from their v3 documents. It is available only as JSON.

A request that accepts only Protobuf is refused. Its client then requests v3. As in the real server
(apiextensions-apiserver's controller/openapi/v2), everything that v2 cannot express is left out of the schemas of
custom resources.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from processkube.kubernetes_api.objects.objects import Object
from processkube.kubernetes_api.schemas.builtin import REFERENCE
from processkube.kubernetes_api.schemas.schemas import PRESERVE

_JUNCTORS = frozenset({"allOf", "anyOf", "oneOf", "not"})
_OBJECT_ONLY = ("properties", "items")
_V2_REFERENCE = "#/definitions/"


def merged(documents: Iterable[Object]) -> Object:
    """Return one v2 document with the content of many v3 documents."""
    paths: Object = {}
    definitions: Object = {}
    for document in documents:
        paths |= {path: _path(operations) for path, operations in document["paths"].items()}
        definitions |= {name: _schema(schema) for name, schema in document["components"]["schemas"].items()}
    info = {"title": "Kubernetes", "version": "unversioned"}
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}


def _path(operations: Object) -> Object:
    return {method: _operation(operation) for method, operation in operations.items()}


def _operation(operation: Object) -> Object:
    found = {name: value for name, value in operation.items() if name not in {"requestBody", "responses", "parameters"}}
    parameters = [_parameter(one) for one in operation.get("parameters", ())]
    if (body := operation.get("requestBody")) is not None:
        content = body["content"]
        found["consumes"] = list(content)
        schema = next(iter(content.values()))["schema"]
        parameters.append({"name": "body", "in": "body", "required": True, "schema": _schema(schema)})
    if parameters:
        found["parameters"] = parameters
    found["produces"] = ["application/json"]
    found["responses"] = {code: _response(response) for code, response in operation["responses"].items()}
    return found


def _parameter(parameter: Object) -> Object:
    plain = {name: value for name, value in parameter.items() if name != "schema"}
    return {**plain, **parameter["schema"]}


def _response(response: Object) -> Object:
    content = response.get("content", {})
    schema = next((one["schema"] for one in content.values()), None)
    return {"description": response["description"], **({} if schema is None else {"schema": _schema(schema)})}


def _schema(schema: Any) -> Any:
    """Return a v3 schema as a v2 schema. If `allOf` contains only a reference (beside a description), the schema
    becomes this reference.
    """
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace(REFERENCE, _V2_REFERENCE)}
    whole = schema.get("allOf", ())
    if len(whole) == 1 and "$ref" in whole[0]:
        return {**_schema(whole[0]), **{name: value for name, value in schema.items() if name == "description"}}
    found = {name: value for name, value in schema.items() if name not in _JUNCTORS and name != "nullable"}
    untyped = bool(schema.get("nullable")) or bool(schema.get(PRESERVE))
    if untyped:
        for name in (*_OBJECT_ONLY, "type"):
            found.pop(name, None)
    if "properties" in found:
        found["properties"] = {name: _schema(inner) for name, inner in found["properties"].items()}
    for name in ("items", "additionalProperties"):
        if name in found:
            found[name] = _schema(found[name])
    return found
