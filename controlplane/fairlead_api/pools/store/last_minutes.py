"""What pools and instances had in the last five minutes: percentiles of TTFT, exact over every stored sample, and the
hit rates of instances.

They are the most expensive part of a pool's page, and hardly change within seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from fairlead_api.infra.database import Database
from fairlead_api.infra.pool_rows import share
from fairlead_api.infra.sharing import Recent

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
_HITS = """
SELECT instance, sum(hit_tokens) AS hits, sum(prompt_tokens) AS prompts FROM load_rollups_10s
WHERE pool_id = :pool AND bucket > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY instance
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfInstance:
    """Seconds to the first token, and the share of prompt tokens that were cached; None where nothing is known."""

    ttft_p95: float | None = None
    hit_rate: float | None = None


NOTHING = OfInstance()


class LastMinutes:
    """Figures by pool and by instance, at most as old as `recent` allows."""

    def __init__(self, database: Database, recent: Recent) -> None:
        self._database = database
        self._recent = recent

    async def latencies(self, pools: Sequence[int], shares: Sequence[float], now: datetime) -> dict[int, list[float | None]]:
        """Seconds at the median, at p95 and at each pool's SLO percentile, for pools that had requests.

        `shares` are those percentiles, 0-1, in the order of `pools`.
        """

        async def read() -> dict[int, list[float | None]]:
            async with self._database.reading() as connection:
                rows = await connection.execute(text(_OF_POOLS), {"pools": list(pools), "shares": list(shares), "now": now})
                return {row.pool_id: row.found for row in rows if row.found}

        return await self._recent.get(("pools", *pools, *shares), read)

    async def of_instances(self, pool: int, now: datetime) -> dict[str, OfInstance]:
        """The figures of a pool's instances that had requests. Reading one instance alone would take as long."""

        async def read() -> dict[str, OfInstance]:
            values = {"pool": pool, "now": now}
            async with self._database.reading() as connection:
                p95 = {row.instance: row.p95 for row in await connection.execute(text(_OF_INSTANCES), values)}
                hits = {row.instance: share(row.hits, row.prompts) for row in await connection.execute(text(_HITS), values)}
            return {name: OfInstance(ttft_p95=p95.get(name), hit_rate=hits.get(name)) for name in p95.keys() | hits.keys()}

        return await self._recent.get(("instances", pool), read)
