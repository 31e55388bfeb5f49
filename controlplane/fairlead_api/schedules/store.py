"""Schedules of living pools, and what became of their starts, as the public API shows them."""

import asyncio
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Select, func, literal, select, tuple_

from fairlead.schedules.specs import ScheduleSpec
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.filters import RunFilter
from fairlead_api.infra.lists import Lists, between, living, narrowed
from fairlead_api.infra.owners import owner_of
from fairlead_api.infra.paging import decode_cursor, encode_cursor
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Span
from fairlead_api.schedules.outlooks import in_force_at, schedule_detail, schedule_item, spec_of
from fairlead_client.resources.pages import Page
from fairlead_client.resources.schedules import InForceAt, ScheduleDetail, ScheduleItem, ScheduleRun

pools, runs = tables.pools, tables.schedule_runs
_DECLARED = pools.c.spec_in_force["scaling"]["schedules"]
_KEYS = (pools.c.namespace, pools.c.name, pools.c.name)
"""Columns of a cursor's types: namespace, pool, schedule."""


class PostgresSchedules:
    """Implements `schedules.routes.ScheduleReader`."""

    def __init__(self, database: Database) -> None:
        self._lists = Lists(database)

    async def schedules(self, pool: str | None, span: Span, now: datetime) -> Page[ScheduleItem]:
        query: Select[Any] = select(pools).where(pools.c.deleted_at.is_(None), _DECLARED.is_not(None))
        async with self._lists.database.reading() as connection:
            number = await self._lists.pool_id(connection, pool)
            if number is not None:
                query = query.where(pools.c.id == number)
            if span.sight is not None:
                query = query.where(pools.c.namespace.in_(sorted(span.sight)))
            counted = query.with_only_columns(func.coalesce(func.sum(func.jsonb_array_length(_DECLARED)), 0))
            total = int((await connection.execute(counted)).scalar_one())
            last = decode_cursor(span.cursor, _KEYS) if span.cursor is not None else None
            if last is not None:
                query = query.where(tuple_(pools.c.namespace, pools.c.name) >= tuple_(*(literal(one) for one in last[:2])))
            rows = (await connection.execute(query.order_by(pools.c.namespace, pools.c.name))).all()
        found = list(islice(_after(rows, last), span.limit + 1))
        return Page(
            items=[
                schedule_item(f"{row.namespace}/{row.name}", schedule, owner_of(row.labels, row.annotations, (row.changed_by,)), now)
                for row, schedule in found[: span.limit]
            ],
            next_cursor=encode_cursor(_position(*found[span.limit - 1])) if len(found) > span.limit else None,
            total=total,
        )

    async def schedule(self, pool: PoolKey, name: str, start: datetime, now: datetime) -> ScheduleDetail:
        async with self._lists.database.reading() as connection:
            row = await living(connection, pool)
        spec = spec_of(row.spec_in_force)
        known = spec.scaling.schedules if spec is not None else ()
        for schedule in known:
            if schedule.name == name:
                owner = owner_of(row.labels, row.annotations, (row.changed_by,))
                item = schedule_item(str(pool), schedule, owner, now)
                return await asyncio.to_thread(schedule_detail, item, known, start)  # a week has up to 10,080 starts of each
        raise NotFound("schedule", f"{pool}/{name}")

    async def in_force(self, pool: PoolKey, at: datetime) -> InForceAt:
        async with self._lists.database.reading() as connection:
            row = await living(connection, pool)
        spec = spec_of(row.spec_in_force)
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


def _after(rows: Iterable[Any], last: tuple[Any, ...] | None) -> Iterator[tuple[Any, ScheduleSpec]]:
    """The schedules of rows of the table pools after a position, each with its row; those of a pool by name."""
    for row in rows:
        spec = spec_of(row.spec_in_force)
        for schedule in sorted(spec.scaling.schedules, key=lambda one: one.name) if spec is not None else ():
            if last is None or (row.namespace, row.name) != last[:2] or schedule.name > last[2]:
                yield row, schedule


def _position(row: Any, schedule: ScheduleSpec) -> tuple[str, str, str]:
    return row.namespace, row.name, schedule.name
