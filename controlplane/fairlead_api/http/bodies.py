"""Request bodies from people: JSON that is read strictly. Values that cannot be stored, duplicate names and unknown
fields are refused, and the error names them.
"""

import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from fastapi import Request
from pydantic import TypeAdapter

from fairlead.errors import InvalidInput
from fairlead_process.json_documents import nests_deeper, not_utf8, too_deep


class MalformedBody(Exception):
    """The body is not JSON."""


def known_fields(body: type[Any]) -> Callable[[Request], Awaitable[None]]:
    """Return a FastAPI dependency that refuses fields in a request's body that `body` (a dataclass) does not have.
    Raises InvalidInput.

    Invalid JSON and values that cannot be stored are refused earlier, by `fairlead_api.http.strictness`.
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
    """Return the OpenAPI request body of an endpoint that decodes its body itself: one object, or with `several` also a
    list of objects.

    The schema of `kind` must be added to the document by `with_definitions`.
    """
    one: dict[str, Any] = {"$ref": f"#/components/schemas/{kind.__name__}"}
    schema = {"anyOf": [one, {"type": "array", "items": one}]} if several else one
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def with_definitions(document: dict[str, Any], *kinds: type[Any]) -> dict[str, Any]:
    """Return the OpenAPI document with the schemas of `kinds` added."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for kind in kinds:
        schema = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
        schemas.update({name: found for name, found in schema.pop("$defs", {}).items() if name not in schemas})
        schemas[kind.__name__] = schema
    return document


def described_answer(kind: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of an endpoint that responds with text of the media type `kind`."""
    return {200: {"content": {kind: {"schema": {"type": "string"}}}}}


LARGEST_WHOLE = 2**63
"""The absolute value of an integer must be below this limit: Postgres and most clients do not support larger
numbers.
"""

_DIGITS = len(str(LARGEST_WHOLE))
_TOO_LARGE = float("inf")


class _Refused(Exception):
    """Ends the parsing of a body; carries the fault that was found."""


def check_json(content: bytes) -> None:
    """Refuse a body that could make a handler fail.

    Raises MalformedBody if the body is not JSON in UTF-8, repeats a name in one object or nests deeper than DEEPEST.
    Raises InvalidInput, with the field, for lone surrogates, NUL characters and numbers that are too large.
    """
    if nests_deeper(content):
        raise MalformedBody(too_deep())
    odd = _OddNumbers()
    try:
        document = json.loads(
            content.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant, parse_int=odd.whole, parse_float=odd.real
        )
    except UnicodeDecodeError as error:
        raise MalformedBody(not_utf8(error)) from None
    except _Refused as error:
        raise MalformedBody(str(error)) from None
    except ValueError:
        raise MalformedBody(_fault(content)) from None
    if odd.seen or b"\\u" in content:  # only an escape brings half a character or a NUL
        for path, value in _values(document):
            _check_value(path, value)


class _OddNumbers:
    """Parses the numbers of a JSON body. A number that is too large becomes infinity, so that a later step can name its
    field.
    """

    def __init__(self) -> None:
        self.seen = False

    def whole(self, text: str) -> float:
        value = int(text) if len(text) <= _DIGITS + 1 else LARGEST_WHOLE
        if -LARGEST_WHOLE < value < LARGEST_WHOLE:
            return value
        self.seen = True
        return _TOO_LARGE

    def real(self, text: str) -> float:
        value = float(text)
        self.seen = self.seen or abs(value) == _TOO_LARGE
        return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"the name {printable(twice)!r} appears twice in one object")
    return found


def _constant(text: str) -> Any:
    raise _Refused(f"{text} is not a JSON number")


def _fault(content: bytes) -> str:
    """Return a description of the fault in the JSON. The description is msgspec's, because the messages and positions
    of Python's own parser differ between Python versions.
    """
    try:
        msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        return str(error).removeprefix("JSON is malformed: ")
    return "it cannot be read"


def _values(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every name and every leaf value of a document, with its path."""
    if isinstance(document, dict):
        for name, value in document.items():
            inner = f"{path}.{name}" if path else name
            yield inner, name
            yield from _values(value, inner)
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from _values(value, f"{path}[{number}]")
    else:
        yield path, document


def _check_value(path: str, value: Any) -> None:
    field = printable(path) or "body"
    if isinstance(value, float) and abs(value) == _TOO_LARGE:
        raise InvalidInput(field, None, f"write a number smaller than {LARGEST_WHOLE:.2e}")
    if isinstance(value, str):
        if printable(value) != value:
            raise InvalidInput(field, printable(value), "remove the lone surrogate (\\ud800 to \\udfff): it is only half of a character")
        if "\0" in value:
            raise InvalidInput(field, None, "remove the NUL character (\\u0000): Postgres cannot store it")


def printable(text: str) -> str:
    """Return the text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
