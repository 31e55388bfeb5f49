"""Reads the recorded demand of a pool by quarters of an hour, and the other facts that a forecast needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import nan
from typing import Any

import msgspec
import numpy as np
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.capabilities import EngineCapability
from fairlead.forecasts.calendars import ForecastMode
from fairlead.forecasts.drafting import RoleLimits
from fairlead.forecasts.needs import Lead, refill_seconds
from fairlead.forecasts.proposals import Forecasted
from fairlead.forecasts.records import QUARTER, DemandRecord, Rates, Series
from fairlead.instances import Role
from fairlead.pools import PoolSpec
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.forecasts.forecasting import FollowedPool, ReadPool
from fairlead_api.infra.database import Database
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.pools.fixed_engines import engines_file
from fairlead_api.pools.store.capabilities import read_capability
from fairlead_api.schedules.outlooks import spec_of
from fairlead_api.webhooks.events import of_departure
from fairlead_api.webhooks.store import outbox

WEEKS = 9
"""Number of weeks of records that are read. They suffice for three forecasts: one from today, one from a week ago, and
one from three weeks ago.
"""
ASSUMED_START_SECONDS = 480.0
"""Seconds that the start of an instance is assumed to take while none was measured. A start usually takes two to eight
minutes; the longest of these is assumed.
"""

_LOADS = text("""
SELECT floor(extract(epoch FROM bucket) / 900)::bigint AS quarter, sum(seconds) AS seconds, sum(instance_seconds) AS instance_seconds,
  sum(requests_total) AS requests, sum(prompt_tokens) AS prompt_tokens, sum(hit_tokens) AS hit_tokens, sum(output_tokens) AS output_tokens,
  sum(within_slo) AS within_slo, sum(judged_by_slo) AS judged, sum(kv_usage_sum) AS kv_usage_sum, sum(kv_usage_n) AS kv_usage_n
FROM pool_rollups_1m WHERE pool_id = :pool AND bucket >= :start AND bucket < :end GROUP BY 1 ORDER BY 1
""")
_REFUSED = text("""
SELECT floor(extract(epoch FROM second) / 900)::bigint AS quarter, sum(count) AS refused
FROM rejections WHERE pool_id = :pool AND second >= :start AND second < :end GROUP BY 1
""")
_WANTED = text("SELECT role, at, replicas FROM wanted_replicas WHERE pool_id = :pool AND at < :end ORDER BY role, at")
_LEAST_SECONDS = 450


class PostgresForecasts:
    """Reads pools' demand records. Methods about one pool raise NotFound; `read` returns None for a pool without a
    usable spec.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def followed(self) -> Sequence[FollowedPool]:
        """Return the pools for which a forecast is made every day."""
        pools = tables.pools
        query = select(pools.c.id, pools.c.namespace, pools.c.name, pools.c.spec_in_force, pools.c.departed)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.where(pools.c.deleted_at.is_(None)).order_by(pools.c.id))).all()
        found = []
        for row in rows:
            spec = spec_of(row.spec_in_force)
            if spec is not None:
                follows = any(one.follows_forecast for one in spec.scaling.schedules)
                advises = spec.scaling.forecast.mode is ForecastMode.ADVISE
                key = PoolKey(namespace=row.namespace, name=row.name)
                found.append(FollowedPool(id=row.id, pool=key, advises=advises, follows=follows, departed=row.departed))
        return [one for one in found if one.advises or one.follows or one.departed]

    async def read(self, pool: PoolKey, now: datetime) -> ReadPool | None:
        """Return the pool's demand record up to `now` and the other facts for its forecast; None if the pool has no
        usable spec.
        """
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            spec = spec_of(row.spec_in_force)
            if spec is None:
                return None
            start = _quarter_start(now) - timedelta(weeks=WEEKS)
            values = {"pool": row.id, "start": start, "end": now}
            loads = (await connection.execute(_LOADS, values)).all()
            refused = {one.quarter: int(one.refused) for one in await connection.execute(_REFUSED, values)}
            wanted = (await connection.execute(_WANTED, values)).all() if len(spec.roles) > 1 else []
            capability = await read_capability(connection, row, now)
        record, figures = record_of(loads, refused, wanted, spec, start, _quarter_start(now))
        facts = forecasted(spec, capability, figures)
        return ReadPool(
            key=(row.id, row.uid, msgspec.json.encode(row.spec_in_force), facts.lead),
            pool=pool,
            record=record,
            facts=facts,
            start_is_measured=capability.start_seconds.observed is not None,
            engines_file=engines_file(row.annotations),
            departed=row.departed,
        )

    async def note_departure(self, pool: FollowedPool, words: str | None, now: datetime) -> None:
        """Store, for the operator, the description of how demand has departed from the forecast (`words`; None = no
        departure). A new departure also sends a notice.
        """

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(update(tables.pools).where(tables.pools.c.id == pool.id).values(departed=words))
            if words is not None and pool.departed is None:
                await outbox.write(connection, [of_departure(pool.pool, words)], now)

        await self._database.writing(work)


