"""Regular work that exactly one process must do: rollups, partitions ahead, retention, ended sessions."""

# ruff: noqa: S608 (statements are put together from constants of this package; values are always bound)

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.bindings import Binding, told_reason
from fairlead.tables import PoolKey
from fairlead_api.infra import notifying
from fairlead_api.infra.database import Database
from fairlead_api.infra.notices import BindingsChanged
from fairlead_api.infra.partitions import Partitions
from fairlead_api.tables import PARTITIONED
from fairlead_api.upkeep.retention_store import BATCH, SWEEPS, sweep

_LOCKS = 0x7570_6B70
"""Advisory lock space (the letters `upkp`); the second key names the job."""

TELL_SECONDS = 2.0
"""The holder of a job's lock tells Postgres this often that it lives."""


class PostgresUpkeep:
    """Implements `upkeep.upkeep.UpkeepStore`."""

    def __init__(self, database: Database, partitions: Partitions) -> None:
        self._database = database
        self._partitions = partitions

    async def alone(self, job: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Runs `work` unless another process is running this job; returns whether it ran.

        The lock ends with its connection, so a crash releases it. So does a process that is suspended, as Postgres ends
        a transaction that falls silent; when it wakes up, it stops its work.
        """
        async with self._database.holding() as connection:
            key = {"space": _LOCKS, "job": job}
            got = await connection.execute(text("SELECT pg_try_advisory_xact_lock(:space, hashtext(:job))"), key)
            if not got.scalar_one():
                return False
            working = asyncio.ensure_future(work())
            try:
                while not (await asyncio.wait({working}, timeout=TELL_SECONDS))[0]:
                    await self._database.go_on(connection)
            finally:
                working.cancel()
                await asyncio.wait({working})
            await working
        return True

    async def make_days(self, first: date, last: date) -> None:
        """Makes partitions for every day from `first` to `last`."""
        days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
        for table in PARTITIONED:
            await self._partitions.ensure(table, days)

    async def drop_days(self, table: str, before: date) -> list[str]:
        """Drops the partitions of one table before a day."""
        return await self._partitions.drop_before(table, before)

    async def delete_before(self, setting: str, before: datetime) -> int:
        """Deletes rows that a retention setting covers and that are older, in batches so that nobody waits long."""
        deleted = 0
        for one in SWEEPS[setting]:
            while (count := await sweep(self._database, one, before)) > 0:
                deleted += count
                if count < BATCH:
                    break
        return deleted

    async def end_sessions(self, now: datetime, most: int = 2000) -> int:
        """Unbinds sessions without news for twice their pool's TTL, and tells the routers.

        Routers forget a session after one TTL without a request; the second TTL allows for requests that
        were served but not sampled.
        """

        async def work(connection: AsyncConnection) -> int:
            rows = (
                await connection.execute(
                    text(
                        "SELECT s.pool_id, s.session, s.version, s.reason, s.bound_at, s.migrated_at, s.context_tokens, s.change, p.namespace, p.name "
                        "FROM sessions s JOIN pools p ON p.id = s.pool_id WHERE s.instance IS NOT NULL AND p.facts IS NOT NULL AND "
                        "s.last_seen_at < CAST(:now AS timestamptz) - 2 * make_interval(secs => "
                        "CAST(p.facts #>> '{table,session,ttl_seconds}' AS float8)) "
                        "ORDER BY s.pool_id, s.session LIMIT :most FOR UPDATE OF s SKIP LOCKED"
                    ),
                    {"now": now, "most": most},
                )
            ).all()
            if not rows:
                return 0
            keys = {"pools": [row.pool_id for row in rows], "sessions": [row.session for row in rows], "now": now}
            chosen = "FROM unnest(CAST(:pools AS int[]), CAST(:sessions AS text[])) AS k(p, n)"
            await connection.execute(
                text(
                    f"UPDATE bindings b SET released_at = greatest(CAST(:now AS timestamptz), b.bound_at) {chosen} "
                    "WHERE b.pool_id = k.p AND b.session = k.n AND b.released_at IS NULL"
                ),
                keys,
            )
            await connection.execute(
                text(f"UPDATE sessions s SET instance = NULL, rank = NULL {chosen} WHERE s.pool_id = k.p AND s.session = k.n"),
                {"pools": keys["pools"], "sessions": keys["sessions"]},
            )
            ended = tuple(
                Binding(
                    pool=PoolKey(namespace=row.namespace, name=row.name),
                    session=row.session,
                    instance=None,
                    version=row.version,
                    reason=told_reason(row.reason),
                    bound_at=row.bound_at.timestamp(),
                    migrated_at=row.migrated_at.timestamp() if row.migrated_at else None,
                    context_tokens=row.context_tokens,
                    change=row.change,
                )
                for row in rows
            )
            await notifying.send(connection, [BindingsChanged(ended)])
            return len(rows)

        return await self._database.writing(work)
