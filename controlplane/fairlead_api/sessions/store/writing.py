"""Reads and writes sessions and their holders: locked in one order, written in sets, however many rows."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import case, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.binding_races import Held
from fairlead.tables import PoolKey
from fairlead_api.infra.records import bound, recordset
from fairlead_api.sessions.store.rows import SessionRow
from fairlead_api.tables import bindings, sessions

_HELD = frozenset(one.name for one in fields(Held))
_NAMES = sessions.c.keys()
_VALUES = [one.name for one in sessions.columns if not one.primary_key]

_wanted = recordset([sessions.c.pool_id, sessions.c.session])
_ended_at = (
    select(func.max(bindings.c.released_at))
    .where(bindings.c.pool_id == sessions.c.pool_id, bindings.c.session == sessions.c.session)
    .correlate(sessions)
    .scalar_subquery()
)
_LOCK = (
    select(sessions, case((sessions.c.instance.is_(None), _ended_at)).label("ended_at"))
    .join(_wanted, (sessions.c.pool_id == _wanted.c.pool_id) & (sessions.c.session == _wanted.c.session))
    .order_by(sessions.c.pool_id, sessions.c.session)
    .with_for_update(of=sessions)
)

_written = recordset(sessions.columns)
_ADD = (
    insert(sessions)
    .from_select(_NAMES, select(*_written.c).order_by(_written.c.pool_id, _written.c.session))
    .on_conflict_do_nothing()
    .returning(sessions.c.pool_id, sessions.c.session)
)
_SAVE = (
    update(sessions)
    .where(sessions.c.pool_id == _written.c.pool_id, sessions.c.session == _written.c.session)
    .values({name: _written.c[name] for name in _VALUES})
)

_held = recordset(bindings.columns)
_ADD_HOLDERS = insert(bindings).from_select(bindings.c.keys(), select(*_held.c))

_ended = recordset([bindings.c.pool_id, bindings.c.session, bindings.c.version, bindings.c.released_at])
_END_HOLDERS = (
    update(bindings)
    .where(bindings.c.pool_id == _ended.c.pool_id, bindings.c.session == _ended.c.session, bindings.c.version == _ended.c.version)
    .values(released_at=_ended.c.released_at)
)


async def lock_sessions(connection: AsyncConnection, keys: Sequence[tuple[int, str]], pools: Mapping[int, PoolKey]) -> list[SessionRow]:
    """The existing rows of these (pool id, session), locked in the same order everywhere so that no deadlock arises."""
    if not keys:
        return []
    found = await connection.execute(_LOCK, bound([{"pool_id": pool, "session": session} for pool, session in sorted(keys)]))
    return [SessionRow.stored(row, pools[row.pool_id]) for row in found]


async def add_sessions(connection: AsyncConnection, rows: Sequence[SessionRow]) -> set[tuple[int, str]]:
    """Writes new rows, without their holders; returns the keys of those that another writer has made meanwhile."""
    if not rows:
        return set()
    added = await connection.execute(_ADD, bound([_row(row) for row in rows]))
    made = {(pool_id, session) for pool_id, session in added}
    return {(row.pool_id, row.session) for row in rows} - made


async def save_sessions(connection: AsyncConnection, rows: Sequence[SessionRow]) -> None:
    """Writes rows back with their new holders and the ends of the old ones, in three statements in all."""
    changed = [_row(row) for row in rows if not row.new]
    if changed:
        await connection.execute(_SAVE, bound(changed))
    holders = [holder for row in rows for holder in row.holders]
    if holders:
        await connection.execute(_ADD_HOLDERS, bound(holders))
    ended = [
        {"pool_id": row.pool_id, "session": row.session, "version": version, "released_at": at}
        for row in rows
        for version, at in row.released.items()
    ]
    if ended:
        await connection.execute(_END_HOLDERS, bound(ended))


def _row(row: SessionRow) -> dict[str, Any]:
    return {name: getattr(row.held if name in _HELD else row, name) for name in _NAMES}
