"""Changes single fields of a JSON body, and leaves every other byte as the client wrote it.

Decoding and encoding the whole body would round integers beyond 64 bits, and keep only one of two fields with the same
name. So a field's value is replaced in place, and a new field is added at the end.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import orjson

_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)
_NAME = re.compile(rb"[\s,]*(" + _STRING + rb")\s*:\s*", re.DOTALL)
_SCALAR = re.compile(_STRING + rb"|[^\s,}]+", re.DOTALL)
_VALUES = msgspec.json.Decoder(dict[str, msgspec.Raw])


def edited(body: bytes, document: Mapping[str, Any], changes: Mapping[str, object]) -> bytes:
    """Return the body with the top-level fields `changes`. `document` is the decoded body, which must be an object.

    An existing field is replaced at each place at which it occurs. A new field is added at the end.
    """
    present = changes.keys() & document.keys()
    if present:
        body = _replaced(body, {name: orjson.dumps(changes[name]) for name in present})
    added = [b"%b:%b" % (orjson.dumps(name), orjson.dumps(value)) for name, value in changes.items() if name not in present]
    if not added:
        return body
    end = body.rindex(b"}")
    separator = b"," if document else b""
    return b"%b%b%b}" % (body[:end], separator, b",".join(added))


def without(body: bytes, names: Collection[str]) -> bytes:
    """Return the body without these top-level fields."""
    return b"{%b}" % b",".join(body[field.begins : field.end] for field in top_level_fields(body) if field.name not in names)


def _replaced(body: bytes, values: Mapping[str, bytes]) -> bytes:
    parts: list[bytes] = []
    copied = 0
    for field in top_level_fields(body):
        if field.name in values:
            parts += (body[copied : field.value], values[field.name])
            copied = field.end
    return b"".join((*parts, body[copied:]))


class Field(NamedTuple):
    """A field in the bytes of a JSON object. `begins`: the position of its name. `value`, `end`: the positions at which
    its value begins and ends.
    """

    name: str
    begins: int
    value: int
    end: int


def top_level_fields(body: bytes) -> list[Field]:
    """Return the fields of the body's top-level object, in order.

    The body must be JSON in UTF-8; `NaN` and `Infinity` are allowed as numbers.
    """
    return _by_lengths(body) or list(_by_tokens(body))


def _by_lengths(body: bytes) -> list[Field] | None:
    """Return the fields of a body, with positions computed from the lengths of the values that a fast decoder finds.
    None if this is not possible, for example because two fields have the same name.
    """
    try:
        values = _VALUES.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    found: list[Field] = []
    place = body.index(b"{") + 1
    for name, value in values.items():
        said, text = _NAME.match(body, place), bytes(value)
        if said is None or not body.startswith(text, said.end()):
            return None
        place = said.end() + len(text)
        found.append(Field(name, said.start(1), said.end(), place))
    return found if _NAME.match(body, place) is None else None


def _by_tokens(body: bytes) -> Iterator[Field]:
    place = body.index(b"{") + 1
    while (name := _NAME.match(body, place)) is not None:
        start = name.end()
        place = _end_of_value(body, start)
        yield Field(orjson.loads(name[1]), name.start(1), start, place)


def _end_of_value(body: bytes, start: int) -> int:
    if body[start] not in b"[{":
        scalar = _SCALAR.match(body, start)
        assert scalar is not None
        return scalar.end()
    depth = 0
    for token in _TOKEN.finditer(body, start):
        kind = body[token.start()]
        if kind in b"[{":
            depth += 1
        elif kind in b"]}":
            depth -= 1
            if not depth:
                return token.end()
    raise AssertionError("the body is not valid JSON")
