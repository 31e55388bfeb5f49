"""Unbinds sessions whose instance is gone, inside the caller's transaction."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.store.tables import bindings, sessions


async def unbind(connection: AsyncConnection, pool_id: int, now: datetime, instances: Collection[str] | None = None) -> None:
    """Unbinds the pool's sessions held by these instances, or all; history says until when each was held.

    Routers are not told: each remembers a session's last home, and its next request tells from where it came and why.
    """
    if instances is not None and not instances:
        return
    held = sessions.c.instance.is_not(None) if instances is None else sessions.c.instance.in_(instances)
    which = select(sessions.c.session).where(sessions.c.pool_id == pool_id, held).order_by(sessions.c.session).with_for_update()
    found = (await connection.execute(which)).scalars().all()
    if not found:
        return
    await connection.execute(
        update(bindings)
        .where(bindings.c.pool_id == pool_id, bindings.c.session.in_(found), bindings.c.released_at.is_(None))
        .values(released_at=func.greatest(now, bindings.c.bound_at))
    )
    await connection.execute(update(sessions).where(sessions.c.pool_id == pool_id, sessions.c.session.in_(found)).values(instance=None))
