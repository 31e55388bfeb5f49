"""Schedules of living pools, and what became of their starts, as the public API shows them."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api.services.errors import NotFound
from fairlead_api.services.history.filters import RunFilter
from fairlead_api.services.plans.owners import owner_of
from fairlead_api.services.pools.schedules import in_force_at, schedule_detail, schedule_item, spec_of
from fairlead_api.services.spans import Span
from fairlead_api.store import tables
from fairlead_api.store.database import Database
from fairlead_api.store.history.lists import Lists, between, narrowed
from fairlead_api.store.records import read
from fairlead_client.resources.pages import Page
from fairlead_client.resources.schedules import InForceAt, ScheduleDetail, ScheduleItem, ScheduleRun

pools, runs = tables.pools, tables.schedule_runs


class PostgresSchedules:
    """Implements `routes.schedules.ScheduleReader`."""

    def __init__(self, database: Database) -> None:
        self._lists = Lists(database)

    async def schedules(self, pool: str | None, now: datetime) -> Page[ScheduleItem]:
        query: Select[tuple[object, ...]] = select(pools).where(
            pools.c.deleted_at.is_(None), pools.c.spec["scaling"]["schedules"].is_not(None)
        )
        async with self._lists.database.reading() as connection:
            number = await self._lists.pool_id(connection, pool)
            if number is not None:
                query = query.where(pools.c.id == number)
            rows = (await connection.execute(query.order_by(pools.c.namespace, pools.c.name))).all()
        items = [
            schedule_item(f"{row.namespace}/{row.name}", schedule, owner_of(row.labels, row.annotations, (row.changed_by,)), now)
            for row in rows
            if (spec := spec_of(row.spec)) is not None
            for schedule in spec.scaling.schedules
        ]
        return Page(items=items, total=len(items))

    async def schedule(self, pool: PoolKey, name: str, start: datetime, now: datetime) -> ScheduleDetail:
        async with self._lists.database.reading() as connection:
            row = await _living(connection, pool)
        spec = spec_of(row.spec)
        known = spec.scaling.schedules if spec is not None else ()
        for schedule in known:
            if schedule.name == name:
                owner = owner_of(row.labels, row.annotations, (row.changed_by,))
                return schedule_detail(schedule_item(str(pool), schedule, owner, now), known, start)
        raise NotFound("schedule", f"{pool}/{name}")

    async def in_force(self, pool: PoolKey, at: datetime) -> InForceAt:
        async with self._lists.database.reading() as connection:
            row = await _living(connection, pool)
        spec = spec_of(row.spec)
        if spec is None:
            raise NotFound("usable spec of pool", str(pool))
        return in_force_at(str(pool), spec, at)

    async def runs(self, wanted: RunFilter, span: Span) -> Page[ScheduleRun]:
        async with self._lists.database.reading() as connection:
            number = await self._lists.pool_id(connection, wanted.pool)
            unserved = [(runs.c.schedule, wanted.schedule), (runs.c.outcome, wanted.outcome)]
            chosen = narrowed(between(select(runs), runs.c.start, wanted.start, wanted.end), [(runs.c.pool_id, number)], unserved)
            return await self._lists.page(
                connection, chosen, (runs.c.start, runs.c.id), lambda row, pool: read(ScheduleRun, row, pool=pool), span
            )


async def _living(connection: AsyncConnection, pool: PoolKey) -> Any:
    query = select(pools).where(pools.c.namespace == pool.namespace, pools.c.name == pool.name, pools.c.deleted_at.is_(None))
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound("pool", str(pool))
    return row
