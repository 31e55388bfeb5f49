"""The sessions whose home an instance is, ranked by the size of their context."""

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.infra import paging
from fairlead_api.infra.records import read
from fairlead_api.infra.rows_within import RowsWithin
from fairlead_api.tables import sessions
from fairlead_client.resources.instances import HeldSession, SessionsHeld

TOP = 10


async def sessions_held(connection: AsyncConnection, pool_id: int, instance: str) -> SessionsHeld:
    """Of many sessions, those seen last are looked at."""
    columns = sessions.c
    newest = RowsWithin(
        select(columns.session, columns.context_tokens, columns.bound_at, columns.last_seen_at, columns.reason, columns.migrations)
        .where(columns.instance == instance, columns.pool_id == pool_id, columns.version > 0)
        .order_by(columns.last_seen_at.desc())
        .limit(paging.SEARCHED)
    )
    counted, whole = func.count().over().label("counted"), func.sum(newest.c.context_tokens).over().label("whole")
    query = newest.select().add_columns(counted, whole).order_by(newest.c.context_tokens.desc(), newest.c.session).limit(TOP)
    rows = (await connection.execute(query)).all()
    if not rows:
        return SessionsHeld(counted=0, complete=True, context_tokens=0, top=[])
    total = int(rows[0].whole)
    return SessionsHeld(
        counted=rows[0].counted,
        complete=rows[0].counted < paging.SEARCHED,
        context_tokens=total,
        top=[read(HeldSession, row, share=row.context_tokens / total if total else 0.0) for row in rows],
    )
