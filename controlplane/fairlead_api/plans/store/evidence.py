"""Reads the data from which the effects of plans are estimated: instances, sessions, and the traffic of the last
minutes.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import text

from fairlead.hand_overs import Transfers
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.infra.records import read
from fairlead_api.loads.store.rollups import complete_until
from fairlead_api.plans.evidence import InstanceUse, PoolUse, Replay
from fairlead_api.pools.store.capabilities import read_capability
from fairlead_api.pools.store.observations import live_routers
from fairlead_api.slo.reading import stretch_of
from fairlead_api.slo.store import PostgresSlo

_USES = """
SELECT i.id, i.role, i.state, i.weight, count(s.session) AS bound_sessions, CAST(coalesce(sum(s.context_tokens), 0) AS bigint) AS cache_tokens,
count(s.session) FILTER (WHERE s.last_seen_at > CAST(:now AS timestamptz) - interval '5 minutes') AS recent_sessions,
CAST(coalesce(sum(s.context_tokens) FILTER (WHERE s.last_seen_at > CAST(:now AS timestamptz) - interval '5 minutes'), 0) AS bigint) AS recent_tokens
FROM instances i LEFT JOIN sessions s ON s.pool_id = i.pool_id AND s.instance = i.id
WHERE i.pool_id = :pool AND i.gone_at IS NULL GROUP BY i.pool_id, i.id ORDER BY i.id
"""
_TRAFFIC = """
SELECT sum(ttft_within_slo) AS within, sum(ttft_total) AS total, sum(requests_total) AS requests,
sum(prompt_tokens - hit_tokens) AS misses, extract(epoch FROM max(bucket) - min(bucket)) + 10 AS seconds
FROM pool_rollups_10s WHERE pool_id = :pool AND bucket > CAST(:now AS timestamptz) - interval '5 minutes'
"""
_TRANSFERS = """
SELECT count(*) AS tried, count(*) FILTER (WHERE cache = 'moved') AS came, coalesce(avg(transfer_seconds) FILTER (WHERE cache = 'moved'), 0) AS mean_seconds
FROM (SELECT cache, transfer_seconds FROM migrations WHERE pool_id = :pool AND at > CAST(:now AS timestamptz) - interval '1 day' AND cache IS NOT NULL
      ORDER BY at DESC LIMIT 1000) newest
"""
_OVER_LIMIT = """
SELECT sum(CAST(best > :limit AS int) / rate) / sum(1 / rate) AS share, count(*) AS requests
FROM (SELECT sample_rate AS rate, (SELECT min(CAST(one ->> 'predicted_ttft_seconds' AS float8)) FROM jsonb_array_elements(candidates) AS one) AS best
      FROM decisions WHERE pool_id = :pool AND at > :since ORDER BY at DESC LIMIT 2000) newest
WHERE best IS NOT NULL
"""
REPLAYED = timedelta(minutes=30)
"""Maximum age of recorded decisions. From younger decisions, the share of requests that a limit would refuse early is
estimated.
"""


class PostgresEvidence:
    """Implements `plans.evidence.EvidenceReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._slo = PostgresSlo(database)

    async def use(self, pool: PoolKey, now: datetime) -> PoolUse:
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            if row.facts is None:
                raise NotFound("usable spec of pool", str(pool))
            routers = await live_routers(connection, row.id)
            rows = (await connection.execute(text(_USES), {"pool": row.id, "now": now})).all()
            transfers = (await connection.execute(text(_TRANSFERS), {"pool": row.id, "now": now})).one()
            traffic = (await connection.execute(text(_TRAFFIC), {"pool": row.id, "now": now})).one()
            capability = await read_capability(connection, row, now)
            behind = bool(await complete_until(connection, [row.id], now))
        flowing = bool(traffic.requests) and not behind
        return PoolUse(
            facts=msgspec.convert(row.facts, MirroredFacts).table,
            instances=[read(InstanceUse, one, in_flight=sum(router.in_flight.get(one.id, 0) for router in routers)) for one in rows],
            attainment=float(traffic.within / traffic.total) if traffic.total and not behind else None,
            requests_per_second=float(traffic.requests) / float(traffic.seconds) if flowing else None,
            miss_tokens_per_second=float(traffic.misses) / float(traffic.seconds) if flowing else None,
            prefill_tokens_per_second=capability.prefill_tokens_per_second.observed,
            transfers=read(Transfers, transfers),
            routers=len(routers),
        )

    async def latencies(self, pool: PoolKey, now: datetime) -> Mapping[str, Mapping[int, int]]:
        return await self._slo.cells(pool, stretch_of(now - timedelta(days=1), now, now))

    async def over_limit(self, pool: PoolKey, ttft_seconds: float, now: datetime) -> Replay | None:
        async with self._database.reading() as connection:
            values = {"pool": (await pool_row(connection, pool)).id, "limit": ttft_seconds, "since": now - REPLAYED}
            found = (await connection.execute(text(_OVER_LIMIT), values)).one()
        if not found.requests:
            return None
        return Replay(share=float(found.share), requests=int(found.requests), seconds=REPLAYED.total_seconds())
