"""The requested span of a long list, and the pools whose rows the caller may see."""

from dataclasses import dataclass

Sight = frozenset[str] | None
"""The namespaces whose pools a caller may see; None = all namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of a list: at most `limit` rows after a cursor, of pools in `sight`. `reverse` reverses the order of the
    list. With `whole`, the list is read to its end, in an order that does not change during the reading.
    """

    cursor: str | None = None
    limit: int = 50
    reverse: bool = False
    sight: Sight = None
    whole: bool = False
