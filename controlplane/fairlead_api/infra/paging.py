"""Keyset paging: stable under inserts and cheap at any depth. Also builds queries whose source is another query, for
example to search among the newest thousands of rows. Also has helpers of history lists: filters by an index, names of
pools, one row, the newest rows.
"""

import base64
import binascii
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, FromClause, Select, Table, func, literal, literal_column, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.errors import InvalidInput
from fairlead.instants import read_instant
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.pool_rows import PoolNames
from fairlead_api.infra.spans import Sight, Span
from fairlead_client.resources.pages import Page
from fairlead_process.json_documents import decode_json

NAME = "searched"


class Columns:
    """The columns of a query's rows, as attributes or by name."""

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
    """The rows of `query` as the source of another query; `c` holds the columns, and `query` must name each column.

    The rows of a `lateral` query may depend on earlier sources.
    """

    def __init__(self, query: "Select[Any]", *, lateral: bool = False) -> None:
        named = {str(one.key): literal_column(f"{NAME}.{one.key}", one.type) for one in query.selected_columns}
        self._every = [column.label(name) for name, column in named.items()]
        self.source = query.lateral(NAME) if lateral else query.subquery(NAME)
        self.c = Columns(named)

    def select(self, *columns: "ColumnElement[Any]", beside: FromClause | None = None) -> "Select[Any]":
        """Return a query for these columns of the rows, or for all columns if none are given. With `beside`, a join
        that contains these rows, the query reads from the join.
        """
        return select(*(columns or self._every)).select_from(self.source if beside is None else beside)


_values = msgspec.json.Decoder()

Item = TypeVar("Item")
COUNTED = 1_000
"""Totals are exact up to this number."""

SEARCHED = 5_000
"""Maximum number of rows that are read for one page to test conditions that have no index."""

Test = Callable[[Any], ColumnElement[bool]]
"""A condition on the columns of a row. The columns are attributes of the argument."""


def encode_cursor(values: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(list(values))).decode().rstrip("=")


def decode_cursor(cursor: str, columns: Sequence[Any]) -> tuple[Any, ...]:
    """Decode the position in a cursor. Raises InvalidInput for a cursor that this API did not create."""
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
    """Return one page of `query` ordered by `keys` (all in one direction, together unique, all among the selected
    columns); `reverse` reverses that direction, using the same index.

    An index must serve the conditions of `query` together with the order. Conditions without an index belong into
    `also`, which is tested on the next SEARCHED rows only. The cursor continues after the last row that was read.
    Therefore a page may have fewer than `limit` rows, or none, without being the last page.
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
    """Yield all items of a paged list, read page by page; `fetch` takes a cursor."""
    cursor: str | None = None
    while True:
        found: Page[Any] = await fetch(cursor)
        for item in found.items:
            yield item
        cursor = found.next_cursor
        if cursor is None:
            return


logger = logging.getLogger(__name__)


Build = Callable[[Any, str], Item]
"""A function that creates an item from a row and the name of the row's pool."""

Chosen = tuple[Select[Any], list[Test]]
"""Two inputs of `page`: a query that an index serves, and further tests on its rows."""

BUCKETS = 60
"""Number of buckets (bars or points) of timelines and sparklines."""

NO_POOL = -1
"""An id that belongs to no pool."""


