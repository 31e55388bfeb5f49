"""Reads scaling decisions for the public API, and routers' measurements of a pool in the last half minute for the
operator.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import Role
from fairlead.scaling.recommendations import Controller, Verdict
from fairlead_api.infra.database import Database
from fairlead_api.infra.paging import Lists, between, narrowed
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Span
from fairlead_api.scaling.signals import LAG_SECONDS, WINDOW_SECONDS, PoolMeasures
from fairlead_api.tables import scaling_decisions
from fairlead_client.resources.pages import Page
from fairlead_client.resources.scaling import ScalingDecisionItem


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFilter:
    """Filter of scaling decisions."""

    pool: str | None = None
    role: Role | None = None
    controller: Controller | None = None
    verdict: Verdict | None = None
    start: datetime | None = None
    end: datetime | None = None


SHARED_SECONDS = 3.0

_IN_WINDOW = "pool_id = :pool AND second >= :start AND second < :end"

# One pass over the samples and no join: Postgres' statistics know nothing of the last half minute, so it expects one
# row of each side, joins in nested loops, and reads all samples again for every instance of every router.
MEASURES = text(f"""
WITH by_router AS (
  SELECT instance, rank, router, max(second) AS newest, count(*) FILTER (WHERE prefilling_seconds IS NULL) AS unreported,
    avg(pending_prefill_tokens) AS pending_mean, avg(running) AS running_mean,
    (array_agg(pending_prefill_tokens ORDER BY second DESC, sent_at DESC))[1] AS pending,
    sum(completed) AS completed, sum(prompt_tokens) AS prompt_tokens, sum(hit_tokens) AS hit_tokens,
    sum(output_tokens) AS output_tokens, sum(coalesce(generated_tokens, 0)) AS generated_tokens,
    sum(coalesce(prefilled_tokens, 0)) AS prefilled_tokens, sum(coalesce(prefilling_seconds, 0)) AS prefilling_seconds,
    sum(ttft_within_slo) AS ttft_within_slo, sum(ttft_total) AS ttft_total,
    sum(coalesce(tpot_within_slo, 0)) AS tpot_within_slo, sum(coalesce(tpot_total, 0)) AS tpot_total,
    sum((SELECT sum(CAST(v AS float8)) FROM unnest(tpot_seconds) AS v)) AS tpot_sum, sum(cardinality(tpot_seconds)) AS tpots
  FROM load_samples WHERE {_IN_WINDOW} GROUP BY instance, rank, router
), measured AS (
  SELECT instance, extract(epoch FROM max(newest)) AS newest, sum(unreported) AS unreported,
    sum(pending_mean) AS pending_mean, sum(pending) AS pending, sum(running_mean) AS running_mean,
    sum(prefilled_tokens) AS prefilled_tokens, sum(prefilling_seconds) / greatest(1, count(DISTINCT rank)) AS prefilling_seconds,
    sum(tpot_sum) / nullif(sum(tpots), 0) AS tpot_mean,
    sum(ttft_within_slo) AS ttft_within_slo, sum(ttft_total) AS ttft_total,
    sum(tpot_within_slo) AS tpot_within_slo, sum(tpot_total) AS tpot_total
  FROM by_router GROUP BY instance
), buckets AS (
  SELECT instance, bucket, completed, prompt_tokens, hit_tokens, output_tokens, generated_tokens,
    running_sum / nullif(running_n, 0) AS running, tpot_p95_sum / nullif(tpot_p95_n, 0) AS y
  FROM load_rollups_10s WHERE pool_id = :pool AND bucket >= :earlier AND bucket < :end
), ended AS (
  SELECT instance, y, array_agg(running) OVER (PARTITION BY instance ORDER BY bucket) AS until_then,
    round(least(300, y * output_tokens / nullif(completed, 0)) / 10)::int AS buckets_before
  FROM buckets
), decoded AS MATERIALIZED (
  SELECT instance, y, (SELECT avg(v) FROM unnest(until_then[cardinality(until_then) - buckets_before:]) AS v) AS b
  FROM ended WHERE y IS NOT NULL AND buckets_before IS NOT NULL
), steps AS (
  SELECT instance, count(*) AS n, sum(b) AS b, sum(y) AS y, sum(b * b) AS bb, sum(b * y) AS by
  FROM decoded WHERE b IS NOT NULL GROUP BY instance
)
SELECT json_build_object(
  'instances', (SELECT coalesce(json_agg(m), '[]') FROM measured m),
  'steps', (SELECT coalesce(json_agg(s), '[]') FROM steps s),
  'arrived', (SELECT json_build_object('requests', coalesce(sum(requests), 0), 'prompt_tokens', coalesce(sum(prompt_tokens), 0),
    'refused', (SELECT coalesce(json_object_agg(reason, refused), '{{}}') FROM
      (SELECT reason, sum(count) AS refused FROM rejections WHERE {_IN_WINDOW} GROUP BY reason) AS by_reason))
    FROM arrivals WHERE {_IN_WINDOW}),
  'prompts', (SELECT json_build_object('requests', coalesce(sum(requests), 0), 'tokens', coalesce(sum(prompt_tokens), 0),
    'squares', coalesce(sum(prompt_tokens_squared), 0)) FROM arrivals
    WHERE pool_id = :pool AND second >= :earlier AND second < :end AND prompt_tokens_squared IS NOT NULL),
  'window', (SELECT json_build_object('requests', coalesce(sum(completed), 0), 'prompt_tokens', coalesce(sum(prompt_tokens), 0),
    'hit_tokens', coalesce(sum(hit_tokens), 0), 'output_tokens', coalesce(sum(output_tokens), 0),
    'generated_tokens', coalesce(sum(generated_tokens), 0)) FROM by_router),
  'longer', (SELECT json_build_object('requests', coalesce(sum(completed), 0), 'prompt_tokens', coalesce(sum(prompt_tokens), 0),
    'hit_tokens', coalesce(sum(hit_tokens), 0), 'output_tokens', coalesce(sum(output_tokens), 0),
    'generated_tokens', coalesce(sum(generated_tokens), 0)) FROM buckets))
