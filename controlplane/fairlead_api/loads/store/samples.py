"""Load samples: per-second values, their rollups, and heatmap cells from the coarsest table that suffices.

A rollup bucket is recomputed from its samples whenever a report adds samples to it (`rollup_queue`, filled in the
report's transaction). Therefore rollups are exact even when reports arrive late or twice, and a crash loses no bucket.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ARRAY, Text, any_, cast, select, text
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.capabilities import Figure, Source, agreed
from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason
from fairlead.reports.engines import Quantity
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey, SloFacts
from fairlead_api import tables
from fairlead_api.costs.store.recording import roll_up_work
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.loads.heatmaps import Grid, Limits, Place, Slice
from fairlead_api.loads.store.heatmap_columns import SECONDS, make_columns, read_columns
from fairlead_api.loads.store.rollups import SETTLE_SECONDS, longest_lag, roll_up_pools
from fairlead_api.moves.store import roll_up_moves
from fairlead_api.slo.store import roll_up_slo
from fairlead_client.resources.heatmaps import METRICS, HeatmapMigration

_log = logging.getLogger(__name__)

_GAUGES = ("running", "waiting", "pending_prefill_tokens", "in_flight")
_TOTALS = {"requests_total": "requests", "failed_total": "failed"}
SUMMED = {total: _TOTALS.get(total, total) for total in tables.SUMS}
"""For each sum in rollups, the name of the corresponding count in PER_SECOND's result."""
_COUNTS = tuple(SUMMED.values())


WORK = ("busy_seconds", "prefilling_seconds")
_BUSY = "running + completed + failed + cancelled + coalesce(generated_tokens, 0) > 0 OR prefilling > 0"
"""SQL expression for whether the instance had a request in a second."""


def _p95(values: str) -> str:
    return f"(SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY v) FROM unnest({values}) AS v)"


PER_SECOND = f"""
WITH samples AS (
  SELECT instance, second, kv_usage, prefilling_seconds, ttft_seconds, tpot_seconds, {", ".join((*_GAUGES, *_COUNTS))},
    row_number() OVER (PARTITION BY instance, rank, second, router ORDER BY sent_at DESC) = 1 AS newest
  FROM load_samples WHERE pool_id = :pool AND second >= :start AND second < :end
), whole AS (
  SELECT instance, second, max(kv_usage) AS kv_usage,
    {", ".join(f"CAST(sum({name}) FILTER (WHERE newest) AS bigint) AS {name}" for name in _GAUGES)},
    {", ".join(f"CAST(sum({name}) AS bigint) AS {name}" for name in _COUNTS)},
    least(1, coalesce(sum(prefilling_seconds), 0)) AS prefilling,
    joined_values(ttft_seconds) AS ttfts, joined_values(tpot_seconds) AS tpots
  FROM samples GROUP BY instance, second
), per_second AS (
  SELECT w.*, {_p95("ttfts")} AS ttft_p95, {_p95("tpots")} AS tpot_p95,
    CASE WHEN w.prompt_tokens > 0 THEN w.hit_tokens::float8 / w.prompt_tokens::float8 END AS hit_rate
  FROM whole w
)
"""
"""SQL for the value of every metric of every instance in each second, over all routers.

A gauge is the sum, over all routers and data-parallel ranks, of the last value that each reported. The statement has no
joins: Postgres has no statistics about the newest samples, so it would expect a handful of rows and choose a nested
loop.
"""

AT_ONCE = 1
"""Maximum number of buckets that are rolled up in one transaction. A report with a late sample of such a bucket waits
for the transaction's end.
"""

STEPS_OF_ROLLUPS = {"10s": 10, "1m": 60}
"""Seconds in a bucket, by the name of the rollup's resolution."""

MAX_ARROWS = 1000
"""Maximum number of arrows of a heatmap. An arrow represents the moves between a pair of instances in one column."""

_MOVES = """
WITH pool AS (
  SELECT id FROM pools WHERE namespace = :namespace AND name = :name AND deleted_at IS NULL
), counted AS (
  SELECT m.pool_id, m.source, m.target, count(*) AS moves, max(m.at) AS at, CAST(sum(count(*)) OVER () AS bigint) AS total
  FROM migrations m WHERE m.pool_id = (SELECT id FROM pool) AND m.at >= :start AND m.at < :end
  GROUP BY m.pool_id, date_bin(:step, m.at, :start), m.source, m.target ORDER BY count(*) DESC, max(m.at) DESC LIMIT :most
)
SELECT c.source, c.target, c.moves, c.at, c.total, n.id, n.trigger FROM counted c, LATERAL (
  SELECT m.id, m.trigger FROM migrations m
  WHERE m.pool_id = c.pool_id AND m.at = c.at AND m.source = c.source AND m.target = c.target ORDER BY m.id LIMIT 1
) n
"""
"""SQL for moves as arrows: selects the busiest pairs first and then the newest move of each pair, because sorting all
moves would cost more.
"""


