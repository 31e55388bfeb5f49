"""Summaries of pools: state, and traffic, latencies, refusals and moves of the last five minutes. Summaries of
instances: state, newest load, and hits and latency of the last five minutes. Figures from rollups are unknown while the
rollups lag behind.

Pools' percentiles of TTFT, computed exactly from every stored sample, and instances' hit rates are the most expensive
part of a pool's page. They hardly change within seconds, so they are cached (`LastMinutes`).
"""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import InstanceState, Role
from fairlead.table_content import MirroredFacts
from fairlead.tables import MIGRATIONS_MODES
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.object_marks import owner_of
from fairlead_api.infra.pool_rows import conditions_of, share, slo_of
from fairlead_api.infra.records import read
from fairlead_api.infra.sharing import Recent
from fairlead_api.loads.store.rollups import complete_until
from fairlead_api.pools.fixed_engines import engines_file, scale_target_of, selector_of
from fairlead_api.pools.mirroring import newest_of_each, ready_condition
from fairlead_api.pools.store.live_routers import COUNT_LIVE, IS_LIVE
from fairlead_api.pools.store.observations import live_routers
from fairlead_client.resources.instances import CacheKnowledge, EngineCondition, InstanceCount, InstanceSummary, RankLoad
from fairlead_client.resources.pools import PoolSummary

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
    """An instance's TTFT in seconds, and its cached share (0-1) of prompt tokens; None if unknown."""

    ttft_p95: float | None = None
    hit_rate: float | None = None


NOTHING = OfInstance()


class LastMinutes:
    """Caches figures of the last minutes by pool and by instance, for at most the time that `recent` allows."""

    def __init__(self, database: Database, recent: Recent) -> None:
        self._database = database
        self._recent = recent

    async def latencies(self, pools: Sequence[int], shares: Sequence[float], now: datetime) -> dict[int, list[float | None]]:
        """Return three percentiles of TTFT in seconds for each pool, by pool id: the median, p95 and the pool's SLO
        percentile. Pools without requests are left out.

        `shares` are the SLO percentiles, 0-1, in the order of `pools`.
        """

        async def read() -> dict[int, list[float | None]]:
            async with self._database.reading() as connection:
                rows = await connection.execute(text(_OF_POOLS), {"pools": list(pools), "shares": list(shares), "now": now})
                return {row.pool_id: row.found for row in rows if row.found}

        return await self._recent.get(("pools", *pools, *shares), read)

    async def of_instances(self, pool: int, now: datetime) -> dict[str, OfInstance]:
        """Return the figures of those instances of a pool that had requests. Reading only one instance would take
        equally long.
        """

        async def read() -> dict[str, OfInstance]:
            values = {"pool": pool, "now": now}
            async with self._database.reading() as connection:
                p95 = {row.instance: row.p95 for row in await connection.execute(text(_OF_INSTANCES), values)}
                hits = {row.instance: share(row.hits, row.prompts) for row in await connection.execute(text(_HITS), values)}
            return {name: OfInstance(ttft_p95=p95.get(name), hit_rate=hits.get(name)) for name in p95.keys() | hits.keys()}

        return await self._recent.get(("instances", pool), read)


TRAFFIC = """
SELECT r.pool_id, sum(ttft_within_slo) AS within, sum(ttft_total) AS total, sum(within_slo) AS within_slo, sum(judged_by_slo) AS judged,
       sum(requests_total) AS requests, sum(hit_tokens) AS hits, sum(prompt_tokens) AS prompts,
       extract(epoch FROM max(bucket) - min(bucket)) + 10 AS seconds
FROM pool_rollups_10s r WHERE r.pool_id = ANY(:pools) AND r.bucket > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY r.pool_id
"""
_REFUSED = """
SELECT pool_id, sum(count) AS refused FROM rejections
WHERE pool_id = ANY(:pools) AND second > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY pool_id
"""
_MOVED = """
SELECT pool_id, sum(moves) FILTER (WHERE sort = 'migrated') AS migrated, sum(moves) FILTER (WHERE sort = 'rerouted') AS rerouted,
       sum(moves) FILTER (WHERE sort = 'lost') AS lost
FROM (SELECT pool_id, at, 1 AS moves, 'migrated' AS sort FROM migrations UNION ALL
      SELECT pool_id, at, 1, 'rerouted' FROM reroutes WHERE trigger <> 'prefix-copied'
      UNION ALL SELECT pool_id, minute, moves, 'lost' FROM lost_moves) m
WHERE pool_id = ANY(:pools) AND at > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY pool_id
"""
_STATES = """
SELECT pool_id, count(*) FILTER (WHERE state = 'Serving') AS serving, count(*) FILTER (WHERE state = 'Draining') AS draining,
       count(*) FILTER (WHERE state = 'Asleep') AS asleep,
       string_agg(id || ' ' || state, ',' ORDER BY id) AS each
FROM instances WHERE pool_id = ANY(:pools) AND gone_at IS NULL GROUP BY pool_id
"""


