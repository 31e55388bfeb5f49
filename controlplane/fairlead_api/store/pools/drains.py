"""Moves sessions off instances, or unbinds them, with history and migrations, inside the caller's transaction."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.draining import spread
from fairlead.reports.bindings import Binding, BindingChange, BindingReason
from fairlead.tables import PoolKey
from fairlead_api.store import tables
from fairlead_api.store.sessions.moves import save_migrations
from fairlead_api.store.sessions.rows import SessionRow, bind
from fairlead_api.store.sessions.writing import save_sessions

ROUTER = "control-api"
"""Used as the router's name for changes that the control API made."""


async def move_off(
    connection: AsyncConnection,
    pool_id: int,
    pool: PoolKey,
    draining: Sequence[str],
    homes: Sequence[str],
    new_id: Callable[[], str],
    now: datetime,
) -> tuple[Binding, ...]:
    """Moves every session bound to a draining instance to one of `homes`; returns their new bindings.

    Does nothing without a home.
    """
    if not draining or not homes:
        return ()
    sessions = tables.sessions
    rows = (
        await connection.execute(
            select(sessions)
            .where(sessions.c.pool_id == pool_id, sessions.c.instance.in_(draining))
            .order_by(sessions.c.pool_id, sessions.c.session)
            .with_for_update()
        )
    ).all()
    if not rows:
        return ()
    counts = await connection.execute(
        select(sessions.c.instance, func.count())
        .where(sessions.c.pool_id == pool_id, sessions.c.instance.in_(homes))
        .group_by(sessions.c.instance)
    )
    bound = {**dict.fromkeys(homes, 0), **{instance: count for instance, count in counts if instance is not None}}
    targets = spread([row.session for row in rows], bound)
    batch = new_id()
    moved: list[SessionRow] = []
    for row in rows:
        session = SessionRow.stored(row, pool)
        change = BindingChange(
            id=f"{batch}:{row.session}",
            pool=pool,
            session=row.session,
            instance=targets[row.session],
            previous=row.instance,
            reason=BindingReason.DRAIN,
            at=now.timestamp(),
            based_on=row.version,
            context_tokens=row.context_tokens,
        )
        bind(session, change, ROUTER, None)
        moved.append(session)
    await save_sessions(connection, moved)
    await save_migrations(connection, [move for session in moved for move in session.moves], ROUTER, {pool: pool_id})
    return tuple(session.binding() for session in moved)


async def unbind_all(connection: AsyncConnection, pool_id: int, now: datetime) -> None:
    """Unbinds every session of the pool; history says until when each was held."""
    await connection.execute(
        text("SELECT 1 FROM sessions WHERE pool_id = :pool AND instance IS NOT NULL ORDER BY session FOR UPDATE"), {"pool": pool_id}
    )
    await connection.execute(
        text(
            "UPDATE bindings SET released_at = greatest(CAST(:now AS timestamptz), bound_at) WHERE pool_id = :pool AND released_at IS NULL"
        ),
        {"pool": pool_id, "now": now},
    )
    await connection.execute(text("UPDATE sessions SET instance = NULL WHERE pool_id = :pool AND instance IS NOT NULL"), {"pool": pool_id})