def _upsert(table: str, columns: list[str], source: str) -> str:
    replaced = ", ".join(f"{name} = excluded.{name}" for name in columns)
    names = ", ".join(("pool_id", "bucket", "instance", *columns))
    return f"INSERT INTO {table} ({names}) {source} ON CONFLICT (pool_id, bucket, instance) DO UPDATE SET {replaced}"


_COLUMNS = [f"{metric}_{part}" for metric in METRICS for part in ("max", "sum", "n")] + list(tables.SUMS) + list(WORK)

_TO_10S = (PER_SECOND + SECONDS) + _upsert(
    "load_rollups_10s",
    _COLUMNS,
    "SELECT :pool, :start, instance, "
    + ", ".join(f"max({metric}), sum({metric}), count({metric})" for metric in METRICS)
    + ", "
    + ", ".join(f"coalesce(sum({source}), 0)" for source in SUMMED.values())
    + f", count(*) FILTER (WHERE {_BUSY}), coalesce(sum(prefilling), 0) FROM per_second GROUP BY instance",
)
_TO_1M = _upsert(
    "load_rollups_1m",
    _COLUMNS,
    "SELECT pool_id, date_bin('1 minute', bucket, 'epoch'), instance, "
    + ", ".join(f"max({metric}_max), sum({metric}_sum), coalesce(sum({metric}_n), 0)" for metric in METRICS)
    + ", "
    + ", ".join(f"sum({total})" for total in (*tables.SUMS, *WORK))
    + " FROM load_rollups_10s WHERE pool_id = :pool AND bucket >= :start AND bucket < :end GROUP BY 1, 2, 3",
)


class PostgresLoads:
    """Rollups of load, and the cells of heatmaps, in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def roll_up(self, now: datetime) -> int:
        """Recompute up to AT_ONCE queued buckets that ended at least SETTLE_SECONDS ago, and queued minutes of moves,
        in one transaction. Returns the number of recomputed buckets and minutes.
        """
        ended = now - timedelta(seconds=10 + SETTLE_SECONDS)

        async def work(connection: AsyncConnection) -> int:
            rows = await connection.execute(
                text(
                    "WITH due AS (SELECT pool_id, bucket FROM rollup_queue WHERE bucket <= :ended GROUP BY pool_id, bucket "
                    "ORDER BY bucket LIMIT :most) DELETE FROM rollup_queue q USING due "
                    "WHERE q.pool_id = due.pool_id AND q.bucket = due.bucket RETURNING q.pool_id, q.bucket"
                ),
                {"ended": ended, "most": AT_ONCE},
            )
            buckets = sorted({(pool, bucket) for pool, bucket in rows})
            for pool, bucket in buckets:
                await _roll_up_if_possible(connection, pool, bucket)
            return len(buckets) + await roll_up_moves(connection, now - timedelta(seconds=SETTLE_SECONDS))

        return await self._database.writing(work)

    async def lag(self, now: datetime) -> float:
        """Return the seconds by which the rollups of the pool that lags most are overdue."""
        async with self._database.reading() as connection:
            return await longest_lag(connection, now)

    async def slices(self, pool: PoolKey, metric: str, where: Grid, *, mean: bool) -> tuple[list[Slice], dict[str, Place], Limits]:
        """Return the heatmap's columns: maxima, or sums and seconds for a mean. Also return the instances' states,
        roles and nodes, and their limits. `metric` is one of METRICS. Raises NotFound.
        """
        async with self._database.reading() as connection:
            instances = tables.instances
            number, limits = await pool_and_limits(connection, pool)
            slices, gaps = await read_columns(connection, number, metric, where, mean=mean)
            for start, end in gaps:
                values = {"pool": number, "start": start, "end": end, "origin": where.start, "step": timedelta(seconds=where.step)}
                rows = await connection.execute(text(_slices(metric, where, mean=mean)), values)
                slices += [
                    Slice(
                        column=int((at - where.start).total_seconds()) // where.step, instances=names, values=found, seconds=seconds or ()
                    )
                    for at, names, found, seconds in rows
                ]
            seen: set[str] = set().union(*{id(one.instances): one.instances for one in slices}.values())
            living_or_seen = instances.c.gone_at.is_(None) | (instances.c.id == any_(cast(sorted(seen), ARRAY(Text))))
            about = await connection.execute(
                select(instances.c.id, instances.c.state, instances.c.role, instances.c.node).where(
                    instances.c.pool_id == number, living_or_seen
                )
            )
            found = {name: Place(state=InstanceState(state), role=Role(role), node=node) for name, state, role, node in about}
        return slices, found, limits

    async def moves(self, pool: PoolKey, where: Grid) -> tuple[list[HeatmapMigration], int]:
        """Return migrations in a range, combined by column and pair of instances, oldest first. Also return the number
        of all migrations in the range.

        If there are more than MAX_ARROWS pairs, only the busiest pairs are returned.
        """
        values = {"namespace": pool.namespace, "name": pool.name, "start": where.start, "end": where.end}
        values |= {"step": timedelta(seconds=where.step), "most": MAX_ARROWS}
        async with self._database.reading() as connection:
            rows = (await connection.execute(text(_MOVES), values)).all()
        found = [
            HeatmapMigration(
                id=row.id, at=row.at, source=row.source, target=row.target, trigger=BindingReason(row.trigger), count=row.moves
            )
            for row in rows
        ]
        return sorted(found, key=lambda move: (move.at, move.id)), int(rows[0].total) if rows else 0


async def _roll_up_if_possible(connection: AsyncConnection, pool: int, bucket: datetime) -> None:
    """Recompute the rollups of a bucket. A bucket with sums that no column can hold is left out, and logged: otherwise
    it would be tried again and again, and all later buckets of all pools would wait behind it.
    """
    try:
        async with connection.begin_nested():
            await _roll_up_bucket(connection, pool, bucket)
    except DataError as error:
        extra = {"pool_id": pool, "bucket": bucket.isoformat(), "error": str(error.orig)}
        _log.error("samples that cannot be summed are left out of rollups", extra=extra)


async def _roll_up_bucket(connection: AsyncConnection, pool: int, bucket: datetime) -> None:
    await connection.execute(text(_TO_10S), {"pool": pool, "start": bucket, "end": bucket + timedelta(seconds=10)})
    minute = bucket.replace(second=0, microsecond=0)
    await connection.execute(text(_TO_1M), {"pool": pool, "start": minute, "end": minute + timedelta(minutes=1)})
    for compute in (make_columns, roll_up_pools, roll_up_work, roll_up_slo):
        await compute(connection, [(pool, bucket)])


async def pool_and_limits(connection: AsyncConnection, pool: PoolKey) -> tuple[int, Limits]:
    """Return the database id of an existing pool, and the limits of its instances' load. Raises NotFound."""
    pools = tables.pools
    remembered = pools.c.measured["capability"]["prefill_tokens_per_second"]["value"]
    query = select(pools.c.id, pools.c.facts, remembered.label("speed")).where(
        pools.c.namespace == pool.namespace, pools.c.name == pool.name, pools.c.deleted_at.is_(None)
    )
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound("pool", str(pool))
    slo = msgspec.convert(row.facts, MirroredFacts).table.slo if row.facts else SloFacts()
    return row.id, Limits(slo=slo, prefill_speed=await _prefill_speed(connection, row.id) or row.speed)


