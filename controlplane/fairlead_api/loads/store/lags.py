"""How far the roll-ups of pools lag behind what routers have reported.

A bucket that waits although later ones were rolled up already had a late sample, and is not a lag: buckets are rolled
up in their order, so the lag begins with the oldest one that none after it was rolled up before.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

SETTLE_SECONDS = 2.0
"""Before a bucket that ended is rolled up: most late samples come within it, and each has its bucket made again."""
BEHIND_SECONDS = 30.0
"""Roll-ups that lag by more are said to be behind: figures of the last minutes would miss a part of the requests."""
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
    """Of these pools those whose roll-ups are behind, each with the time up to which nothing is missing."""
    rows = await connection.execute(text(_WAITING), {"pools": list(pools)})
    return {row.pool_id: row.bucket for row in rows if lag_seconds(row.bucket, now) > BEHIND_SECONDS}


async def longest_lag(connection: AsyncConnection, now: datetime) -> float:
    """Seconds by which the roll-ups of the worst pool lag, 0 if nothing is overdue."""
    oldest: datetime | None = (await connection.execute(text(_OLDEST))).scalar_one()
    return 0.0 if oldest is None else lag_seconds(oldest, now)


def lag_seconds(oldest: datetime, now: datetime) -> float:
    """Seconds since the bucket that begins at `oldest` was due, 0 if it is not yet."""
    return max(0.0, (now - oldest - _DUE).total_seconds())
