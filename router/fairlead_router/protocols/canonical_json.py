"""Encodes a decoded JSON value for keys and hashes: equal values always have equal bytes."""

from __future__ import annotations

from typing import Any

import orjson


class NestsTooDeeply(ValueError):
    """The value nests deeper than the 254 levels that `orjson` encodes; it decodes up to 1,024."""


def canonical_json(value: Any) -> bytes:
    """Return the bytes of a decoded JSON value; its fields keep their order. Raises NestsTooDeeply."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # of what was decoded from JSON nothing else cannot be written
        raise NestsTooDeeply from None