class Lists:
    """Reads lists of rows that have a `pool_id`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._pools = PoolNames()

    async def pool_id(self, connection: AsyncConnection, pool: str | None) -> int | None:
        """Return the id of the pool; None if `pool` is None, NO_POOL if a pool of this name never existed. Raises
        InvalidInput for a name that is not namespace/name.
        """
        if pool is None:
            return None
        try:
            key = PoolKey.parse(pool)
        except ValueError as error:
            raise InvalidInput("pool", pool, "write namespace/name") from error
        found = await self._pools.id_of(connection, key)
        return NO_POOL if found is None else found

    async def names(self, connection: AsyncConnection, ids: Iterable[int]) -> dict[int, str]:
        """Return the names of pools as namespace/name, by id."""
        return await self._pools.names(connection, ids)

    async def page(
        self, connection: AsyncConnection, chosen: Chosen, keys: Sequence["ColumnElement[Any]"], build: Build[Item], span: Span
    ) -> Page[Item]:
        """Return a page of the list within `span`, newest first by `keys`."""
        query, also = await self.within(connection, chosen, span.sight)
        found = await page(connection, query, keys, _row, also=also, cursor=span.cursor, limit=span.limit, reverse=span.reverse)
        items = [item for _, item in await self._built(connection, found.items, build)]
        return Page(items=items, next_cursor=found.next_cursor, total=found.total, total_at_least=found.total_at_least)

    async def within(self, connection: AsyncConnection, chosen: Chosen, sight: Sight) -> Chosen:
        """Narrow a query to rows of pools that the caller may see. For a single visible pool the query uses an index;
        for several, each row is tested.
        """
        if sight is None:
            return chosen
        query, also = chosen
        pools = tables.pools
        ids = (await connection.execute(select(pools.c.id).where(pools.c.namespace.in_(sorted(sight))))).scalars().all()
        if len(ids) <= 1:
            return query.where(query.selected_columns.pool_id == (ids[0] if ids else NO_POOL)), also
        return query, [*also, lambda columns: columns.pool_id.in_(ids)]

    async def one(self, query: "Select[Any]", what: str, name: str, build: Build[Item]) -> Item:
        """Return the item made from the query's only row. Raises NotFound (with `what` as the kind) if there is no row,
        or if this version cannot read the row.
        """
        async with self.database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
            built = [] if row is None else await self._built(connection, [row], build)
        if not built:
            raise NotFound(what, name)
        return built[0][1]

    async def recent(
        self, table: Table, since: datetime, build: Build[Item], pool: str | None, sight: Sight, limit: int, *also: "ColumnElement[bool]"
    ) -> list[tuple[datetime, Item]]:
        """Return the newest visible rows recorded after `since`, oldest first, each with the time at which its report
        was stored.
        """
        query = select(table).where(table.c.recorded_at > since, *also)
        async with self.database.reading() as connection:
            chosen = narrowed(query, [(table.c.pool_id, await self.pool_id(connection, pool))])
            query, tests = await self.within(connection, chosen, sight)
            query = query.where(*(test(table.c) for test in tests))  # of what a few seconds brought
            rows = (await connection.execute(query.order_by(table.c.recorded_at.desc(), table.c.id).limit(limit))).all()
            items = await self._built(connection, rows, build)
        return [(row.recorded_at, item) for row, item in reversed(items)]

    async def _built(self, connection: AsyncConnection, rows: Sequence[Any], build: Build[Item]) -> list[tuple[Any, Item]]:
        known = await self._pools.names(connection, [row.pool_id for row in rows])
        return readable(rows, lambda row: build(row, known[row.pool_id]))


def readable(rows: Iterable[Any], build: Callable[[Any], Item]) -> list[tuple[Any, Item]]:
    """Return the rows with their items. A row that this version cannot read is left out, so that all other rows stay
    readable.

    A row is unreadable, for example, if a newer version stored a reason that this version does not know, and was then
    rolled back.
    """
    found = []
    for row in rows:
        try:
            found.append((row, build(row)))
        except msgspec.ValidationError as error:
            name = row.id if "id" in row._fields else row.session
            logger.warning("row left out of a list", extra={"row": str(name), "error": str(error)})
    return found


def narrowed(query: "Select[Any]", filters: Sequence[tuple[Any, Any]], unserved: Sequence[tuple[Any, Any]] = ()) -> Chosen:
    """Narrow a query by filters, each a column and the wanted value (None = no filter).

    The first filter with a value narrows the query through its index (`column, at`). The other filters, and `unserved`
    filters, which have no index, are tested on the rows. `filters` should begin with the most selective filter.
    """
    asked = [(column, value) for column, value in filters if value is not None]
    tested = [*asked[1:], *((column, value) for column, value in unserved if value is not None)]
    if asked:
        query = query.where(asked[0][0] == asked[0][1])
    return query, [equals(column.key, value) for column, value in tested]


def equals(name: str, value: Any) -> Test:
    """Return a test that the column `name` has this value."""
    return lambda columns: columns[name] == value


def between(query: "Select[Any]", column: "ColumnElement[Any]", start: datetime | None, end: datetime | None) -> "Select[Any]":
    """Narrows a query to rows in [start, end)."""
    if start is not None:
        query = query.where(column >= start)
    if end is not None:
        query = query.where(column < end)
    return query


def _row(row: Any) -> Any:
    return row
