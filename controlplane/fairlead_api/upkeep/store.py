"""Periodic jobs that exactly one process must do: rollups, partitions ahead of time, retention, sessions that ended.
Rows older than their retention setting are deleted, except rows to which other rows still refer.
"""

# ruff: noqa: S608 (statements are put together from constants of this package; values are always bound)

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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
from fairlead_process.clock import utc_now

BATCH = 5000
"""Number of rows that one transaction deletes, few enough that no other transaction waits long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Selects the rows `r` of `table` to delete. `where` is an SQL condition on `r` and the time `:before`.

    With `by_pool`, the oldest rows are searched pool by pool. This is for tables whose only index is on pool and time;
    Postgres before version 18 would otherwise read such tables completely.

    `chain` is for rows that form chains: it names the columns that identify a row's chain, and the column with the
    row's position in the chain. The rows of a chain are deleted in the order of their positions; `order` must then be
    this column. A row for which the condition `held` is true is kept, with all later rows of its chain, so that no
    chain ever has a gap.
    """

    table: str
    where: str
    by_pool: bool = False
    chain: tuple[str, str] | None = None
    order: str = ""
    held: str = ""


SWEEPS: dict[str, tuple[Sweep, ...]] = {
    "load_samples_days": (Sweep(table="heatmap_columns", where="r.step = 1 AND r.bucket < :before"),),
    "rollups_10s_days": (
        Sweep(table="load_rollups_10s", where="r.bucket < :before", by_pool=True),
        Sweep(table="heatmap_columns", where="r.step = 10 AND r.bucket < :before"),
        Sweep(table="pool_rollups_10s", where="r.bucket < :before", by_pool=True),
        Sweep(table="slo_rollups_1m", where="r.bucket < :before", by_pool=True),
    ),
    # The newest minute of each key stays: it tells when the key was last used.
    "rollups_1m_days": (
        Sweep(table="load_rollups_1m", where="r.bucket < :before", by_pool=True),
        Sweep(table="heatmap_columns", where="r.step IN (60, 300) AND r.bucket < :before"),
        Sweep(table="pool_rollups_1m", where="r.bucket < :before", by_pool=True),
        Sweep(table="pool_rollups_1h", where="r.bucket < :before", by_pool=True),
        Sweep(table="slo_rollups_1h", where="r.bucket < :before", by_pool=True),
        Sweep(table="move_rollups_1m", where="r.bucket < :before", by_pool=True),
        Sweep(table="move_rollups_1h", where="r.bucket < :before", by_pool=True),
        Sweep(table="task_rollups_1h", where="r.bucket < :before", by_pool=True),
        Sweep(table="finished_tasks", where="r.bucket < :before", by_pool=True),
        Sweep(
            table="gateway_key_use",
            where="r.minute < :before AND r.minute < coalesce((SELECT max(u.minute) FROM gateway_key_use u "
            "WHERE u.key_id = r.key_id AND u.refusal = ''), 'infinity')",
        ),
    ),
    "cost_days": (
        Sweep(table="usage_hours", where="r.bucket < :before", by_pool=True),
        Sweep(table="session_usage_hours", where="r.bucket < :before", by_pool=True),
        Sweep(table="work_hours", where="r.bucket < :before", by_pool=True),
        Sweep(table="measured_prices", where="r.bucket < :before", by_pool=True),
        Sweep(table="instance_lives", where="r.ended_at < :before"),
        Sweep(
            table="instance_prices",
            where="r.since < :before AND EXISTS (SELECT 1 FROM instance_prices p WHERE p.pool_id = r.pool_id AND p.role = r.role "
            "AND p.since > r.since AND p.since <= :before)",
        ),
    ),
    "reports_days": (Sweep(table="reports", where="r.received_at < :before"),),
    # A migration belongs to a session's bindings, so it is deleted just before the binding that it made. A binding is
    # deleted only after all earlier ones of its session, so that a history has no gap while it is deleted. A session is
    # deleted when no row of its history is left.
    "history_days": (
        Sweep(table="canary_looks", where="r.at < :before"),
        Sweep(table="canary_steps", where="r.ended_at < :before"),
        Sweep(
            table="migrations",
            where="r.at < :before AND NOT EXISTS (SELECT 1 FROM bindings b WHERE b.pool_id = r.pool_id AND b.session = r.session "
            "AND b.migration = r.id AND (b.released_at IS NULL OR b.released_at >= :before))",
        ),
        Sweep(table="reroutes", where="r.at < :before"),
        Sweep(
            table="bindings",
            where="r.released_at < :before",
            chain=("pool_id, session", "version"),
            order="released_at, version",
            held="EXISTS (SELECT 1 FROM migrations m WHERE m.id = r.migration)",
        ),
        Sweep(
            table="sessions",
            where="r.instance IS NULL AND r.last_seen_at < :before "
            "AND NOT EXISTS (SELECT 1 FROM bindings b WHERE b.pool_id = r.pool_id AND b.session = r.session)",
        ),
        Sweep(table="lost_moves", where="r.minute < :before"),
        Sweep(table="session_trees", where="r.last_at < :before"),
    ),
    "routing_tables_days": (
        Sweep(
            table="routing_tables",
            where="r.created_at < :before AND r.version < (SELECT p.table_version FROM pools p WHERE p.id = r.pool_id)",
        ),
        Sweep(table="router_acknowledgements", where="r.at < :before"),
        Sweep(
            table="routers",
            where="r.last_seen_at < :before AND NOT EXISTS (SELECT 1 FROM router_acknowledgements a WHERE a.router = r.id)",
        ),
    ),
    "events_days": (
        Sweep(table="instance_transitions", where="r.at < :before"),
        Sweep(table="pool_events", where="r.at < :before"),
        Sweep(table="cluster_changes", where="r.at < :before"),
        Sweep(table="schedule_runs", where="r.start < :before AND r.outcome <> 'open'"),
        Sweep(
            table="predictor_models",
            where="r.at < :before AND r.version < (SELECT max(m.version) FROM predictor_models m WHERE m.pool_id = r.pool_id)",
        ),
        Sweep(table="scaling_decisions", where="r.at < :before"),
        Sweep(
            table="wanted_replicas",
            where="r.at < :before AND r.at < (SELECT max(w.at) FROM wanted_replicas w WHERE w.pool_id = r.pool_id AND w.role = r.role)",
        ),
        Sweep(
            table="instances",
            where="r.gone_at < :before AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.pool_id = r.pool_id AND s.instance = r.id)",
        ),
    ),
    "plans_days": (
        Sweep(
            table="plans",
            where="r.created_at < :before AND r.expires_at < :before AND coalesce(r.undo_until, r.created_at) < :before",
        ),
    ),
    "simulations_days": (Sweep(table="simulations", where="r.created_at < :before AND r.state NOT IN ('queued', 'running')"),),
    "notices_days": (Sweep(table="notices", where="r.at < :before AND r.state <> 'waiting'"),),
    "credentials_days": (
        Sweep(table="web_sessions", where="least(r.expires_at, r.revoked_at) < :before"),
        Sweep(table="login_links", where="r.expires_at < :before"),
    ),
}
"""The rows that each setting of `settings.Retention` deletes, in the order of deletion."""


