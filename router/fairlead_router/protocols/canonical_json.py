"""Writes a client's JSON value again, for keys and hashes: always the same bytes for the same value."""

from __future__ import annotations

from typing import Any

import orjson


class NestsTooDeeply(ValueError):
    """The value nests deeper than the 254 levels that `orjson` writes; it reads 1,024."""


def canonical_json(value: Any) -> bytes:
    """Return a decoded JSON value as bytes, with its fields in their own order. Raises NestsTooDeeply."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # of what was decoded from JSON nothing else cannot be written
        raise NestsTooDeeply from None
