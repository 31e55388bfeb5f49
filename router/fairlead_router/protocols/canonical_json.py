"""Encodes a decoded JSON value for keys and hashes: equal values with the same order of fields have equal bytes."""

from __future__ import annotations

from typing import Any

import orjson


class NestsTooDeeply(ValueError):
    """An exception: the value is nested deeper than the 254 levels that `orjson` can encode. It can decode 1,024
    levels.
    """


def canonical_json(value: Any) -> bytes:
    """Return the JSON bytes of a decoded value. Its fields keep their order. Raises NestsTooDeeply."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # of what was decoded from JSON nothing else cannot be written
        raise NestsTooDeeply from None
