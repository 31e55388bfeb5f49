"""Lists of the API that a page needs whole."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairlead_client.resources.pages import Page

Item = TypeVar("Item")

MOST_PER_CALL = 100
"""What the API gives in one answer."""


async def all_of(listed: Callable[[str | None], Awaitable[Page[Item]]], most: int) -> list[Item]:
    """The first `most` items of a list; `listed` asks for those from a cursor on. Raises ApiProblem."""
    found: list[Item] = []
    cursor: str | None = None
    while len(found) < most:
        page = await listed(cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return found[:most]
