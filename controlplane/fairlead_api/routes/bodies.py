"""Request bodies of people: a field we do not know is an error, not something to ignore."""

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
    """A dependency that raises InvalidInput for top-level names `body` (a dataclass) does not have and for texts that
    are no text, MalformedBody for nesting no body of ours has.
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
    """A text without lone surrogates, which cannot be written in UTF-8; anything else as it is."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def described(kind: type[Any], *, several: bool = False) -> dict[str, Any]:
    """The OpenAPI request body of an endpoint that decodes by itself (one, or `several` in a list too);
    `with_definitions` adds the types.
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
