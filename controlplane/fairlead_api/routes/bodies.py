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
    """A dependency that refuses unknown fields in a request's body.

    It raises InvalidInput for top-level names that `body` (a dataclass) does not have and for strings that are not
    valid text, and MalformedBody for nesting deeper than any of our bodies has.
    """
    names = [field.name for field in dataclasses.fields(body)]

    async def dependency(request: Request) -> None:
        try:
            document = json.loads(await request.body())
        except ValueError:
            return  # malformed JSON is reported by the body's own validation
        except RecursionError:
            raise MalformedBody("it is nested too deeply") from None
        for name in document if isinstance(document, dict) else ():
            if name not in names:
                raise InvalidInput(_shown(name), _shown(document[name]), f"remove it; known fields: {', '.join(names)}")
            if isinstance(document[name], str) and _shown(document[name]) != document[name]:
                raise InvalidInput(name, _shown(document[name]), "remove the lone surrogate (\\ud800 to \\udfff): it is half a character")

    return dependency


def _shown(value: Any) -> Any:
    """Text without lone surrogates, which UTF-8 cannot encode; any other value unchanged."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


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
