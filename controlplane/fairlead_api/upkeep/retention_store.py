"""Deletes rows that are older than their setting, except rows that others still refer to.

These are kept for ever, because people make them and they are few: pools, their revisions, SLO versions and fitted
engines, API tokens, gateway keys, users, and the audit log.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.infra.database import Database

BATCH = 5000
"""Rows per transaction, few enough that nobody waits long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Rows `r` of `table` to delete: `where` compares with `:before`.

    `by_pool` looks for the oldest of each pool, for tables whose only index begins with the pool and goes on with the
    time: Postgres before 18 reads them whole otherwise.
    """

    table: str
    where: str
    by_pool: bool = False


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
        Sweep(
            table="gateway_key_use",
            where="r.minute < :before AND r.minute < coalesce((SELECT max(u.minute) FROM gateway_key_use u "
            "WHERE u.key_id = r.key_id AND u.refusal = ''), 'infinity')",
        ),
    ),
    "reports_days": (Sweep(table="reports", where="r.received_at < :before"),),
    # A migration belongs to a session's bindings, so it is deleted just before the binding that it made. A session is
    # deleted when no row of its history is left.
    "history_days": (
        Sweep(
            table="migrations",
            where="r.at < :before AND NOT EXISTS (SELECT 1 FROM bindings b WHERE b.pool_id = r.pool_id AND b.session = r.session "
            "AND b.migration = r.id AND (b.released_at IS NULL OR b.released_at >= :before))",
        ),
        Sweep(table="reroutes", where="r.at < :before"),
        Sweep(
            table="bindings",
            where="r.released_at < :before AND NOT EXISTS (SELECT 1 FROM migrations m WHERE m.id = r.migration)",
        ),
        Sweep(
            table="sessions",
            where="r.instance IS NULL AND r.last_seen_at < :before "
            "AND NOT EXISTS (SELECT 1 FROM bindings b WHERE b.pool_id = r.pool_id AND b.session = r.session)",
        ),
        Sweep(table="lost_moves", where="r.minute < :before"),
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
    "credentials_days": (
        Sweep(table="web_sessions", where="least(r.expires_at, r.revoked_at) < :before"),
        Sweep(table="login_links", where="r.expires_at < :before"),
    ),
}
"""Sweeps by setting of `settings.Retention`, in the order of deletion."""


async def sweep(database: Database, one: Sweep, before: datetime) -> int:
    """Deletes one batch; returns how many rows."""
    locked = f"LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
    chosen = f"SELECT r.ctid FROM {one.table} r WHERE {one.where} {locked}"  # noqa: S608 (constants)
    if one.by_pool:
        oldest = f"SELECT r.ctid FROM {one.table} r WHERE r.pool_id = p.id AND {one.where} ORDER BY r.bucket {locked}"  # noqa: S608
        chosen = f"SELECT r.ctid FROM pools p CROSS JOIN LATERAL ({oldest}) r LIMIT {BATCH}"  # noqa: S608
    statement = text(f"DELETE FROM {one.table} WHERE ctid = ANY(ARRAY({chosen}))")  # noqa: S608

    async def work(connection: AsyncConnection) -> int:
        return (await connection.execute(statement, {"before": before})).rowcount

    return await database.writing(work)
