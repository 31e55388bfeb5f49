"""Load samples: per-second values, their rollups, and heatmap cells from the coarsest table that suffices.

A rollup bucket is computed again from its samples whenever a report brought some (`rollup_queue`, filled in the
report's transaction). So rollups are exact even when reports come late or twice, and a crash loses no bucket.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey, SloFacts
from fairlead_api.services.errors import NotFound
from fairlead_api.services.history.heatmaps import Cell, Grid
from fairlead_api.store import tables
from fairlead_api.store.database import Database
from fairlead_api.store.history.slo_rollups import roll_up_slo
from fairlead_client.resources.heatmaps import METRICS, HeatmapMigration

_GAUGES = ("running", "waiting", "pending_prefill_tokens", "in_flight")
_TOTALS = {"requests_total": "requests", "failed_total": "failed"}
_SUMMED = {total: _TOTALS.get(total, total) for total in tables.SUMS}
_COUNTS = tuple(_SUMMED.values())

_WHERE = "{table}.pool_id = :pool AND {table}.second >= :start AND {table}.second < :end"

PER_SECOND = f"""
WITH by_router AS (
  SELECT instance, second, router, max(kv_usage) AS kv_usage,
    {", ".join(f"(array_agg({name} ORDER BY sent_at DESC))[1] AS {name}" for name in _GAUGES)},
    {", ".join(f"sum({name}) AS {name}" for name in _COUNTS)}
  FROM load_samples WHERE {_WHERE.format(table="load_samples")} GROUP BY instance, second, router
), ttft AS (
  SELECT l.instance, l.second, percentile_cont(0.95) WITHIN GROUP (ORDER BY v) AS p95
  FROM load_samples l, unnest(l.ttft_seconds) AS v WHERE {_WHERE.format(table="l")} GROUP BY l.instance, l.second
), tpot AS (
  SELECT l.instance, l.second, percentile_cont(0.95) WITHIN GROUP (ORDER BY v) AS p95
  FROM load_samples l, unnest(l.tpot_seconds) AS v WHERE {_WHERE.format(table="l")} GROUP BY l.instance, l.second
), whole AS (
  SELECT instance, second, max(kv_usage) AS kv_usage, {", ".join(f"sum({name}) AS {name}" for name in (*_GAUGES, *_COUNTS))}
  FROM by_router GROUP BY instance, second
), per_second AS (
  SELECT w.*, ttft.p95 AS ttft_p95, tpot.p95 AS tpot_p95,
    CASE WHEN w.prompt_tokens > 0 THEN w.hit_tokens::float8 / w.prompt_tokens::float8 END AS hit_rate
  FROM whole w LEFT JOIN ttft USING (instance, second) LEFT JOIN tpot USING (instance, second)
)
"""
"""The value of every metric of every instance for each second, over all routers.

Gauges are summed over routers, each with its last value.
"""

MAX_ARROWS = 1000
"""Most pairs of instances and columns that a heatmap carries."""

_MOVES = """
SELECT m.source, m.target, count(*) AS moves, max(m.at) AS at, (array_agg(m.id ORDER BY m.at DESC, m.id))[1] AS id,
       (array_agg(m.trigger ORDER BY m.at DESC, m.id))[1] AS trigger, CAST(sum(count(*)) OVER () AS bigint) AS total
