"""The requested stretch of a long list, and the part of it that the caller may see."""

from dataclasses import dataclass

Sight = frozenset[str] | None
"""The namespaces whose pools a caller may see; None = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of a list: at most `limit` rows after a cursor, of pools in `sight`. `reverse` reverses the order of the
    list. A span of the `whole` list uses an order in which rows keep their place while the list is read to its end.
    """

    cursor: str | None = None
    limit: int = 50
    reverse: bool = False
    sight: Sight = None
    whole: bool = False
