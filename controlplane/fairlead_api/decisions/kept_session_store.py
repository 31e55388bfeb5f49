"""Sessions all of whose decisions are kept, in Postgres."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra import audit_log, notifying
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.database import Database
from fairlead_api.infra.lists import living
from fairlead_api.infra.notices import KeptSessionsChanged
from fairlead_api.infra.records import read
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.sessions import KeptSession

kept = tables.kept_sessions


class PostgresKeptSessions:
    """Implements `decisions.kept_sessions.KeptSessionStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def kept(self, pool: PoolKey, now: datetime) -> list[KeptSession]:
        async with self._database.reading() as connection:
            of_pool = kept.c.pool_id == (await living(connection, pool)).id
            rows = await connection.execute(select(kept).where(of_pool, kept.c.until > now).order_by(kept.c.until, kept.c.session))
            return [read(KeptSession, row) for row in rows]

    async def keep(self, pool: PoolKey, session: KeptSession, caller: Caller, now: datetime, most: int) -> bool:
        async def work(connection: AsyncConnection) -> bool:
            number = await _locked(connection, pool)
            await connection.execute(delete(kept).where(kept.c.pool_id == number, kept.c.until <= now))
            others = select(func.count()).select_from(kept).where(kept.c.pool_id == number, kept.c.session != session.session)
            if (await connection.execute(others)).scalar_one() >= most:
                return False
            values = {"until": session.until, "by": session.by}
            row = insert(kept).values(pool_id=number, session=session.session, **values)
            await connection.execute(row.on_conflict_do_update(index_elements=["pool_id", "session"], set_=values))
            await notifying.send(connection, [KeptSessionsChanged()])
            after = {"session": session.session, "until": session.until.isoformat()}
            await audit_log.append(connection, [replace(caller.draft(AuditAction.SESSION_KEPT, str(pool)), after=after)], now)
            return True

        return await self._database.writing(work)

    async def let_go(self, pool: PoolKey, session: str, caller: Caller, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            number = await _locked(connection, pool)
            found = await connection.execute(
                delete(kept).where(kept.c.pool_id == number, kept.c.session == session).returning(kept.c.until)
            )
            until = found.scalar_one_or_none()
            if until is None or until <= now:
                return
            await notifying.send(connection, [KeptSessionsChanged()])
            before = {"session": session, "until": until.isoformat()}
            await audit_log.append(connection, [replace(caller.draft(AuditAction.SESSION_LET_GO, str(pool)), before=before)], now)

        await self._database.writing(work)


async def _locked(connection: AsyncConnection, pool: PoolKey) -> int:
    """The id of the pool, which no other call keeps sessions of until this one is done. Raises NotFound."""
    number: int = (await living(connection, pool)).id
    pools = tables.pools
    await connection.execute(select(pools.c.id).where(pools.c.id == number).with_for_update(key_share=True))
    return number