async def pool_summaries(last_minutes: LastMinutes, connection: AsyncConnection, rows: list[Any], now: datetime) -> list[PoolSummary]:
    """Return the summaries of pools, in the order of `rows`, which are rows of the table pools."""
    ids = [row.id for row in rows]
    if not ids:
        return []
    traffic, refused, moved = [await _by_pool(connection, query, ids, now) for query in (TRAFFIC, _REFUSED, _MOVED)]
    shares = [slo_of(row).percentile / 100 for row in rows]
    latency = await last_minutes.latencies(ids, shares, now)
    states = {row.pool_id: row for row in await connection.execute(text(_STATES), {"pools": ids})}
    behind = {pool: (now - at).total_seconds() for pool, at in (await complete_until(connection, ids, now)).items()}
    idle = 0.0 if (await connection.execute(COUNT_LIVE)).scalar_one() else None
    return [
        _summary(
            row,
            None if row.id in behind else traffic.get(row.id),
            None if row.id in behind else latency.get(row.id),
            refused.get(row.id),
            moved.get(row.id),
            states.get(row.id),
            behind.get(row.id, 0.0),
            None if row.id in behind else idle,
            now,
        )
        for row in rows
    ]


async def _by_pool(connection: AsyncConnection, query: str, pools: list[int], now: datetime) -> dict[int, Any]:
    return {row.pool_id: row for row in await connection.execute(text(query), {"pools": pools, "now": now})}


def _summary(
    row: Any, traffic: Any, latency: Any, refused: Any, moved: Any, states: Any, behind: float, idle: float | None, now: datetime
) -> PoolSummary:
    """Return a pool's summary. `idle` is the request rate to show if the pool has no traffic: zero, or None if no
    router reports.
    """
    facts = msgspec.convert(row.facts, MirroredFacts) if row.facts else None
    ready = ready_condition(conditions_of(row), row.problem)
    p50, p95, at_percentile = latency if latency else (None, None, None)
    slo = slo_of(row)
    # over what there was of the last 5 minutes, so that a young pool's rates are not too low
    window = min(300.0, max(10.0, (now - row.created_at).total_seconds()))
    return PoolSummary(
        namespace=row.namespace,
        name=row.name,
        model=row.model,
        engine=facts.table.engine.type if facts else str(_inside(row.spec, "engine", "type") or "simulated"),
        policy=facts.table.routing.policy if facts else str(_inside(row.spec, "routing", "policy") or ""),
        ready=ready.status == "True",
        ready_reason=ready.reason,
        ready_message=ready.message,
        desired=sum(desired_of(row).values()),
        serving=states.serving if states else 0,
        draining=states.draining if states else 0,
        asleep=states.asleep if states else 0,
        attainment=share(traffic.within, traffic.total) if traffic else None,
        slo_attainment=share(traffic.within_slo, traffic.judged) if traffic else None,
        slo_percentile=slo.percentile,
        ttft_slo_seconds=slo.ttft_seconds,
        ttft_p50_seconds=p50,
        ttft_p95_seconds=p95,
        ttft_at_percentile_seconds=at_percentile,
        hit_rate=share(traffic.hits, traffic.prompts) if traffic else None,
        requests_per_second=float(traffic.requests) / float(traffic.seconds) if traffic else idle,
        rejections_per_second=float(refused.refused) / window if refused else 0.0,
        sessions_moved=int(moved.migrated or 0) if moved else 0,
        requests_rerouted=int(moved.rerouted or 0) if moved else 0,
        lost_moves=int(moved.lost or 0) if moved else 0,
        figures_behind_seconds=behind,
        table_version=row.table_version,
        state_digest=_digest(row, states.each if states else ""),
        owner=owner_of(row.labels, row.annotations, (row.changed_by,)),
        engines_file=engines_file(row.annotations),
        migrations=facts.table.routing.migrations if facts else str(_inside(row.spec, "routing", "migrations") or MIGRATIONS_MODES[0]),
        selector=selector_of(row.spec),
        scale_target=scale_target_of(row.spec),
        created_at=row.created_at,
    )