def deletion(one: Sweep) -> str:
    """Return the SQL that deletes a batch of rows older than `:before`."""
    locked = f"LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
    chosen = f"SELECT r.ctid FROM {one.table} r WHERE {one.where} {locked}"
    if one.chain:
        chains, place = one.chain
        oldest = f"SELECT r.*, r.ctid FROM {one.table} r WHERE {one.where} ORDER BY {one.order} {locked}"
        stays = f"SELECT r.ctid, bool_or({one.held}) OVER (PARTITION BY {chains} ORDER BY {place}) AS stays FROM ({oldest}) r"
        chosen = f"SELECT c.ctid FROM ({stays}) c WHERE NOT c.stays"
    if one.by_pool:
        oldest = f"SELECT r.ctid FROM {one.table} r WHERE r.pool_id = p.id AND {one.where} ORDER BY r.bucket {locked}"
        chosen = f"SELECT r.ctid FROM pools p CROSS JOIN LATERAL ({oldest}) r LIMIT {BATCH}"
    return f"DELETE FROM {one.table} WHERE ctid = ANY(ARRAY({chosen}))"


async def sweep(database: Database, one: Sweep, before: datetime) -> int:
    """Delete one batch of rows older than `before`; return the number of deleted rows."""
    statement = text(deletion(one))

    async def work(connection: AsyncConnection) -> int:
        return (await connection.execute(statement, {"before": before})).rowcount

    return await database.writing(work)