def _quarter_start(at: datetime) -> datetime:
    return at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFigures:
    """Recorded figures about caches: the share (0-1) of prompt tokens that caches saved, the used share (0-1) of an
    instance's KV cache, and the tokens per second that an instance adds to its cache.
    """

    hit_share: float
    used_share: float
    tokens_per_second: float


def record_of(
    loads: Sequence[Any], refused: Mapping[int, int], wanted: Sequence[Any], spec: PoolSpec, start: datetime, end: datetime
) -> tuple[DemandRecord, CacheFigures]:
    """Build the demand record and the cache figures from rows of quarters of an hour. Refused requests count as demand
    like served requests.
    """
    first, number = int(start.timestamp()) // 900, int((end - start) / QUARTER)
    columns = {name: np.full(number, nan) for name in ("requests", "prefill_tokens", "output_tokens", "instances", "in_time")}
    for row in loads:
        place = row.quarter - first
        if not 0 <= place < number or row.seconds < _LEAST_SECONDS:
            continue
        served = float(row.requests)
        asked = (served + refused.get(row.quarter, 0)) / served if served else 1.0
        columns["requests"][place] = (served + refused.get(row.quarter, 0)) / row.seconds
        columns["prefill_tokens"][place] = asked * float(row.prompt_tokens - row.hit_tokens) / row.seconds
        columns["output_tokens"][place] = asked * float(row.output_tokens) / row.seconds
        columns["instances"][place] = float(row.instance_seconds) / row.seconds
        columns["in_time"][place] = float(row.within_slo) / float(row.judged) if row.judged else nan
    rates = Rates(**{name: columns[name] for name in ("requests", "prefill_tokens", "output_tokens")})
    instances = {Role.BOTH: columns["instances"]} if len(spec.roles) == 1 else _by_role(wanted, columns["instances"], spec, start)
    return DemandRecord(start=start, rates=rates, instances=instances, in_time=columns["in_time"]), _cache_figures(loads)


def _by_role(wanted: Sequence[Any], recorded: Series, spec: PoolSpec, start: datetime) -> dict[Role, Series]:
    """Return the desired number of instances of each role, for the quarters of an hour in which the pool was
    recorded.
    """
    found = {}
    for role in spec.roles:
        line = np.full(len(recorded), nan)
        for row in wanted:
            if row.role == role.name.value:
                line[max(0, -(-(row.at - start) // QUARTER)) :] = float(row.replicas)
        found[role.name] = np.where(np.isfinite(recorded), line, nan)
    return found


def _cache_figures(loads: Sequence[Any]) -> CacheFigures:
    prompts, hits = (sum(float(getattr(row, name)) for row in loads) for name in ("prompt_tokens", "hit_tokens"))
    outputs, seconds = (sum(float(getattr(row, name)) for row in loads) for name in ("output_tokens", "instance_seconds"))
    used, times = sum(float(row.kv_usage_sum or 0.0) for row in loads), sum(int(row.kv_usage_n) for row in loads)
    return CacheFigures(
        hit_share=min(0.99, hits / prompts) if prompts else 0.0,
        used_share=used / times if times else 0.0,
        tokens_per_second=(prompts - hits + outputs) / seconds if seconds else 0.0,
    )


def forecasted(spec: PoolSpec, capability: EngineCapability, figures: CacheFigures) -> Forecasted:
    """Return the facts for a forecast, from a pool's spec and its measurements."""
    start = capability.start_seconds.observed
    held = figures.used_share * (capability.kv_cache_tokens.value or 0.0)
    return Forecasted(
        roles=tuple(
            RoleLimits(
                role=one.name,
                least=one.least,
                most=one.most,
                declared=spec.replicas if one.name is Role.BOTH else (one.replicas or one.least),
            )
            for one in spec.roles
        ),
        scaling=spec.scaling,
        schedules=spec.scaling.schedules,
        slo=spec.slo,
        forecast=spec.scaling.forecast,
        lead=_rounded(Lead(start_seconds=ASSUMED_START_SECONDS if start is None else start, refill_seconds=_refill(held, figures))),
        hit_share=figures.hit_share,
    )


def _refill(held: float, figures: CacheFigures) -> float:
    return refill_seconds(held, figures.tokens_per_second)


def _rounded(lead: Lead) -> Lead:
    """Return the lead times rounded up to whole minutes, so that a difference of a second does not cause a new
    forecast.
    """
    return replace(lead, start_seconds=60.0 * -(-lead.start_seconds // 60), refill_seconds=60.0 * -(-lead.refill_seconds // 60))
