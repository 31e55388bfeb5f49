"""Unbinds sessions whose instance is gone, inside the caller's transaction."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ARRAY, Text, bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.tables import bindings, sessions

AT_ONCE = 20_000
"""Sessions of one statement, so that it ends within its limit however many there are."""


async def unbind(connection: AsyncConnection, pool_id: int, now: datetime, instances: Collection[str] | None = None) -> None:
    """Unbinds the pool's sessions held by these instances, or all; history says until when each was held.

    Routers are not told: each remembers a session's last home, and its next request tells from where it came and why.

    The database keeps the sessions to itself: there may be hundreds of thousands. They are locked in the order in which
    reports lock them, which wait for the pool's row meanwhile.
    """
    if instances is not None and not instances:
        return
    gone = bindparam("gone", sorted(instances or ()), type_=ARRAY(Text))
    is_held = sessions.c.instance.is_not(None) if instances is None else sessions.c.instance == func.any(gone)
    some = select(sessions.c.session).where(sessions.c.pool_id == pool_id, is_held).order_by(sessions.c.session).limit(AT_ONCE)
    held = some.with_for_update().cte("held")
    freed = (
        update(sessions)
        .where(sessions.c.pool_id == pool_id, sessions.c.session == held.c.session)
        .values(instance=None, rank=None)
        .returning(sessions.c.session)
        .cte("freed")
    )
    released = (
        update(bindings)
        .where(bindings.c.pool_id == pool_id, bindings.c.session == freed.c.session, bindings.c.released_at.is_(None))
        .values(released_at=func.greatest(now, bindings.c.bound_at))
        .returning(bindings.c.session)
        .cte("released")
    )
    statement = select(func.count()).select_from(freed).add_cte(released)
    while (await connection.execute(statement)).scalar_one() == AT_ONCE:
        pass
