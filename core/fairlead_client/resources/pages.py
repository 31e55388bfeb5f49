"""Pages of lists."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """One page of a list.

    `next_cursor` None = the last page. An earlier page may hold fewer items than requested, or none, when a combination
    of filters takes long to search. `total` is exact up to 1,000. Beyond that, or when not everything was searched, it
    is None and `total_at_least` is a lower bound.
    """

    items: list[Item]
    next_cursor: str | None = None
    total: int | None = None
    total_at_least: int | None = None
