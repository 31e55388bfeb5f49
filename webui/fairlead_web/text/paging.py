"""Reads lists of the API: completely, or up to a maximum. Also divides a complete list into pages, for a page that
orders or filters it in a way that the API cannot.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fairlead_client.resources.pages import Page

Item = TypeVar("Item")

MOST_PER_CALL = 100
"""Maximum number of items in one response of the API."""
MOST_POOLS = 200
"""Maximum number of pools that the frame of a page reads, and that a page about all pools reads. More pools would need
more than two calls of the API on every page.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken(Generic[Item]):
    """The first items of a list of the API. `cut` is True if there are more; `total` is the number of all items, None
    if unknown.
    """

    items: list[Item]
    cut: bool
    total: int | None

    def cut_words(self, noun: str) -> str:
        """Describe which part of the list was read, such as "the first 200 of 260 pools"; empty if it was read
        completely.
        """
        of = "" if self.total is None else f"of {self.total:,} "
        return f"the first {len(self.items):,} {of}{noun}" if self.cut else ""


async def first_of(listed: Callable[[str | None], Awaitable[Page[Item]]], most: int | None) -> Taken[Item]:
    """Return the first `most` items of a list, or all items (None). `listed` reads the page that begins at a cursor.
    Raises ApiProblem.
    """
    page = await listed(None)
    found = list(page.items)
    while page.next_cursor is not None and (most is None or len(found) < most):
        page = await listed(page.next_cursor)
        found += page.items
    cut = page.next_cursor is not None or (most is not None and len(found) > most)
    return Taken(items=found[:most], cut=cut, total=page.total)


def place_of(cursor: str | None) -> int:
    """Return the number of items before a page, from a cursor that `part_of` made; 0 for any other text, such as a
    cursor of the API.
    """
    return int(cursor) if cursor is not None and cursor.isdecimal() and len(cursor) < 10 else 0


def part_of(items: Sequence[Item], cursor: str | None, most: int) -> Page[Item]:
    """Return a page of a list that was read completely; the first page if the list has become shorter than the cursor's
    position.
    """
    place = place_of(cursor)
    before = place if place < len(items) else 0
    until = before + most
    return Page(items=list(items[before:until]), next_cursor=str(until) if until < len(items) else None, total=len(items))
