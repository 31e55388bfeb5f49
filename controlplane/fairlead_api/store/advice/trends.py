"""Pools in sight over a range: requests in time, refused and failed, the TTFT at the percentile, instances' hours."""

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import select, text

from fairlead.latency_cells import EDGES
from fairlead_api.services.spans import Sight
from fairlead_api.store import tables
from fairlead_api.store.advice.situations import MOST_POOLS
from fairlead_api.store.database import Database
from fairlead_api.store.pools.rows import slo_of
from fairlead_client.resources.advice import PoolTrend, Trends

FLEET_SHARE = 0.95
_COUNTS = ("judged", "in_time", "refused", "failed")
_SEEN = """
SELECT pool_id, CAST(floor(extract(epoch FROM bucket - :start) / :step) AS integer) AS step, {columns}
FROM {table} WHERE pool_id = ANY(:pools) AND bucket >= :start AND bucket < :end
"""
_COUNTED = """
SELECT pool_id, step, CAST(sum(judged) AS bigint) AS judged, CAST(sum(within_slo) AS bigint) AS in_time,
  CAST(sum(refused) AS bigint) AS refused, CAST(sum(failed) AS bigint) AS failed FROM ({seen}) s GROUP BY pool_id, step
"""
_LATENCIES = """
WITH seen AS ({seen}), each AS (
  SELECT s.pool_id, s.step, c.cell / 256 AS ttft, sum(c.requests) AS requests
  FROM seen s, unnest(s.cells, s.counts) AS c (cell, requests)
  GROUP BY GROUPING SETS ((s.pool_id, s.step, c.cell / 256), (s.pool_id, c.cell / 256), (s.step, c.cell / 256), (c.cell / 256))
), added AS (
  SELECT *, sum(requests) OVER (PARTITION BY pool_id, step ORDER BY ttft) AS until, sum(requests) OVER (PARTITION BY pool_id, step) AS whole
  FROM each
)
SELECT a.pool_id, a.step, min(a.ttft) AS ttft FROM added a
LEFT JOIN unnest(CAST(:pools AS integer[]), CAST(:shares AS float8[])) AS wanted (id, share) ON wanted.id = a.pool_id
WHERE a.until >= coalesce(wanted.share, :fleet) * a.whole GROUP BY a.pool_id, a.step
"""
_HOURS = text("""
SELECT pool_id, sum(greatest(0, extract(epoch FROM least(coalesce(gone_at, :end), :end) - greatest(created_at, :start)))) / 3600 AS hours
FROM instances WHERE pool_id = ANY(:pools) AND created_at < :end AND (gone_at IS NULL OR gone_at > :start) GROUP BY pool_id
""")


class PostgresTrends:
    """Implements `services.advice.trends.TrendReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def trends(self, start: datetime, end: datetime, step_seconds: int, *, by_hours: bool, sight: Sight = None) -> Trends:
        pools = tables.pools
        steps = max(1, math.ceil((end - start).total_seconds() / step_seconds))
        counts: dict[int, list[list[int]]] = defaultdict(lambda: [[0] * steps for _ in _COUNTS])
        ttfts: dict[int | None, list[float | None]] = defaultdict(lambda: [None] * steps)
        whole: dict[int | None, float] = {}
        async with self._database.reading() as connection:
            query = select(pools).where(pools.c.deleted_at.is_(None)).order_by(pools.c.namespace, pools.c.name).limit(MOST_POOLS)
            if sight is not None:
                query = query.where(pools.c.namespace.in_(sorted(sight)))
            rows = (await connection.execute(query)).all()
            values: dict[str, Any] = {"pools": [row.id for row in rows], "start": start, "end": end}
            table = "slo_rollups_1h" if by_hours else "slo_rollups_1m"
            counted = _COUNTED.format(seen=_SEEN.format(table=table, columns="judged, within_slo, refused, failed"))
            for row in await connection.execute(text(counted), {**values, "step": step_seconds}):
                for place, name in enumerate(_COUNTS):
                    counts[row.pool_id][place][row.step] = getattr(row, name)
            shares = [slo_of(row).percentile / 100 for row in rows]
            latencies = _LATENCIES.format(seen=_SEEN.format(table=table, columns="cells, counts"))
            more = {"step": step_seconds, "shares": shares, "fleet": FLEET_SHARE}
            for row in await connection.execute(text(latencies), {**values, **more}):
                seconds = EDGES[min(row.ttft, len(EDGES) - 1)]
                if row.step is None:
                    whole[row.pool_id] = seconds
                else:
                    ttfts[row.pool_id][row.step] = seconds
            hours = {row.pool_id: float(row.hours) for row in await connection.execute(_HOURS, values)}
        found = [
            _trend(f"{row.namespace}/{row.name}", counts[row.id], ttfts[row.id], whole.get(row.id), hours.get(row.id, 0.0)) for row in rows
        ]
        sums = [_added((counts[row.id][place] for row in rows), steps) for place in range(len(_COUNTS))]
        fleet = _trend("", sums, ttfts[None], whole.get(None), sum(hours.values()))
        return Trends(start=start, end=end, step_seconds=step_seconds, fleet=fleet, pools=found)


def _added(series: Iterable[list[int]], steps: int) -> list[int]:
    total = [0] * steps
    for one in series:
        total = [before + value for before, value in zip(total, one, strict=True)]
    return total


def _trend(pool: str, counts: list[list[int]], ttfts: list[float | None], whole: float | None, hours: float) -> PoolTrend:
    judged, in_time, refused, failed = counts
    return PoolTrend(
        pool=pool,
        judged=judged,
        in_time=in_time,
        refused=refused,
        failed=failed,
        ttft_seconds=ttfts,
        ttft_whole_seconds=whole,
        instance_hours=hours,
    )
