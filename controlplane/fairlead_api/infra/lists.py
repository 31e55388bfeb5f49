"""Code that all lists of history share: narrowing by an index, pools by name, one row, the newest rows."""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Select, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.paging import Test, page
from fairlead_api.infra.pool_rows import PoolNames
from fairlead_api.infra.spans import Sight, Span
from fairlead_client.resources.pages import Page

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

Build = Callable[[Any, str], Item]
"""Makes an item from a row and its pool's name."""

Chosen = tuple[Select[Any], list[Test]]
"""The two inputs of `page`: a query that an index serves, and tests for its rows."""

BUCKETS = 60
"""Buckets of timelines and sparklines."""

NO_POOL = -1
"""An id that no pool has."""


class Lists:
    """Reads lists whose rows have a `pool_id`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._pools = PoolNames()

    async def pool_id(self, connection: AsyncConnection, pool: str | None) -> int | None:
        """The pool's id; NO_POOL if there was never such a pool. Raises InvalidInput for a name
        that is not namespace/name.
        """
        if pool is None:
            return None
        try:
            key = PoolKey.parse(pool)
        except ValueError as error:
            raise InvalidInput("pool", pool, "write namespace/name") from error
        found = await self._pools.id_of(connection, key)
        return NO_POOL if found is None else found

    async def page(
        self, connection: AsyncConnection, chosen: Chosen, keys: Sequence["ColumnElement[Any]"], build: Build[Item], span: Span
    ) -> Page[Item]:
        """One page, newest first by `keys`."""
        query, also = await self.within(connection, chosen, span.sight)
        found = await page(connection, query, keys, _row, also=also, cursor=span.cursor, limit=span.limit, reverse=span.reverse)
        items = [item for _, item in await self._built(connection, found.items, build)]
        return Page(items=items, next_cursor=found.next_cursor, total=found.total, total_at_least=found.total_at_least)

    async def within(self, connection: AsyncConnection, chosen: Chosen, sight: Sight) -> Chosen:
        """Narrows a query to rows of pools that the caller may see. An index serves one pool; rows of several are
        tested.
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
        """The only row of the query. Raises NotFound, which names its kind `what`, also for an unreadable row."""
        async with self.database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
            built = [] if row is None else await self._built(connection, [row], build)
        if not built:
            raise NotFound(what, name)
        return built[0][1]

    async def recent(
        self, table: Table, since: datetime, build: Build[Item], pool: str | None, sight: Sight, limit: int, *also: "ColumnElement[bool]"
    ) -> list[tuple[datetime, Item]]:
        """The newest rows in sight recorded since, oldest first, with the time of recording (when a report came)."""
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
    """The rows with their items. A row that this version cannot read is left out, so that it costs no other.

    For example, a newer version stored a reason that this one does not know, and was then rolled back.
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
    """Narrows a query by filters.

    The first filter that is given narrows the query through its index (`column, at`); the others, and those `unserved`
    by any index, are tested on its rows. Order `filters` by how few rows they leave, fewest first.
    """
    asked = [(column, value) for column, value in filters if value is not None]
    tested = [*asked[1:], *((column, value) for column, value in unserved if value is not None)]
    if asked:
        query = query.where(asked[0][0] == asked[0][1])
    return query, [equals(column.key, value) for column, value in tested]


def equals(name: str, value: Any) -> Test:
    """A test that the column of this name has this value."""
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
