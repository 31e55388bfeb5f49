"""Writes a client's JSON value again, for keys and hashes: always the same bytes for the same value."""

from __future__ import annotations

from typing import Any

import orjson


class NestsTooDeeply(ValueError):
    """The value nests deeper than `orjson` writes, which is 254 levels; it reads 1,024."""


def canonical_json(value: Any) -> bytes:
    """A decoded JSON value as bytes, its fields in their own order. Raises NestsTooDeeply."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # of what was decoded from JSON nothing else cannot be written
        raise NestsTooDeeply from None