async def _prefill_speed(connection: AsyncConnection, pool_id: int) -> float | None:
    """Return the speed of an instance in uncached prompt tokens per second, as routers measure it now; None if it is
    not measured.
    """
    routers = tables.routers
    learnt = routers.c.learnt_figures[str(pool_id)][""]
    rows = await connection.execute(select(learnt).where(routers.c.gone_at.is_(None), learnt.is_not(None)))
    told = [one for (figures,) in rows for one in figures if one["quantity"] == Quantity.PREFILL and one.get("value") is not None]
    return agreed([_measured(one) for one in told]).value


def _measured(one: Mapping[str, Any]) -> Figure:
    return Figure(value=one["value"], source=Source.MEASURED, samples=one.get("value_samples", 0), age_seconds=one.get("age_seconds"))


def _slices(metric: str, where: Grid, *, mean: bool) -> str:
    """Return SQL that selects one row for each column of [:start, :end) with values: the column's start, and the names,
    values and seconds of its instances.

    Reading one row per cell would take four times as long.
    """
    if metric not in METRICS:
        raise ValueError(f"{metric!r} is not a metric")
    lists = "array_agg(instance), array_agg(value), " + ("array_agg(seconds)" if mean else "NULL")
    at = "date_bin(:step, {name}, :origin)"
    if where.source == "1s":
        value = f"CAST(CAST({'sum' if mean else 'max'}({metric}) AS text) AS float8)"  # as short as the sample was written
        cells = (
            f"SELECT instance, {at.format(name='second')} AS at, {value} AS value, count({metric}) AS seconds FROM per_second GROUP BY 1, 2"
        )
        return f"{PER_SECOND}SELECT at, {lists} FROM ({cells}) cells WHERE seconds > 0 GROUP BY at"
    chosen = f"{metric}_sum" if mean else f"{metric}_max"
    table = f"load_rollups_{where.source} WHERE pool_id = :pool AND bucket >= :start AND bucket < :end AND {metric}_n > 0"
    cells = f"SELECT instance, bucket AS at, {chosen} AS value, {metric}_n AS seconds FROM {table}"
    if where.step > STEPS_OF_ROLLUPS[where.source]:
        merge = "sum" if mean else "max"
        cells = (
            f"SELECT instance, {at.format(name='bucket')} AS at, {merge}({chosen}) AS value, sum({metric}_n) AS "
            f"seconds FROM {table} GROUP BY 1, 2"
        )
    return f"SELECT at, {lists} FROM ({cells}) cells GROUP BY at"
