"""Reads observations for the operator: the present state of a pool's routers, sessions and traffic."""

from collections.abc import Container
from datetime import datetime
from typing import Any

from sqlalchemy import Double, Integer, Text, bindparam, case, cast, column, func, not_, select, text, true
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceTrouble, PoolObservations
from fairlead.reports.engines import EngineTrouble
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.pool_rows import share
from fairlead_api.loads.store.rollups import complete_until
from fairlead_api.pools.mirroring import InstanceFacts, PoolUseView, RouterView, Traffic, observations
from fairlead_api.pools.store.capabilities import read_capability
from fairlead_api.pools.store.live_routers import IS_LIVE
from fairlead_api.scaling.signals import PresentInstance, pool_signals
from fairlead_api.scaling.store import Measuring
from fairlead_api.trees.store.tasks import tasks_of_late

_ROUTERS = tables.routers.c
_UNHEARD_SECONDS = func.extract("epoch", func.now() - _ROUTERS.last_seen_at)

_INSTANCES = text(
    "SELECT i.id, i.table_version, i.role, i.state, count(s.session) AS bound, coalesce(sum(s.context_tokens), 0) AS cached "
    "FROM instances i LEFT JOIN sessions s ON s.pool_id = i.pool_id AND s.instance = i.id "
    "WHERE i.pool_id = :pool AND i.gone_at IS NULL GROUP BY i.pool_id, i.id ORDER BY i.id"
)
_TRAFFIC = text(
    "SELECT sum(ttft_within_slo) AS ttft_within, sum(ttft_total) AS ttft_total, sum(tpot_within_slo) AS tpot_within, "
    "sum(tpot_total) AS tpot_total, sum(within_slo) AS within, sum(judged_by_slo) AS judged, sum(requests_total) AS requests, "
    "extract(epoch FROM max(bucket) - min(bucket)) + 10 AS seconds "
    "FROM pool_rollups_10s WHERE pool_id = :pool AND bucket > :now - interval '5 minutes'"
)
_USE = _ROUTERS.use.op("->", return_type=JSONB())(bindparam("pool", type_=Text))
_TROUBLED = _ROUTERS.troubled_engines.op("->", return_type=JSONB())(bindparam("pool", type_=Text))
_LIVE_ROUTERS = select(_ROUTERS.acknowledged, _ROUTERS.in_flight, _USE, _TROUBLED, _UNHEARD_SECONDS).where(IS_LIVE)
_IDLE_ELSEWHERE = select(func.min(_UNHEARD_SECONDS + case((_ROUTERS.gone_at.is_not(None), cast(_USE[2], Double)), else_=0.0))).where(
    not_(IS_LIVE), _USE.is_not(None)
)


async def read_observations(
    connection: AsyncConnection, pool_id: int, table_version: int, facts: MirroredFacts | None, measuring: Measuring, now: datetime
) -> PoolObservations:
    """Return the observations of routers and the database about a pool, given the version of its routing table and its
    facts.
    """
    routers = await live_routers(connection, pool_id)
    found = (await connection.execute(_INSTANCES, {"pool": pool_id})).all()
    instances = [
        InstanceFacts(id=one.id, table_version=one.table_version, bound_sessions=one.bound, cache_tokens=int(one.cached)) for one in found
    ]
    present = [
        PresentInstance(
            id=one.id,
            role=Role(one.role),
            state=InstanceState(one.state),
            in_flight=sum(router.in_flight.get(one.id, 0) for router in routers),
            waiting=sum(router.waiting.get(one.id, 0) for router in routers),
        )
        for one in found
    ]
    signals = None
    traffic, elsewhere = await _traffic(connection, pool_id, now), await _idle_elsewhere(connection, pool_id)
    if routers and facts is not None and facts.scales and not traffic.behind_seconds:
        signals = pool_signals(await measuring.read(connection, pool_id, now), present, facts.table, now.timestamp())
    row = (await connection.execute(select(tables.pools).where(tables.pools.c.id == pool_id))).one()
    capability = await read_capability(connection, row, now)
    tasks = await tasks_of_late(connection, pool_id, now) if facts is not None and facts.table.slo.task else ()
    return observations(table_version, routers, instances, traffic, signals, elsewhere, capability, row.departed or "", tasks)


