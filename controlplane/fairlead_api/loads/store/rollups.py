"""Rollups of whole pools: 10 s from those of its instances, minutes from these, hours from minutes.

Each is computed again whenever a report brought samples of its time, as those of instances are. So a chart of a pool
costs the same however many instances it has.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables

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
    """Computes these 10 s of pools again, from rollups of instances, and the minutes and hours that they are in."""
    found = sorted(set(buckets))
    for pool, bucket in found:
        await connection.execute(_TO_10S, {"pool": pool, "start": bucket})
    for length, statement in _TO_LONGER:
        for pool, start in sorted({(pool, _down(bucket, length)) for pool, bucket in found}):
            await connection.execute(statement, {"pool": pool, "start": start, "end": start + length})


def _down(at: datetime, length: timedelta) -> datetime:
    at = at.replace(second=0, microsecond=0)
    return at if length < timedelta(hours=1) else at.replace(minute=0)
