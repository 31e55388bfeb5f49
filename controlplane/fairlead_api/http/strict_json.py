"""JSON of request bodies, read strictly: what could not be stored, or would be read in two ways, is refused by name."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead.errors import InvalidInput
from fairlead_api.http.bodies import MalformedBody
from fairlead_process.json_documents import nests_deeper, not_utf8, too_deep

LARGEST_WHOLE = 2**63
"""Whole numbers must be smaller, without their sign: Postgres and most clients have no larger ones."""

_DIGITS = len(str(LARGEST_WHOLE))
_TOO_LARGE = float("inf")


class _Refused(Exception):
    """Ends the parsing; carries what is wrong."""


def check_json(content: bytes) -> None:
    """Refuses a body that a handler might not survive.

    Raises MalformedBody for what is not JSON in UTF-8, says a name twice in one object or nests deeper than DEEPEST;
    InvalidInput, with the field, for half characters, NUL characters and numbers that are too large.
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
    """Parses numbers; one that is too large becomes infinite, to be found again with its field."""

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
        raise _Refused(f"the name {printable(twice)!r} is there twice in one object")
    return found


def _constant(text: str) -> Any:
    raise _Refused(f"{text} is no JSON number")


def _fault(content: bytes) -> str:
    """What is wrong with JSON. Python's own words and places differ by version: msgspec's do not."""
    try:
        msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        return str(error).removeprefix("JSON is malformed: ")
    return "it cannot be read"


def _values(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every name and every value that holds no others, with its path."""
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
            raise InvalidInput(field, printable(value), "remove the lone surrogate (\\ud800 to \\udfff): it is half a character")
        if "\0" in value:
            raise InvalidInput(field, None, "remove the NUL character (\\u0000): Postgres cannot store it")


def printable(text: str) -> str:
    """The text without half characters, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
