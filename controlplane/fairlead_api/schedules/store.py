"""Reads the schedules of existing pools, and stores the starts of their windows, each once per pool, schedule and time.
Reads these starts for the public API.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Select, func, literal, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.pool_states import PoolState, SchedulesInForce
from fairlead.schedules.crons import Cron
from fairlead.schedules.runs import RunOutcome, RunReason, SkippedStart, closing_reason, skipped_starts
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import Window
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.object_marks import owner_of
from fairlead_api.infra.paging import Lists, between, decode_cursor, encode_cursor, narrowed
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Span
from fairlead_api.schedules.outlooks import in_force_at, schedule_detail, schedule_item, spec_of
from fairlead_client.resources.pages import Page
from fairlead_client.resources.schedules import InForceAt, ScheduleDetail, ScheduleItem, ScheduleRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Filter of the runs of schedules; `start` and `end` of the filter are compared with the start of a run."""

    pool: str | None = None
    schedule: str | None = None
    outcome: RunOutcome | None = None
    start: datetime | None = None
    end: datetime | None = None


runs, pools = tables.schedule_runs, tables.pools


async def note_runs(
    connection: AsyncConnection, row: Any, state: PoolState, schedules: Sequence[ScheduleSpec] | None
) -> list[SkippedStart]:
    """Record the changes since the previous state: windows that opened and closed, and starts that opened no window.
    Returns the newly recorded skipped starts.

    `row` is the pool's row before this state. `schedules` is None if the spec is refused. Then only windows are
    recorded; starts without a window are recorded once a spec is accepted again.
    """
    told = state.schedules
    if told is None:
        return []
    await _close(connection, row.id, told, {schedule.name: schedule for schedule in schedules or ()})
    skipped = [
        SkippedStart(schedule=window.schedule, start=window.opens, reason=RunReason.OVERRULED)
        for window in told.windows
        if await _open(connection, row.id, state.uid, window, told)
    ]
    if schedules is None:
        return skipped
    since = row.starts_noted_at if row.uid == state.uid else None
    if since is not None and since < told.at:
        skipped += [
            one
            for one in _of_lasting(skipped_starts(schedules, since, told.at, told.windows), schedules, row.spec_in_force)
            if await _add(connection, row.id, state.uid, one.schedule, one.start, {"outcome": RunOutcome.SKIPPED, "reason": one.reason})
        ]
    await connection.execute(update(pools).where(pools.c.id == row.id).values(starts_noted_at=told.at))
    return skipped


def _of_lasting(
    skipped: Iterable[SkippedStart], schedules: Sequence[ScheduleSpec], former: Mapping[str, Any] | None
) -> Iterable[SkippedStart]:
    """Return those skipped starts whose schedule existed before this change of the spec with the same start times. The
    other schedules are new or have new start times. It is unknown since when they exist, so their starts do not count
    as skipped.
    """
    found = list(skipped)
    spec = spec_of(former) if found else None
    before = {_times_of(one) for one in spec.scaling.schedules} if spec is not None else set()
    lasting = {one.name for one in schedules if _times_of(one) in before}
    return (one for one in found if one.schedule in lasting)


def _times_of(schedule: ScheduleSpec) -> tuple[str, Cron, str]:
    return schedule.name, schedule.cron, schedule.time_zone.key


async def _open(connection: AsyncConnection, pool: int, uid: str, window: Window, told: SchedulesInForce) -> bool:
    """Record an open window. Returns True if this call recorded the window as skipped, because another schedule
    overrules it.
    """
    by = told.overruled.get(window.schedule)
    if by is not None:
        values = {"outcome": RunOutcome.SKIPPED, "reason": RunReason.OVERRULED, "overruled_by": by, "closes": window.closes}
        return await _add(connection, pool, uid, window.schedule, window.opens, values)
    values = {"outcome": RunOutcome.OPEN, "reason": None, "overruled_by": None, "closes": window.closes, "closed_at": None}
    row = upsert(runs).values(pool_id=pool, uid=uid, schedule=window.schedule, start=window.opens, opened_at=told.at, **values)
    changed = (runs.c.outcome != RunOutcome.OPEN) | (runs.c.closes != window.closes)
    again = row.on_conflict_do_update(
        index_elements=["pool_id", "uid", "schedule", "start"],
        set_={**values, "opened_at": func.coalesce(runs.c.opened_at, row.excluded.opened_at)},
        where=changed,
    )
    await connection.execute(again)
    return False


async def _close(connection: AsyncConnection, pool: int, told: SchedulesInForce, schedules: Mapping[str, ScheduleSpec]) -> None:
    open_ = {(window.schedule, window.opens) for window in told.windows}
    found = await connection.execute(select(runs).where(runs.c.pool_id == pool, runs.c.outcome == RunOutcome.OPEN))
    for row in found.all():
        if (row.schedule, row.start) in open_:
            continue
        window = Window(schedule=row.schedule, opens=row.start, closes=row.closes)
        values = {"outcome": RunOutcome.CLOSED, "reason": closing_reason(schedules, window, told.at), "closed_at": told.at}
        await connection.execute(update(runs).where(runs.c.id == row.id).values(values))


async def close_runs(connection: AsyncConnection, pool: int, now: datetime) -> None:
    """Record that the open windows of a deleted pool have ended, because no later state will report that."""
    closed = {"outcome": RunOutcome.CLOSED, "reason": RunReason.REMOVED, "closed_at": now}
    await connection.execute(update(runs).where(runs.c.pool_id == pool, runs.c.outcome == RunOutcome.OPEN).values(closed))


async def _add(connection: AsyncConnection, pool: int, uid: str, schedule: str, start: datetime, values: Mapping[str, Any]) -> bool:
    """Record the start of a window unless it is already recorded. Returns whether it was recorded now."""
    row = upsert(runs).values(pool_id=pool, uid=uid, schedule=schedule, start=start, **values)
    return (await connection.execute(row.on_conflict_do_nothing().returning(runs.c.id))).scalar_one_or_none() is not None


_DECLARED = pools.c.spec_in_force["scaling"]["schedules"]
_KEYS = (pools.c.namespace, pools.c.name, pools.c.name)
"""Columns of the list's order, one for each part of the cursor: namespace, pool, schedule. Schedules are not rows of a
table, so the column of the pool's name stands in for the schedule's name.
"""


class PostgresSchedules:
    """Reads schedules and their runs. Reads of a single schedule raise NotFound."""

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
            row = await pool_row(connection, pool)
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
            row = await pool_row(connection, pool)
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
    """Yield the schedules after the position `last` of the list, each with its pool's row. A pool's schedules are
    ordered by name.
    """
    for row in rows:
        spec = spec_of(row.spec_in_force)
        for schedule in sorted(spec.scaling.schedules, key=lambda one: one.name) if spec is not None else ():
            if last is None or (row.namespace, row.name) != last[:2] or schedule.name > last[2]:
                yield row, schedule


def _position(row: Any, schedule: ScheduleSpec) -> tuple[str, str, str]:
    return row.namespace, row.name, schedule.name