async def _traffic(connection: AsyncConnection, pool_id: int, now: datetime) -> Traffic:
    complete = (await complete_until(connection, [pool_id], now)).get(pool_id)
    if complete is not None:
        return Traffic(behind_seconds=(now - complete).total_seconds())
    row = (await connection.execute(_TRAFFIC, {"pool": pool_id, "now": now})).one()
    return Traffic(
        ttft_attainment=share(row.ttft_within, row.ttft_total),
        tpot_attainment=share(row.tpot_within, row.tpot_total),
        slo_attainment=share(row.within, row.judged),
        requests_per_second=float(row.requests) / float(row.seconds) if row.requests else 0.0,
    )


async def live_routers(connection: AsyncConnection, pool_id: int) -> list[RouterView]:
    """Return the last reports of the live routers (`IS_LIVE`) about the pool."""
    rows = await connection.execute(_LIVE_ROUTERS, {"pool": str(pool_id)})
    views = []
    for acknowledged, in_flight, use, troubled, unheard_seconds in rows:
        work = {instance: requests for of_pool, instance, requests, _ in in_flight if of_pool == pool_id}
        queued = {instance: waiting for of_pool, instance, _, waiting in in_flight if of_pool == pool_id}
        seen = None if use is None else _use(use, float(unheard_seconds))
        troubles = tuple(_trouble(*one) for one in troubled or ())
        version = acknowledged.get(str(pool_id))
        views.append(RouterView(acknowledged=version, in_flight=work, waiting=queued, use=seen, troubled_engines=troubles))
    return views


async def read_stalled(connection: AsyncConnection, pool_id: int, living: Container[str]) -> dict[str, str]:
    """Return the instances in `living` whose engine or rank has stalled according to a live router, each with the
    description of one such router.
    """
    query = select(_TROUBLED).where(IS_LIVE, _TROUBLED.is_not(None))
    rows: Any = await connection.execute(query, {"pool": str(pool_id)})
    found = [one for (troubled,) in rows for one in troubled]
    return {name: words for name, trouble, words, *_ in found if trouble == EngineTrouble.ENGINE_STALLED and name in living}


def _trouble(instance: str, trouble: str, words: str, seconds: float = 0.0, *_: object) -> InstanceTrouble:
    """Return an engine's trouble from the fields that a router reported. A router of an earlier version does not report
    for how many `seconds` the trouble has lasted; a router of a newer version may report further fields, which are
    ignored.
    """
    return InstanceTrouble(instance=instance, trouble=trouble, words=words, seconds=seconds)


def _use(told: list[float], unheard_seconds: float) -> PoolUseView:
    held, tokens, idle = told
    return PoolUseView(held_requests=int(held), held_prompt_tokens=int(tokens), idle_seconds=idle + max(0.0, unheard_seconds))


async def read_held_pools(connection: AsyncConnection) -> tuple[PoolKey, ...]:
    """Return the pools for which live routers hold requests."""
    pools = tables.pools
    used = func.jsonb_each(_ROUTERS.use).table_valued("key", column("value", JSONB)).lateral()
    holding = (
        select(cast(used.c.key, Integer).label("id"))
        .select_from(tables.routers.join(used, true()))
        .where(IS_LIVE, cast(used.c.value[0], Integer) > 0)
    )
    found = await connection.execute(
        select(pools.c.namespace, pools.c.name).where(pools.c.id.in_(holding), pools.c.deleted_at.is_(None)).order_by(pools.c.id)
    )
    return tuple(PoolKey(namespace=namespace, name=name) for namespace, name in found)


async def _idle_elsewhere(connection: AsyncConnection, pool_id: int) -> float | None:
    """Return the seconds since a router that is not live had a request of the pool; None if no such router is known.

    For a router that signed off, the seconds are exact, because its last report has its idle time. A router that
    stopped reporting counts as busy until its last report.
    """
    return (await connection.execute(_IDLE_ELSEWHERE, {"pool": str(pool_id)})).scalar_one()
