"""Request bodies that people send: an unknown field is an error and is never ignored."""

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from pydantic import TypeAdapter

from fairlead.errors import InvalidInput


class MalformedBody(Exception):
    """The body is not JSON."""


def known_fields(body: type[Any]) -> Callable[[Request], Awaitable[None]]:
    """A dependency that refuses names in a request's body that `body` (a dataclass) does not have. Raises InvalidInput.

    What is no JSON, or cannot be stored, was refused before (`fairlead_api.http.strict_bodies`).
    """
    names = [field.name for field in dataclasses.fields(body)]

    async def dependency(request: Request) -> None:
        try:
            document = json.loads(await request.body())
        except ValueError:
            return  # an empty body is reported by the body's own validation
        for name in document if isinstance(document, dict) else ():
            if name not in names:
                raise InvalidInput(name, document[name], f"remove it; known fields: {', '.join(names)}")

    return dependency


def described(kind: type[Any], *, several: bool = False) -> dict[str, Any]:
    """The OpenAPI request body of an endpoint that decodes its body itself.

    The body is one object, or with `several` also a list of them. `with_definitions` adds the types.
    """
    one: dict[str, Any] = {"$ref": f"#/components/schemas/{kind.__name__}"}
    schema = {"anyOf": [one, {"type": "array", "items": one}]} if several else one
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def with_definitions(document: dict[str, Any], *kinds: type[Any]) -> dict[str, Any]:
    """The OpenAPI document with the schemas of `kinds`."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for kind in kinds:
        schema = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
        schemas.update({name: found for name, found in schema.pop("$defs", {}).items() if name not in schemas})
        schemas[kind.__name__] = schema
    return document


def described_answer(kind: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI responses of an endpoint whose answer is text of this media type."""
    return {200: {"content": {kind: {"schema": {"type": "string"}}}}}