FROM migrations m JOIN pools p ON p.id = m.pool_id
WHERE p.namespace = :namespace AND p.name = :name AND p.deleted_at IS NULL AND m.at >= :start AND m.at < :end
GROUP BY floor(extract(epoch FROM m.at - :start) / :step), m.source, m.target ORDER BY count(*) DESC, max(m.at) DESC LIMIT :most
"""


def _upsert(table: str, columns: list[str], source: str) -> str:
    replaced = ", ".join(f"{name} = excluded.{name}" for name in columns)
    names = ", ".join(("pool_id", "bucket", "instance", *columns))
    return f"INSERT INTO {table} ({names}) {source} ON CONFLICT (pool_id, bucket, instance) DO UPDATE SET {replaced}"


_COLUMNS = [f"{metric}_{part}" for metric in METRICS for part in ("max", "sum", "n")] + list(tables.SUMS)

_TO_10S = PER_SECOND + _upsert(
    "load_rollups_10s",
    _COLUMNS,
    "SELECT :pool, :start, instance, "
    + ", ".join(f"max({metric}), sum({metric}), count({metric})" for metric in METRICS)
    + ", "
    + ", ".join(f"coalesce(sum({source}), 0)" for source in _SUMMED.values())
    + " FROM per_second GROUP BY instance",
)
_TO_1M = _upsert(
    "load_rollups_1m",
    _COLUMNS,
    "SELECT pool_id, date_bin('1 minute', bucket, 'epoch'), instance, "
    + ", ".join(f"max({metric}_max), sum({metric}_sum), coalesce(sum({metric}_n), 0)" for metric in METRICS)
    + ", "
    + ", ".join(f"sum({total})" for total in tables.SUMS)
    + " FROM load_rollups_10s WHERE pool_id = :pool AND bucket >= :start AND bucket < :end GROUP BY 1, 2, 3",
)


class PostgresLoads:
    """Rollups and heatmap cells."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def roll_up(self, now: datetime, *, settle_seconds: float = 2.0, most: int = 200) -> int:
        """Recomputes up to `most` queued buckets that ended at least `settle_seconds` ago; returns how many.

        Each call is one transaction.
        """
        ended = now - timedelta(seconds=10 + settle_seconds)

        async def work(connection: AsyncConnection) -> int:
            rows = await connection.execute(
                text(
                    "WITH due AS (SELECT pool_id, bucket FROM rollup_queue WHERE bucket <= :ended GROUP BY pool_id, bucket "
                    "ORDER BY bucket LIMIT :most) DELETE FROM rollup_queue q USING due "
                    "WHERE q.pool_id = due.pool_id AND q.bucket = due.bucket RETURNING q.pool_id, q.bucket"
                ),
                {"ended": ended, "most": most},
            )
            buckets = sorted({(pool, bucket) for pool, bucket in rows})
            for pool, bucket in buckets:
                values = {"pool": pool, "start": bucket, "end": bucket + timedelta(seconds=10)}
                await connection.execute(text(_TO_10S), values)
            for pool, minute in sorted({(pool, bucket.replace(second=0, microsecond=0)) for pool, bucket in buckets}):
                await connection.execute(text(_TO_1M), {"pool": pool, "start": minute, "end": minute + timedelta(minutes=1)})
            await roll_up_slo(connection, buckets)
            return len(buckets)

        return await self._database.writing(work)

    async def cells(self, pool: PoolKey, metric: str, where: Grid) -> tuple[list[Cell], dict[str, tuple[InstanceState, Role]], SloFacts]:
        """Cells, state and role of the instances, and the SLO in force. `metric` is one of METRICS. Raises NotFound."""
        async with self._database.reading() as connection:
            pools, instances = tables.pools, tables.instances
            query = select(pools.c.id, pools.c.facts).where(
                pools.c.namespace == pool.namespace, pools.c.name == pool.name, pools.c.deleted_at.is_(None)
            )
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                raise NotFound("pool", str(pool))
            values: dict[str, Any] = {"pool": row.id, "start": where.start, "end": where.end, "step": where.step}
            rows = await connection.execute(text(_cells(metric, where.source)), values)
            cells = [
                Cell(instance=instance, column=int(column), maximum=float(maximum), total=float(total), count=int(count))
                for instance, column, maximum, total, count in rows
                if count
            ]
            about = await connection.execute(
                select(instances.c.id, instances.c.state, instances.c.role).where(
                    instances.c.pool_id == row.id, instances.c.gone_at.is_(None) | instances.c.id.in_({cell.instance for cell in cells})
                )
            )
            found = {name: (InstanceState(state), Role(role)) for name, state, role in about}
        slo = msgspec.convert(row.facts, MirroredFacts).table.slo if row.facts else SloFacts()
        return cells, found, slo

    async def moves(self, pool: PoolKey, where: Grid) -> tuple[list[HeatmapMigration], int]:
        """Migrations by column and pair, oldest first, and the number of migrations in the range.

        If there are more than MAX_ARROWS pairs, the busiest are kept.
        """
        values = {"namespace": pool.namespace, "name": pool.name, "start": where.start, "end": where.end, "step": where.step}
        async with self._database.reading() as connection:
            rows = (await connection.execute(text(_MOVES), {**values, "most": MAX_ARROWS})).all()
        found = [
            HeatmapMigration(
                id=row.id, at=row.at, source=row.source, target=row.target, trigger=BindingReason(row.trigger), count=row.moves
            )
            for row in rows
        ]
        return sorted(found, key=lambda move: (move.at, move.id)), int(rows[0].total) if rows else 0


def _cells(metric: str, source: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"{metric!r} is not a metric")
    if source == "1s":
        column = "floor(extract(epoch FROM second - :start) / :step)"
        return PER_SECOND + f"SELECT instance, {column}, max({metric}), sum({metric}), count({metric}) FROM per_second GROUP BY 1, 2"
    column = "floor(extract(epoch FROM bucket - :start) / :step)"
    parts = f"max({metric}_max), sum({metric}_sum), sum({metric}_n)"
    table = f"load_rollups_{source}"
    return f"SELECT instance, {column}, {parts} FROM {table} WHERE pool_id = :pool AND bucket >= :start AND bucket < :end GROUP BY 1, 2"
