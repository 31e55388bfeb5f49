"""The basic operations on API objects: their type, and how they are copied, encoded and given a time."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from processkube.json_documents import nests_deeper

Object = dict[str, Any]
"""One JSON object as decoded from the wire."""

Clock = Callable[[], datetime]
"""A function that returns the current moment as a datetime with the time zone UTC."""

DEEPEST = 128
"""Maximum nesting of an object. A real server accepts 10,000 levels, but this server's functions that walk through
objects are recursive.
"""

_LONG_NUMBER = re.compile(rb"\d{19}")
"""Matches the digits without which a body cannot hold an integer beyond 64 bits."""

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH, _GENERATED_LENGTH = 5, 63


def utc_now() -> datetime:
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """Format a moment in RFC 3339 with whole seconds, as `metav1.Time` prints it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """Parse an RFC 3339 time, also with fractions and offsets: the inverse of `timestamp`. Raises ValueError for any
    other text.
    """
    # A time without its zone is not a moment. Newer Pythons read hour 24 as the next day; RFC 3339, section 5.6, has
    # none.
    if not _RFC_3339.fullmatch(text) or text[11:13] == "24":
        raise ValueError(f"{text!r} is not a time of RFC 3339")
    return datetime.fromisoformat(text)


def encode(value: Any) -> bytes:
    return orjson.dumps(value)


def decode(body: bytes | str) -> Any:
    """Decode JSON. Raises ValueError (orjson.JSONDecodeError is one) when it is malformed, or deeper than DEEPEST."""
    content = body if isinstance(body, bytes) else body.encode()
    if nests_deeper(content, DEEPEST):
        raise ValueError("exceeded max depth")
    value = orjson.loads(content)
    long = _LONG_NUMBER.search(content)
    return with_64_bit_integers(value) if long else value


def with_64_bit_integers(value: Any) -> Any:
    """Return the value with every integer beyond 64 bits as a float, which is how Kubernetes decodes it.

    Raises ValueError for an integer that is beyond every float.
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
    """Return a deep copy; for JSON data, encoding and decoding is several times faster than copy.deepcopy."""
    return orjson.loads(orjson.dumps(value))


def canonical(value: Any) -> str:
    """Return a text that is the same for equal JSON values, whatever the order of their keys, for use as a dictionary
    key.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def metadata_of(item: Object) -> Object:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def at_path(value: Any, *names: str, default: Any = None) -> Any:
    """Return the value at these nested keys, or the default if one is missing: `at_path(pod, "status", "phase")`."""
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return default
        value = value[name]
    return value


def generated_name(prefix: str, randomness: random.Random) -> str:
    """Return the name for a `generateName`: at most 63 characters, the last of them random.

    The random characters include no vowels and no 0, 1 and 3, so that they never spell a word.
    """
    suffix = "".join(randomness.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return prefix[: _GENERATED_LENGTH - _SUFFIX_LENGTH] + suffix
