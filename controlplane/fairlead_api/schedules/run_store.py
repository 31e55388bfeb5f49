"""Records what becomes of each start of a schedule's window, once per pool, schedule and start."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.pool_states import PoolState, SchedulesInForce
from fairlead.schedules.runs import RunOutcome, RunReason, closing_reason, skipped_starts
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import Window
from fairlead_api import tables

runs, pools = tables.schedule_runs, tables.pools


async def note_runs(connection: AsyncConnection, row: Any, state: PoolState, schedules: Sequence[ScheduleSpec] | None) -> None:
    """Notes windows that opened and closed, and starts without one since the state before.

    `row` is the pool's row before this state. `schedules` None: the spec is refused; then only windows are noted, and
    skipped starts once a spec is accepted again.
    """
    told = state.schedules
    if told is None:
        return
    await _close(connection, row.id, told, {schedule.name: schedule for schedule in schedules or ()})
    for window in told.windows:
        await _open(connection, row.id, state.uid, window, told)
    if schedules is None:
        return
    since = row.starts_noted_at if row.uid == state.uid else None
    if since is not None and since < told.at:
        for skipped in skipped_starts(schedules, since, told.at, told.windows):
            values = {"outcome": RunOutcome.SKIPPED, "reason": skipped.reason}
            await _add(connection, row.id, state.uid, skipped.schedule, skipped.start, values)
    await connection.execute(update(pools).where(pools.c.id == row.id).values(starts_noted_at=told.at))


async def _open(connection: AsyncConnection, pool: int, uid: str, window: Window, told: SchedulesInForce) -> None:
    """Notes an open window. One that decides nothing is skipped, until it decides something."""
    by = told.overruled.get(window.schedule)
    if by is not None:
        values = {"outcome": RunOutcome.SKIPPED, "reason": RunReason.OVERRULED, "overruled_by": by, "closes": window.closes}
        await _add(connection, pool, uid, window.schedule, window.opens, values)
        return
    values = {"outcome": RunOutcome.OPEN, "reason": None, "overruled_by": None, "closes": window.closes, "closed_at": None}
    row = upsert(runs).values(pool_id=pool, uid=uid, schedule=window.schedule, start=window.opens, opened_at=told.at, **values)
    changed = (runs.c.outcome != RunOutcome.OPEN) | (runs.c.closes != window.closes)
    again = row.on_conflict_do_update(
        index_elements=["pool_id", "uid", "schedule", "start"],
        set_={**values, "opened_at": func.coalesce(runs.c.opened_at, row.excluded.opened_at)},
        where=changed,
    )
    await connection.execute(again)


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
    """Closes the windows of a pool that is gone, of which nobody else will tell that they ended."""
    closed = {"outcome": RunOutcome.CLOSED, "reason": RunReason.REMOVED, "closed_at": now}
    await connection.execute(update(runs).where(runs.c.pool_id == pool, runs.c.outcome == RunOutcome.OPEN).values(closed))


async def _add(connection: AsyncConnection, pool: int, uid: str, schedule: str, start: datetime, values: Mapping[str, Any]) -> None:
    row = upsert(runs).values(pool_id=pool, uid=uid, schedule=schedule, start=start, **values)
    await connection.execute(row.on_conflict_do_nothing())
