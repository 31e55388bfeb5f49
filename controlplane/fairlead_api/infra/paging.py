"""Keyset paging: stable under inserts and cheap at any depth; and queries that other queries use as a source, such as a
search among the newest thousands of rows.
"""

import base64
import binascii
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, FromClause, Select, func, literal, literal_column, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.errors import InvalidInput
from fairlead.instants import read_instant
from fairlead_client.resources.pages import Page
from fairlead_process.json_documents import decode_json

NAME = "searched"


class Columns:
    """The columns of the rows, as attributes or by name."""

    def __init__(self, named: Mapping[str, ColumnElement[Any]]) -> None:
        self._named = named

    def __getitem__(self, name: str) -> ColumnElement[Any]:
        return self._named[name]

    def __getattr__(self, name: str) -> ColumnElement[Any]:
        try:
            return self._named[name]
        except KeyError:
            raise AttributeError(name) from None


class RowsWithin:
    """The rows of `query`, which must name each of its columns, as the source of another query; `c` has the columns.

    The rows of a `lateral` query may depend on those of a source before it.
    """

    def __init__(self, query: "Select[Any]", *, lateral: bool = False) -> None:
        named = {str(one.key): literal_column(f"{NAME}.{one.key}", one.type) for one in query.selected_columns}
        self._every = [column.label(name) for name, column in named.items()]
        self.source = query.lateral(NAME) if lateral else query.subquery(NAME)
        self.c = Columns(named)

    def select(self, *columns: "ColumnElement[Any]", beside: FromClause | None = None) -> "Select[Any]":
        """A query for these columns of the rows; without any, for all. `beside` is a join of the rows with others."""
        return select(*(columns or self._every)).select_from(self.source if beside is None else beside)


_values = msgspec.json.Decoder()

Item = TypeVar("Item")
COUNTED = 1_000
"""Totals are exact up to this number."""

SEARCHED = 5_000
"""Maximum number of rows that one page reads to test conditions that no index serves."""

Test = Callable[[Any], ColumnElement[bool]]
"""A condition on columns, which are attributes of the argument."""


def encode_cursor(values: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(list(values))).decode().rstrip("=")


def decode_cursor(cursor: str, columns: Sequence[Any]) -> tuple[Any, ...]:
    """The position that a cursor holds. Raises InvalidInput for a cursor that was not made here."""
    try:
        values = decode_json(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), _values)
        if not isinstance(values, list) or len(values) != len(columns):
            raise ValueError("another list's cursor")
        return tuple(_restored(value, column) for value, column in zip(values, columns, strict=True))
    except (ValueError, TypeError, binascii.Error, msgspec.MsgspecError) as error:
        raise InvalidInput("cursor", cursor, "use next_cursor of the page before, or leave it out") from error


def _restored(value: Any, column: Any) -> Any:
    kind = column.type.python_type
    if kind is datetime:
        return read_instant(value)
    if not isinstance(value, kind):
        raise TypeError("another list's cursor")
    return value


async def page(
    connection: AsyncConnection,
    query: Select[Any],
    keys: Sequence[Any],
    build: Callable[[Any], Item],
    *,
    also: Sequence[Test] = (),
    cursor: str | None,
    limit: int,
    descending: bool = True,
    reverse: bool = False,
) -> Page[Item]:
    """One page of `query` ordered by `keys` (all in one direction, together unique, all among the selected columns);
    `reverse` turns that direction around, which the same index serves.

    An index must serve the conditions of `query` together with the order. Conditions that no index serves go into
    `also`: they are tests of the selected columns, applied to the next SEARCHED rows only. The cursor continues after
    the last row read, so a page may hold fewer than `limit` rows, or none, without being the last.
    """
    descending = descending != reverse
    order = [key.desc() if descending else key.asc() for key in keys]
    position = None
    if cursor is not None:
        found = tuple_(*(literal(value, key.type) for key, value in zip(keys, decode_cursor(cursor, keys), strict=True)))
        position = tuple_(*keys) < found if descending else tuple_(*keys) > found
    following = (query if position is None else query.where(position)).order_by(*order)
    edge = None
    if not also:
        rows = (await connection.execute(following.limit(limit + 1))).all()
        # by the first key alone, which the index of the conditions has: then rows need not be read to be counted
        some = query.with_only_columns(keys[0]).order_by(order[0]).limit(COUNTED + 1)
        counted = (await connection.execute(select(func.count()).select_from(some.subquery()))).scalar_one()
        exact = counted <= COUNTED
    else:
        # first where the page ends: rows that come between the two statements then neither repeat nor are passed over
        edge = (await connection.execute(following.with_only_columns(*keys).offset(SEARCHED - 1).limit(1))).one_or_none()
        if edge is not None:
            end = tuple_(*(literal(value, key.type) for value, key in zip(edge, keys, strict=True)))
            following = following.where(tuple_(*keys) >= end if descending else tuple_(*keys) <= end)
        searched = RowsWithin(following.limit(2 * SEARCHED))  # the index serves an order that is limited
        sought = searched.select().where(*(test(searched.c) for test in also))
        names = [searched.c[key.key] for key in keys]
        rows = (await connection.execute(sought.order_by(*(n.desc() if descending else n.asc() for n in names)).limit(limit + 1))).all()
        first = RowsWithin(query.order_by(*order).limit(SEARCHED))
        matching = func.count().filter(*(test(first.c) for test in also))
        counted, seen = (await connection.execute(first.select(matching, func.count()))).one()
        exact = seen < SEARCHED and counted <= COUNTED
    last = rows[limit - 1] if len(rows) > limit else edge
    return Page(
        items=[build(row) for row in rows[:limit]],
        next_cursor=None if last is None else encode_cursor([getattr(last, key.key) for key in keys]),
        total=counted if exact else None,
        total_at_least=None if exact else min(counted, COUNTED),
    )


async def every(fetch: Callable[[str | None], Any]) -> AsyncIterator[Any]:
    """All items of a paged list, read page by page; `fetch` takes a cursor."""
    cursor: str | None = None
    while True:
        found: Page[Any] = await fetch(cursor)
        for item in found.items:
            yield item
        cursor = found.next_cursor
        if cursor is None:
            return
