"""Pools in sight over a range: requests in time, refused and failed, the TTFT at the percentile, instances' hours."""

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import select, text

from fairlead.latency_cells import latency_within
from fairlead.range_steps import Covered
from fairlead_api import tables
from fairlead_api.advice.store.situations import MOST_POOLS
from fairlead_api.infra.database import Database
from fairlead_api.infra.pool_rows import slo_of
from fairlead_api.infra.spans import Sight
from fairlead_api.series.reading import Subject
from fairlead_api.series.store.figures import FLEET_PERCENTILE, read_figures
from fairlead_api.series.store.series import pools_of
from fairlead_client.resources.advice import PoolTrend, Trends
from fairlead_client.resources.figures import RangeFigures

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
  GROUP BY GROUPING SETS ((s.pool_id, s.step, c.cell / 256), (s.step, c.cell / 256))
), added AS (
  SELECT *, sum(requests) OVER (PARTITION BY pool_id, step ORDER BY ttft) AS until, sum(requests) OVER (PARTITION BY pool_id, step) AS whole
  FROM each
)
SELECT DISTINCT ON (a.pool_id, a.step) a.pool_id, a.step, a.ttft,
  CAST((coalesce(wanted.share, :fleet) * a.whole - (a.until - a.requests)) / a.requests AS float8) AS part FROM added a
LEFT JOIN unnest(CAST(:pools AS integer[]), CAST(:shares AS float8[])) AS wanted (id, share) ON wanted.id = a.pool_id
WHERE a.until >= coalesce(wanted.share, :fleet) * a.whole ORDER BY a.pool_id, a.step, a.ttft
"""
_HOURS = text("""
SELECT pool_id, sum(greatest(0, extract(epoch FROM least(coalesce(gone_at, :end), :end) - greatest(created_at, :start)))) / 3600 AS hours
FROM instances WHERE pool_id = ANY(:pools) AND created_at < :end AND (gone_at IS NULL OR gone_at > :start) GROUP BY pool_id
""")


class PostgresTrends:
    """The source of trends."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def trends(self, where: Covered, step_seconds: int, now: datetime, sight: Sight = None) -> Trends:
        """Trends of all visible pools from the range's start, in whole steps until its end."""
        pools, start, end = tables.pools, where.start, min(where.end, now)
        steps = max(1, math.ceil((where.end - start).total_seconds() / step_seconds))
        counts: dict[int, list[list[int]]] = defaultdict(lambda: [[0] * steps for _ in _COUNTS])
        ttfts: dict[int | None, list[float | None]] = defaultdict(lambda: [None] * steps)
        async with self._database.reading() as connection:
            query = select(pools).where(pools.c.deleted_at.is_(None)).order_by(pools.c.namespace, pools.c.name).limit(MOST_POOLS)
            if sight is not None:
                query = query.where(pools.c.namespace.in_(sorted(sight)))
            rows = (await connection.execute(query)).all()
            values: dict[str, Any] = {"pools": [row.id for row in rows], "start": start, "end": end}
            table = "slo_rollups_1h" if where.by_hours else "slo_rollups_1m"
            counted = _COUNTED.format(seen=_SEEN.format(table=table, columns="judged, within_slo, refused, failed"))
            for row in await connection.execute(text(counted), {**values, "step": step_seconds}):
                for place, name in enumerate(_COUNTS):
                    counts[row.pool_id][place][row.step] = getattr(row, name)
            shares = [slo_of(row).percentile / 100 for row in rows]
            latencies = _LATENCIES.format(seen=_SEEN.format(table=table, columns="cells, counts"))
            more = {"step": step_seconds, "shares": shares, "fleet": FLEET_PERCENTILE / 100}
            for row in await connection.execute(text(latencies), {**values, **more}):
                ttfts[row.pool_id][row.step] = latency_within(row.ttft, row.part)
            hours = {row.pool_id: float(row.hours) for row in await connection.execute(_HOURS, values)}
            ever = await pools_of(connection, Subject(sight=sight))
            percentiles = {row.id: slo_of(row).percentile for row in rows}
            figures = await read_figures(connection, ever, percentiles, where, now)
        found = [
            _trend(f"{row.namespace}/{row.name}", counts[row.id], ttfts[row.id], hours.get(row.id, 0.0), figures[row.id]) for row in rows
        ]
        sums = [_added((counts[row.id][place] for row in rows), steps) for place in range(len(_COUNTS))]
        fleet = _trend("", sums, ttfts[None], sum(hours.values()), figures[None])
        return Trends(start=start, end=end, step_seconds=step_seconds, fleet=fleet, pools=found)


def _added(series: Iterable[list[int]], steps: int) -> list[int]:
    total = [0] * steps
    for one in series:
        total = [before + value for before, value in zip(total, one, strict=True)]
    return total


def _trend(pool: str, counts: list[list[int]], ttfts: list[float | None], hours: float, figures: RangeFigures) -> PoolTrend:
    judged, in_time, refused, failed = counts
    return PoolTrend(
        pool=pool,
        judged=judged,
        in_time=in_time,
        refused=refused,
        failed=failed,
        ttft_seconds=ttfts,
        instance_hours=hours,
        figures=figures,
    )
