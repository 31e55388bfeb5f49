"""Refusals of the API, as RFC 9457 documents."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """RFC 9457 problem document. `field`, `value` and `remedy` are present when a person's input was wrong."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str | None = None
    field: str | None = None
    value: Any = None
    remedy: str | None = None
