"""Pages of lists."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """One page of a list. `next_cursor` None = the last page; a page before it may hold fewer items than asked for, or
    none, when filters are combined that take long to look for. `total` is exact up to 1,000; beyond, or when not all
    was looked at, it is None and
    `total_at_least` says how many there are at least.
    """

    items: list[Item]
    next_cursor: str | None = None
    total: int | None = None
    total_at_least: int | None = None