""")  # noqa: S608 (the condition is this module's own)


class Measuring:
    """Reads routers' measurements of a pool with one SQL statement. They are cached for SHARED_SECONDS, because the
    operator reads them every second during changes.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[datetime, PoolMeasures]] = {}

    async def read(self, connection: AsyncConnection, pool_id: int, now: datetime) -> PoolMeasures:
        """Return the measurements of the pool, cached or read now."""
        at, known = self._known.get(pool_id, (None, None))
        if at is None or known is None or not 0 <= (now - at).total_seconds() < SHARED_SECONDS:
            known = await _read(connection, pool_id, now)
            self._known[pool_id] = (now, known)
        return known

    def forget(self, pool_id: int) -> None:
        """Remove the cached measurements of a pool that is gone."""
        self._known.pop(pool_id, None)


async def _read(connection: AsyncConnection, pool_id: int, now: datetime) -> PoolMeasures:
    end = now.replace(microsecond=0) - timedelta(seconds=LAG_SECONDS)
    times = {"end": end, "start": end - timedelta(seconds=WINDOW_SECONDS), "earlier": end - timedelta(minutes=5)}
    found = (await connection.execute(MEASURES, {"pool": pool_id, **times})).scalar_one()
    return msgspec.convert(found, PoolMeasures, strict=False)


class PostgresScaling:
    """Reads scaling decisions for the public API."""

    def __init__(self, database: Database) -> None:
        self._lists = Lists(database)

    async def scaling_decisions(self, wanted: ScalingFilter, span: Span) -> Page[ScalingDecisionItem]:
        columns = scaling_decisions.c
        async with self._lists.database.reading() as connection:
            pool = await self._lists.pool_id(connection, wanted.pool)
            unserved = [(columns.role, wanted.role), (columns.controller, wanted.controller), (columns.verdict, wanted.verdict)]
            decided = between(select(scaling_decisions), columns.at, wanted.start, wanted.end)
            chosen = narrowed(decided, [(columns.pool_id, pool)], unserved)
            return await self._lists.page(connection, chosen, (columns.at, columns.id), _item, span)

    async def scaling_decision(self, decision_id: str) -> ScalingDecisionItem:
        """Return a decision. Raises NotFound."""
        query = select(scaling_decisions).where(scaling_decisions.c.id == decision_id)
        return await self._lists.one(query, "scaling decision", decision_id, _item)


def _item(row: Any, pool: str) -> ScalingDecisionItem:
    return read(ScalingDecisionItem, row, pool=pool)
