"""Rollups of whole pools: 10 s from the rollups of instances, minutes from 10 s, hours from minutes. Also computes the
delay of rollups behind routers' reports.

Buckets are rolled up in order. If a later bucket is already rolled up, a waiting bucket only received a late sample.
The delay is therefore measured from the oldest waiting bucket after the last bucket that was rolled up.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables

SETTLE_SECONDS = 2.0
"""Seconds from the end of a bucket until it is rolled up. Most late samples arrive in that time; a sample that arrives
later updates its bucket.
"""
BEHIND_SECONDS = 30.0
"""Lag in seconds above which rollups count as behind. Figures of the last minutes would then miss some requests."""
_DUE = timedelta(seconds=10 + SETTLE_SECONDS)

_WAITING = """
SELECT p.id AS pool_id, waiting.bucket FROM unnest(CAST(:pools AS integer[])) AS p (id),
  LATERAL (SELECT max(r.bucket) AS bucket FROM pool_rollups_10s r WHERE r.pool_id = p.id) newest,
  LATERAL (SELECT min(q.bucket) AS bucket FROM rollup_queue q
           WHERE q.pool_id = p.id AND q.bucket > coalesce(newest.bucket, '-infinity')) waiting
WHERE waiting.bucket IS NOT NULL
"""
_OLDEST = """
SELECT min(waiting.bucket) FROM (SELECT DISTINCT pool_id AS id FROM rollup_queue) p,
  LATERAL (SELECT max(r.bucket) AS bucket FROM pool_rollups_10s r WHERE r.pool_id = p.id) newest,
  LATERAL (SELECT min(q.bucket) AS bucket FROM rollup_queue q
           WHERE q.pool_id = p.id AND q.bucket > coalesce(newest.bucket, '-infinity')) waiting
"""


async def complete_until(connection: AsyncConnection, pools: Sequence[int], now: datetime) -> dict[int, datetime]:
    """Return the pools whose rollups are behind, each with the time up to which its rollups are complete."""
    rows = await connection.execute(text(_WAITING), {"pools": list(pools)})
    return {row.pool_id: row.bucket for row in rows if lag_seconds(row.bucket, now) > BEHIND_SECONDS}


async def longest_lag(connection: AsyncConnection, now: datetime) -> float:
    """Return the seconds by which the rollups of the pool that lags most are overdue; 0 if nothing is overdue."""
    oldest: datetime | None = (await connection.execute(text(_OLDEST))).scalar_one()
    return 0.0 if oldest is None else lag_seconds(oldest, now)


def lag_seconds(oldest: datetime, now: datetime) -> float:
    """Return the seconds since the bucket that begins at `oldest` was due; 0 if the bucket is not due yet."""
    return max(0.0, (now - oldest - _DUE).total_seconds())


_COLUMNS = ("seconds", "instance_seconds", *tables.POOL_GAUGES, "kv_usage_sum", "kv_usage_n", *tables.SUMS)
_NAMES = ", ".join(_COLUMNS)
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)
_LONGER = (("pool_rollups_1m", "pool_rollups_10s", timedelta(minutes=1)), ("pool_rollups_1h", "pool_rollups_1m", timedelta(hours=1)))


def _upsert(target: str, source: str) -> str:
    conflict = f"ON CONFLICT (pool_id, bucket) DO UPDATE SET {_REPLACED}"
    return f"INSERT INTO {target} (pool_id, bucket, {_NAMES}) {source} HAVING count(*) > 0 {conflict}"


_GAUGES = ", ".join(f"sum({gauge}_sum / nullif({gauge}_n, 0)) * 10" for gauge in tables.POOL_GAUGES)
_TO_10S = text(
    _upsert(
        "pool_rollups_10s",
        f"SELECT :pool, :start, 10, count(*) * 10, {_GAUGES}, sum(kv_usage_sum), coalesce(sum(kv_usage_n), 0), "
        f"{', '.join(f'sum({name})' for name in tables.SUMS)} FROM load_rollups_10s WHERE pool_id = :pool AND bucket = :start",
    )
)
_TO_LONGER = [
    (
        length,
        text(
            _upsert(
                target,
                f"SELECT :pool, :start, {', '.join(f'sum({name})' for name in _COLUMNS)} FROM {source} "
                "WHERE pool_id = :pool AND bucket >= :start AND bucket < :end",
            )
        ),
    )
    for target, source, length in _LONGER
]


async def roll_up_pools(connection: AsyncConnection, buckets: Iterable[tuple[int, datetime]]) -> None:
    """Recompute pools' rollups of 10 s from rollups of instances, and the minutes and hours that contain them. Each of
    `buckets` is a pool's id and the start of the 10 s.
    """
    found = sorted(set(buckets))
    for pool, bucket in found:
        await connection.execute(_TO_10S, {"pool": pool, "start": bucket})
    for length, statement in _TO_LONGER:
        for pool, start in sorted({(pool, _down(bucket, length)) for pool, bucket in found}):
            await connection.execute(statement, {"pool": pool, "start": start, "end": start + length})


def _down(at: datetime, length: timedelta) -> datetime:
    at = at.replace(second=0, microsecond=0)
    return at if length < timedelta(hours=1) else at.replace(minute=0)
