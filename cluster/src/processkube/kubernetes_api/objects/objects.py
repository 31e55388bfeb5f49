"""Basic operations on API objects: their type, and how they are copied, encoded and dated."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from processkube.json_documents import nests_deeper

Object = dict[str, Any]
"""A JSON object, as decoded from a request."""

Clock = Callable[[], datetime]
"""A function that returns the current time as a datetime in UTC."""

DEEPEST = 128
"""Maximum nesting of an object, in levels. A real server accepts 10,000 levels, but this server walks through objects
with recursive functions.
"""

_LONG_NUMBER = re.compile(rb"\d{19}")
"""A pattern for 19 consecutive digits. A body without them has no integer beyond 64 bits."""

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH, _GENERATED_LENGTH = 5, 63


def utc_now() -> datetime:
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """Return a time in RFC 3339 with whole seconds, as `metav1.Time` prints it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """Return the time that an RFC 3339 text stands for, also with fractions of seconds and an offset. Raises ValueError
    for any other text.
    """
    # A time without its zone is not a moment. Newer Pythons read hour 24 as the next day; RFC 3339, section 5.6, has
    # none.
    if not _RFC_3339.fullmatch(text) or text[11:13] == "24":
        raise ValueError(f"{text!r} is not a time of RFC 3339")
    return datetime.fromisoformat(text)


def encode(value: Any) -> bytes:
    return orjson.dumps(value)


def decode(body: bytes | str) -> Any:
    """Return the value of a JSON text. Raises ValueError if the text is malformed, or nests deeper than DEEPEST."""
    content = body if isinstance(body, bytes) else body.encode()
    if nests_deeper(content, DEEPEST):
        raise ValueError("exceeded max depth")
    value = orjson.loads(content)
    long = _LONG_NUMBER.search(content)
    return with_64_bit_integers(value) if long else value


def with_64_bit_integers(value: Any) -> Any:
    """Return the value with a float in place of every integer beyond 64 bits. Kubernetes, too, decodes such integers as
    floats.

    Raises ValueError for an integer that is too large for a float.
    """
    if isinstance(value, dict):
        return {name: with_64_bit_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_64_bit_integers(member) for member in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError("a number is out of range") from error
    return value


def copy_of(value: Any) -> Any:
    """Return a deep copy of JSON data. It is made by encoding and decoding, which is several times faster than
    copy.deepcopy.
    """
    return orjson.loads(orjson.dumps(value))


def canonical(value: Any) -> str:
    """Return a text for use as a dictionary key. Equal JSON values have the same text, even if the order of their keys
    differs.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def metadata_of(item: Object) -> Object:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def at_path(value: Any, *names: str, default: Any = None) -> Any:
    """Return the value at these nested keys, such as `at_path(pod, "status", "phase")`; the default if a key is
    missing.
    """
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return default
        value = value[name]
    return value


def generated_name(prefix: str, randomness: random.Random) -> str:
    """Return a name for a `generateName`. It has at most 63 characters, and the last ones are random.

    The random characters include no vowels and no 0, 1 and 3, so that they never spell a word.
    """
    suffix = "".join(randomness.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return prefix[: _GENERATED_LENGTH - _SUFFIX_LENGTH] + suffix
