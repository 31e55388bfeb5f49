"""Keyset paging: stable under inserts, cheap at any depth. A cursor is the opaque position after the last row of a page."""

import base64
import binascii
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Select, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.errors import InvalidInput
from fairlead_client.resources import Page

Item = TypeVar("Item")
COUNTED = 10_000
"""Totals are exact up to here."""


def encode_cursor(values: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(list(values))).decode().rstrip("=")


def decode_cursor(cursor: str, columns: Sequence[Any]) -> tuple[Any, ...]:
    """Raises InvalidInput for a cursor that was not made here."""
    try:
        values = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(values, list) or len(values) != len(columns):
            raise ValueError("another list's cursor")
        return tuple(_restored(value, column) for value, column in zip(values, columns, strict=True))
    except (ValueError, TypeError, binascii.Error, msgspec.MsgspecError) as error:
        raise InvalidInput("cursor", cursor, "use next_cursor of the page before, or leave it out") from error


def _restored(value: Any, column: Any) -> Any:
    kind = column.type.python_type
    if kind is datetime:
        return datetime.fromisoformat(value)
    if not isinstance(value, kind):
        raise TypeError("another list's cursor")
    return value


async def page(
    connection: AsyncConnection,
    query: Select[Any],
    keys: Sequence[Any],
    build: Callable[[Any], Item],
    *,
    cursor: str | None,
    limit: int,
    descending: bool = True,
) -> Page[Item]:
    """One page of `query` ordered by `keys` (all in one direction, together unique, all among the selected columns)."""
    ordered = query.order_by(*(key.desc() if descending else key.asc() for key in keys)).limit(limit + 1)
    if cursor is not None:
        position = tuple_(*(literal(value, key.type) for key, value in zip(keys, decode_cursor(cursor, keys), strict=True)))
        ordered = ordered.where(tuple_(*keys) < position if descending else tuple_(*keys) > position)
    rows = (await connection.execute(ordered)).all()
    counted = (await connection.execute(select(func.count()).select_from(query.limit(COUNTED + 1).subquery()))).scalar_one()
    more = len(rows) > limit
    rows = rows[:limit]
    following = encode_cursor([getattr(rows[-1], key.key) for key in keys]) if more else None
    return Page(items=[build(row) for row in rows], next_cursor=following, total=counted if counted <= COUNTED else None)


async def every(fetch: Callable[[str | None], Any]) -> AsyncIterator[Any]:
    """All items of a paged list, page by page; `fetch` takes a cursor."""
    cursor: str | None = None
    while True:
        found: Page[Any] = await fetch(cursor)
        for item in found.items:
            yield item
        cursor = found.next_cursor
        if cursor is None:
            return
