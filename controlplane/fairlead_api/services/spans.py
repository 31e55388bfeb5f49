"""The requested part of a long list."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a list: from a cursor, at most `limit` rows."""

    cursor: str | None = None
    limit: int = 50
