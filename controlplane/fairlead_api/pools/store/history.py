"""What was of a pool before: revisions of its spec, and its events."""

from functools import partial

from sqlalchemy import select

from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.paging import page
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Span
from fairlead_client.resources.pages import Page
from fairlead_client.resources.pools import PoolEventItem, PoolRevision


class PostgresPoolHistory:
    """Implements `pools.routes.PoolHistoryReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def revisions(self, pool: PoolKey, span: Span) -> Page[PoolRevision]:
        revisions = tables.pool_revisions

        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(revisions).where(revisions.c.pool_id == row.id)
            return await page(
                connection,
                query,
                (revisions.c.number,),
                partial(read, PoolRevision),
                cursor=span.cursor,
                limit=span.limit,
                reverse=span.reverse,
            )

    async def events(self, pool: PoolKey, span: Span) -> Page[PoolEventItem]:
        events = tables.pool_events

        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(events).where(events.c.pool_id == row.id)
            return await page(
                connection,
                query,
                (events.c.at, events.c.id),
                partial(read, PoolEventItem),
                cursor=span.cursor,
                limit=span.limit,
                reverse=span.reverse,
            )
