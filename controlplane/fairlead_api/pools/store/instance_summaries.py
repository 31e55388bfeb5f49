"""An instance in a line: its state, its newest load, and its hits and latency of the last five minutes."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import InstanceState, Role
from fairlead_api import tables
from fairlead_api.infra.records import read
from fairlead_api.pools.mirroring import newest_of_each
from fairlead_api.pools.store.last_minutes import NOTHING, LastMinutes
from fairlead_api.pools.store.live_routers import IS_LIVE
from fairlead_api.pools.store.observations import live_routers
from fairlead_client.resources.instances import CacheKnowledge, EngineCondition, InstanceCount, InstanceSummary, RankLoad

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
    """What each live router knows of the instance's prefix cache, by the router's name."""
    routers = tables.routers
    known = routers.c.known_caches[str(pool_id)][instance]
    rows = await connection.execute(select(routers.c.id, known).where(IS_LIVE, known.is_not(None)).order_by(routers.c.id))
    return [CacheKnowledge(router=router, **fields) for router, fields in rows]


async def engine_conditions(connection: AsyncConnection, pool_id: int, instance: str) -> list[EngineCondition]:
    """The conditions that live routers find on the engine, each once, in the words of the router that found it last."""
    routers = await live_routers(connection, pool_id)
    found = [one for router in routers for one in router.troubled_engines if one.instance == instance]
    return [
        EngineCondition(
            reason=one.trouble, message=one.words, seconds=one.seconds, routers=sum(other.trouble == one.trouble for other in found)
        )
        for one in newest_of_each(found)
    ]


async def rank_loads(connection: AsyncConnection, pool_id: int, instance: str, now: datetime) -> list[RankLoad]:
    """The data-parallel ranks that routers reported in the last seconds."""
    rows = await connection.execute(text(_RANKS), {"pool": pool_id, "instance": instance, "now": now})
    return [read(RankLoad, row) for row in rows]


async def instance_counts(connection: AsyncConnection, pool_id: int) -> list[InstanceCount]:
    """How many living instances each role has in each state. States with names that only a newer, rolled-back version
    knows are left out.
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
    """Living instances by id, or those named, even if they are gone."""
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
