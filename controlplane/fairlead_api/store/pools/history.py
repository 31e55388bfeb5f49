"""What was of a pool before: revisions of its spec, its events, and its objectives with how they were kept."""

from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api.services.spans import Span
from fairlead_api.store import tables
from fairlead_api.store.database import Database
from fairlead_api.store.paging import page
from fairlead_api.store.pools.rows import pool_row, share
from fairlead_api.store.records import read
from fairlead_client.resources.pages import Page
from fairlead_client.resources.pools import PoolEventItem, PoolRevision
from fairlead_client.resources.slo import SloVersion


class PostgresPoolHistory:
    """Implements `routes.pools.PoolHistoryReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def revisions(self, pool: PoolKey, span: Span) -> Page[PoolRevision]:
        revisions = tables.pool_revisions

        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(revisions).where(revisions.c.pool_id == row.id)
            return await page(connection, query, (revisions.c.number,), partial(read, PoolRevision), cursor=span.cursor, limit=span.limit)

    async def events(self, pool: PoolKey, span: Span) -> Page[PoolEventItem]:
        events = tables.pool_events

        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(events).where(events.c.pool_id == row.id)
            return await page(
                connection, query, (events.c.at, events.c.id), partial(read, PoolEventItem), cursor=span.cursor, limit=span.limit
            )

    async def slo_versions(self, pool: PoolKey, span: Span, now: datetime) -> Page[SloVersion]:
        slo = tables.slo_configs
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(slo).where(slo.c.pool_id == row.id)
            found = await page(connection, query, (slo.c.version,), lambda item: item, cursor=span.cursor, limit=span.limit)
            items = [await _slo_version(connection, row.id, pool, item, now) for item in found.items]
        return Page(items=items, next_cursor=found.next_cursor, total=found.total)


async def _slo_version(connection: AsyncConnection, pool_id: int, pool: PoolKey, item: Any, now: datetime) -> SloVersion:
    """Attainment from 10 s buckets while those are kept, else from minutes."""
    rollup = (tables.load_rollups_10s if (now - item.active_from).days < 6 else tables.load_rollups_1m).c
    sums = select(
        func.sum(rollup.ttft_within_slo).label("within"),
        func.sum(rollup.ttft_total).label("total"),
        func.sum(rollup.requests_total).label("requests"),
    )
    begun = func.date_bin(text("interval '10 seconds'"), item.active_from, text("timestamptz 'epoch'"))
    within = (rollup.pool_id == pool_id, rollup.bucket >= begun, rollup.bucket < (item.active_until or now))
    found = (await connection.execute(sums.where(*within))).one()
    return read(SloVersion, item, pool=str(pool), attainment=share(found.within, found.total), requests=int(found.requests or 0))