_LOCKS = 0x7570_6B70
"""Advisory lock space (the letters `upkp`); the second key names the job."""

TELL_SECONDS = 2.0
"""Seconds between two statements with which the holder of a job's lock keeps its transaction alive in Postgres."""


class PostgresUpkeep:
    """Implements `upkeep.upkeep.UpkeepStore`. Locks of jobs are held on connections of `locks`, which the jobs' other
    statements do not use.
    """

    def __init__(self, database: Database, locks: Database, partitions: Partitions, wall: Callable[[], datetime] = utc_now) -> None:
        """`wall` returns this machine's present time."""
        self._wall = wall
        self._database = database
        self._locks = locks
        self._partitions = partitions

    async def alone(self, job: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Run `work` unless another process is running this job. Returns whether `work` was run.

        The lock ends with its connection, so a crash releases it. A suspended process also loses the lock, because
        Postgres ends its idle transaction; when that process continues, it stops its work.
        """
        async with self._locks.holding() as connection:
            key = {"space": _LOCKS, "job": job}
            got = await connection.execute(text("SELECT pg_try_advisory_xact_lock(:space, hashtext(:job))"), key)
            if not got.scalar_one():
                return False
            working = asyncio.ensure_future(work())
            try:
                while not (await asyncio.wait({working}, timeout=TELL_SECONDS))[0]:
                    await self._locks.go_on(connection)
            finally:
                working.cancel()
                await asyncio.wait({working})
            await working
        return True

    async def clock_ahead(self) -> timedelta:
        """Return by how much the database's clock is ahead of this machine's clock. Both clocks are read now, because a
        clock that was wrong when this process started may have been set since.
        """
        async with self._database.reading() as connection:
            said: datetime = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
        return said - self._wall()

    async def make_days(self, first: date, last: date) -> None:
        """Make the partitions for every day from `first` to `last`."""
        days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
        for table in PARTITIONED:
            await self._partitions.ensure(table, days)

    async def drop_days(self, table: str, before: date) -> list[str]:
        """Drop the partitions of one table for the days before `before`; return their names."""
        return await self._partitions.drop_before(table, before)

    async def delete_before(self, setting: str, before: datetime) -> int:
        """Delete the rows of a retention setting that are older than `before`. Deletes in small batches, so that other
        transactions wait only briefly. Returns the number of deleted rows.
        """
        deleted = 0
        for one in SWEEPS[setting]:
            while (count := await sweep(self._database, one, before)) > 0:
                deleted += count
                if count < BATCH and not one.chain:  # of a chain, rows that stay may have been among the oldest
                    break
        return deleted

    async def end_sessions(self, now: datetime, most: int = 2000) -> int:
        """Unbind sessions for which no router reported anything during twice their pool's TTL, and notify the routers.

        Routers forget a session after one TTL without a request. The API waits for a second TTL, because a request may
        have been served without being in the sample that routers report.
        """

        async def work(connection: AsyncConnection) -> int:
            rows = (
                await connection.execute(
                    text(
                        "SELECT s.pool_id, s.session, s.version, s.reason, s.bound_at, s.migrated_at, s.context_tokens, "
                        "s.change, p.namespace, p.name "
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