def _digest(row: Any, instances: str) -> str:
    """Return eight hex digits that change with everything that a page shows of the pool, except request rates and
    latencies.
    """
    seen = (row.generation, row.table_version, row.problem, row.conditions, row.desired, instances)
    return f"{zlib.crc32(msgspec.json.encode(seen)):08x}"


def desired_of(row: Any) -> dict[str, int]:
    """Return the desired number of instances of each role, from a row of the table pools."""
    return row.desired or declared_by(row.spec)


def declared_by(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of instances that a spec declares for each role. Parts of the spec that cannot be read are left
    out.

    Declared numbers replace the desired numbers that a pool's status lacks: the status of a new pool has none yet, and
    an older operator never sets them.
    """
    roles = [role for role in spec.get("roles") or () if isinstance(role, Mapping) and role.get("name") != Role.BOTH]
    declared = {str(role.get("name")): role.get("replicas") or max(1, role.get("minReplicas") or 0) for role in roles}
    found = declared or {Role.BOTH.value: spec.get("replicas", 1)}
    return {role: number for role, number in found.items() if isinstance(number, int)}


def _inside(spec: Mapping[str, Any], *path: str) -> Any:
    found: Any = spec
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


_LATELY = "load_samples WHERE pool_id = :pool AND {of} AND second > CAST(:now AS timestamptz) - interval '20 seconds'"
# To sort all these samples takes twice as long as to find the newest seconds first. IS TRUE keeps the planner, which
# expects one row of the last seconds, from joining the two in nested loops: so it looks each sample up in a hash table.
_NEWEST = f"""
SELECT instance, sum(running) AS running, sum(waiting) AS waiting, sum(pending_prefill_tokens) AS pending, max(kv_usage) AS kv_usage
FROM (SELECT DISTINCT ON (instance, rank, router) instance, running, waiting, pending_prefill_tokens, kv_usage
      FROM {_LATELY} AND
        ((instance, coalesce(rank, -1), router, second) IN
          (SELECT instance, coalesce(rank, -1), router, max(second) FROM {_LATELY} GROUP BY 1, 2, 3)) IS TRUE
      ORDER BY instance, rank, router, sent_at DESC) newest
GROUP BY instance
"""  # noqa: S608 (the condition is this module's own)
_BOUND = "SELECT instance, count(*) AS bound FROM sessions WHERE pool_id = :pool AND {of} AND instance IS NOT NULL GROUP BY instance"

_RANKS = f"""
WITH newest AS (
  SELECT DISTINCT ON (rank, router) rank, running, waiting, pending_prefill_tokens, kv_usage
  FROM {_LATELY.format(of="instance = :instance")} AND rank IS NOT NULL ORDER BY rank, router, second DESC, sent_at DESC
), bound AS (
  SELECT rank, count(*) AS sessions FROM sessions WHERE pool_id = :pool AND instance = :instance GROUP BY rank
)
SELECT n.rank, CAST(sum(n.running) AS bigint) AS running, CAST(sum(n.waiting) AS bigint) AS waiting,
  CAST(sum(n.pending_prefill_tokens) AS bigint) AS pending_prefill_tokens, max(n.kv_usage) AS kv_usage,
  coalesce((SELECT sessions FROM bound b WHERE b.rank = n.rank), 0) AS bound_sessions
FROM newest n GROUP BY n.rank ORDER BY n.rank
"""  # noqa: S608 (the condition is this module's own)

_NO_LOAD, _NONE_BOUND = (0, 0, 0, None), (0,)


async def known_caches(connection: AsyncConnection, pool_id: int, instance: str) -> list[CacheKnowledge]:
    """Return each live router's knowledge about the instance's prefix cache, ordered by the routers' names."""
    routers = tables.routers
    known = routers.c.known_caches[str(pool_id)][instance]
    rows = await connection.execute(select(routers.c.id, known).where(IS_LIVE, known.is_not(None)).order_by(routers.c.id))
    return [CacheKnowledge(router=router, **fields) for router, fields in rows]


async def engine_conditions(connection: AsyncConnection, pool_id: int, instance: str) -> list[EngineCondition]:
    """Return the troubles that live routers report about the instance's engine, each once, with the description of the
    router that reported it last.
    """
    routers = await live_routers(connection, pool_id)
    found = [one for router in routers for one in router.troubled_engines if one.instance == instance]
    return [
        EngineCondition(
            reason=one.trouble, message=one.words, seconds=one.seconds, routers=sum(other.trouble == one.trouble for other in found)
        )
        for one in newest_of_each(found)
    ]


async def rank_loads(connection: AsyncConnection, pool_id: int, instance: str, now: datetime) -> list[RankLoad]:
    """Return the loads of the instance's data-parallel ranks that routers reported in the last seconds."""
    rows = await connection.execute(text(_RANKS), {"pool": pool_id, "instance": instance, "now": now})
    return [read(RankLoad, row) for row in rows]


async def instance_counts(connection: AsyncConnection, pool_id: int) -> list[InstanceCount]:
    """Return the number of existing instances in each role and state. A state that this version does not know, stored
    by a newer version that was rolled back, is left out.
    """
    instances = tables.instances.c
    known = instances.role.in_(list(Role)), instances.state.in_(list(InstanceState))
    counted = select(instances.role, instances.state, func.count().label("count")).where(
        instances.pool_id == pool_id, instances.gone_at.is_(None), *known
    )
    rows = await connection.execute(counted.group_by(instances.role, instances.state).order_by(instances.role, instances.state))
    return [read(InstanceCount, row) for row in rows]


async def instance_summaries(
    last_minutes: LastMinutes, connection: AsyncConnection, pool: Any, now: datetime, only: Sequence[str] | None = None
) -> list[InstanceSummary]:
    """Return summaries of existing instances, ordered by id; or with `only`, of the instances that it names, even if
    they are gone.
    """
    instances = tables.instances
    query = select(instances).where(instances.c.pool_id == pool.id).order_by(instances.c.id)
    rows = (await connection.execute(query.where(instances.c.gone_at.is_(None) if only is None else instances.c.id.in_(only)))).all()
    # a thousand names are not sent, nor compared with each sample, where all are meant
    values = {"pool": pool.id, "now": now} | ({} if only is None else {"names": [row.id for row in rows]})

    async def by_instance(query: str) -> dict[str, Sequence[Any]]:
        of = "TRUE" if only is None else "instance = ANY(:names)"
        return {instance: figures for instance, *figures in await connection.execute(text(query.format(of=of)), values)}

    newest, bound = [await by_instance(query) for query in (_NEWEST, _BOUND)]
    lately = await last_minutes.of_instances(pool.id, now)
    in_flight = Counter[str]()
    for router in await live_routers(connection, pool.id):
        in_flight.update(router.in_flight)
    name = f"{pool.namespace}/{pool.name}"
    found = []
    for row in rows:
        running, waiting, pending, kv_usage = newest.get(row.id, _NO_LOAD)
        had = lately.get(row.id, NOTHING)
        found.append(
            read(
                InstanceSummary,
                row,
                pool=name,
                in_flight=in_flight[row.id],
                running=int(running),
                waiting=int(waiting),
                pending_prefill_tokens=int(pending),
                kv_usage=kv_usage,
                bound_sessions=bound.get(row.id, _NONE_BOUND)[0],
                hit_rate=had.hit_rate,
                ttft_p95_seconds=had.ttft_p95,
            )
        )
    return found
