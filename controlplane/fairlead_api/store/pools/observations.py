"""The answer to the operator: the present state of a pool's routers, sessions and traffic."""

from datetime import datetime

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.pool_states import PoolObservations
from fairlead.tables import PoolKey
from fairlead_api.services.errors import NotFound
from fairlead_api.services.pools.mirroring import LIVE_SECONDS, InstanceFacts, RouterView, observations
from fairlead_api.store import tables


async def read_observations(connection: AsyncConnection, pool: PoolKey, now: datetime) -> PoolObservations:
    """What routers and the database know about the pool. Raises NotFound."""
    pools = tables.pools
    row = (
        await connection.execute(
            select(pools.c.id, pools.c.table_version).where(
                pools.c.namespace == pool.namespace, pools.c.name == pool.name, pools.c.deleted_at.is_(None)
            )
        )
    ).one_or_none()
    if row is None:
        raise NotFound("pool", str(pool))
    routers = await live_routers(connection, row.id)
    found = await connection.execute(
        text(
            "SELECT i.id, i.table_version, count(s.session) AS bound, coalesce(sum(s.context_tokens), 0) AS cached FROM instances i "
            "LEFT JOIN sessions s ON s.pool_id = i.pool_id AND s.instance = i.id "
            "WHERE i.pool_id = :pool AND i.gone_at IS NULL GROUP BY i.id, i.table_version ORDER BY i.id"
        ),
        {"pool": row.id},
    )
    instances = [
        InstanceFacts(id=name, table_version=version, bound_sessions=bound, cache_tokens=int(cached))
        for name, version, bound, cached in found
    ]
    traffic = (
        await connection.execute(
            text(
                "SELECT sum(ttft_within_slo) AS within, sum(ttft_total) AS total, sum(requests_total) AS requests, "
                "extract(epoch FROM max(bucket) - min(bucket)) + 10 AS seconds "
                "FROM load_rollups_10s WHERE pool_id = :pool AND bucket > :now - interval '5 minutes'"
            ),
            {"pool": row.id, "now": now},
        )
    ).one()
    return observations(
        row.table_version,
        routers,
        instances,
        attainment=float(traffic.within / traffic.total) if traffic.total else None,
        requests_per_second=float(traffic.requests) / float(traffic.seconds) if traffic.requests else 0.0,
    )


async def live_routers(connection: AsyncConnection, pool_id: int) -> list[RouterView]:
    """Routers that reported in the last LIVE_SECONDS, by the database's clock, and did not say goodbye."""
    routers = tables.routers
    rows = await connection.execute(
        select(routers.c.acknowledged, routers.c.in_flight).where(
            routers.c.gone_at.is_(None), routers.c.last_seen_at > func.now() - text(f"interval '{LIVE_SECONDS} seconds'")
        )
    )
    views = []
    for acknowledged, in_flight in rows:
        work = {instance: running + waiting for of_pool, instance, running, waiting in in_flight if of_pool == pool_id}
        views.append(RouterView(acknowledged=acknowledged.get(str(pool_id)), in_flight=work))
    return views
