"""TTFT percentiles of the last five minutes, exact over every stored sample.

They are the most expensive part of a pool's page, and hardly change within seconds.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text

from fairlead_api.services.sharing import Recent
from fairlead_api.store.database import Database

# unnest in the select list costs a third of what it costs as a table joined to each sample.
_OF_POOLS = """
SELECT wanted.id AS pool_id, of_pool.found
FROM unnest(CAST(:pools AS bigint[]), CAST(:shares AS float8[])) AS wanted (id, share), LATERAL
  (SELECT percentile_cont(ARRAY[0.5, 0.95, wanted.share]) WITHIN GROUP (ORDER BY t) AS found
   FROM (SELECT unnest(l.ttft_seconds) AS t FROM load_samples l
         WHERE l.pool_id = wanted.id AND l.second > CAST(:now AS timestamptz) - interval '5 minutes') AS ttfts) AS of_pool
"""
# Grouped by hashing and then sorted instance by instance: sorting all by instance first takes twice as long.
_OF_INSTANCES = """
SELECT instance, (SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY t) FROM unnest(ts) AS t) AS p95
FROM (SELECT instance, array_agg(t) AS ts
      FROM (SELECT l.instance, unnest(l.ttft_seconds) AS t FROM load_samples l
            WHERE l.pool_id = :pool AND l.second > CAST(:now AS timestamptz) - interval '5 minutes') AS ttfts
      GROUP BY instance) AS by_instance
"""


class Latencies:
    """Percentiles by pool and by instance, at most as old as `recent` allows."""

    def __init__(self, database: Database, recent: Recent) -> None:
        self._database = database
        self._recent = recent

    async def of_pools(self, pools: Sequence[int], shares: Sequence[float], now: datetime) -> dict[int, list[float | None]]:
        """Seconds at the median, at p95 and at each pool's SLO percentile, for pools that had requests.

        `shares` are those percentiles, 0-1, in the order of `pools`.
        """

        async def read() -> dict[int, list[float | None]]:
            async with self._database.reading() as connection:
                rows = await connection.execute(text(_OF_POOLS), {"pools": list(pools), "shares": list(shares), "now": now})
                return {row.pool_id: row.found for row in rows if row.found}

        return await self._recent.get(("pools", *pools, *shares), read)

    async def of_instances(self, pool: int, now: datetime) -> dict[str, float]:
        """Seconds at p95 of a pool's instances that had requests. To read those of one alone would take as long."""

        async def read() -> dict[str, float]:
            async with self._database.reading() as connection:
                rows = await connection.execute(text(_OF_INSTANCES), {"pool": pool, "now": now})
                return {row.instance: row.p95 for row in rows}

        return await self._recent.get(("instances", pool), read)
