"""Reads pools and their instances for the public API: the present state (lists and details, cached for simultaneous
callers), the past (revisions and events), the hash ring, and the figures for external autoscalers.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.capabilities import joined
from fairlead.scaling.specs import ScalingMode
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.paging import page
from fairlead_api.infra.pool_rows import conditions_of, pool_row, share, slo_of
from fairlead_api.infra.records import read
from fairlead_api.infra.sharing import Shared
from fairlead_api.infra.spans import Span
from fairlead_api.loads.store.rollups import complete_until
from fairlead_api.pools.capabilities import measured, of_instance
from fairlead_api.pools.mirroring import table_acknowledged
from fairlead_api.pools.scaling_figures import ScalingFigures
from fairlead_api.pools.store.capabilities import engine_of, learnt_figures, read_capability
from fairlead_api.pools.store.observations import live_routers
from fairlead_api.pools.store.summaries import (
    TRAFFIC,
    LastMinutes,
    desired_of,
    engine_conditions,
    instance_counts,
    instance_summaries,
    known_caches,
    pool_summaries,
    rank_loads,
)
from fairlead_api.sessions.store.lists import sessions_held
from fairlead_api.trees.store.tasks import tasks_of_late
from fairlead_client.resources.instances import InstanceDetail, InstanceSummary, InstanceTransition
from fairlead_client.resources.pages import Page
from fairlead_client.resources.pools import PoolDetail, PoolEventItem, PoolRevision, PoolSummary


class PostgresPoolHistory:
    """Revisions and events of pools, the newest first. Methods raise NotFound for a pool that does not exist."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def revisions(self, pool: PoolKey, span: Span) -> Page[PoolRevision]:
        revisions = tables.pool_revisions

        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(revisions).where(revisions.c.pool_id == row.id)
            return await page(
                connection,
                query,
                (revisions.c.number,),
                partial(read, PoolRevision),
                cursor=span.cursor,
                limit=span.limit,
                reverse=span.reverse,
            )

    async def events(self, pool: PoolKey, span: Span) -> Page[PoolEventItem]:
        events = tables.pool_events

        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(events).where(events.c.pool_id == row.id)
            return await page(
                connection,
                query,
                (events.c.at, events.c.id),
                partial(read, PoolEventItem),
                cursor=span.cursor,
                limit=span.limit,
                reverse=span.reverse,
            )


class PostgresRings:
    """Reads the data for the display of a hash ring."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ring(self, pool: PoolKey) -> tuple[RoutingTable, int, dict[str, int]]:
        """Return the pool's present routing table, the number of anchors per instance, and the number of bound sessions
        by instance.

        Raises NotFound, also for a pool that has no table yet.
        """
        routing, sessions = tables.routing_tables, tables.sessions
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(routing.c.content).where(routing.c.pool_id == row.id, routing.c.version == row.table_version)
            content = (await connection.execute(query)).scalar_one_or_none()
            if content is None or row.facts is None:
                raise NotFound("routing table of pool", str(pool))
            counted = await connection.execute(
                select(sessions.c.instance, func.count()).where(sessions.c.pool_id == row.id).group_by(sessions.c.instance)
            )
            bound = {name: amount for name, amount in counted if name is not None}
        facts = msgspec.convert(row.facts, MirroredFacts).table
        return msgspec.convert(content, RoutingTable), facts.anchors_per_instance, bound


class PostgresPoolReads:
    """Reads the present state of pools and instances. Methods about one pool or instance raise NotFound."""

    def __init__(self, database: Database, shared: Shared, last_minutes: LastMinutes) -> None:
        self._database = database
        self._shared = shared
        self._last_minutes = last_minutes

    async def pools(self, span: Span, now: datetime) -> Page[PoolSummary]:
        return await self._shared.get(("pools", span), lambda: self._pools(span, now))

    async def pool(self, pool: PoolKey, now: datetime, *, instances: bool = True) -> PoolDetail:
        """Return a pool. With `instances` False, its list of instances is empty."""
        return await self._shared.get(("pool", pool, instances), lambda: self._pool(pool, now, instances=instances))

    async def instances(self, pool: PoolKey, span: Span, now: datetime) -> Page[InstanceSummary]:
        return await self._shared.get(("instances", pool, span), lambda: self._instances_page(pool, span, now))

    async def instance(self, pool: PoolKey, instance: str, now: datetime) -> InstanceDetail:
        changes = tables.instance_transitions
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            found = await instance_summaries(self._last_minutes, connection, row, now, only=[instance])
            if not found:
                raise NotFound("instance", instance)
            rows = await connection.execute(
                select(changes)
                .where(changes.c.pool_id == row.id, changes.c.instance == instance)
                .order_by(changes.c.at.desc(), changes.c.id.desc())
                .limit(500)
            )
            transitions = [read(InstanceTransition, item) for item in rows]
            conditions = await engine_conditions(connection, row.id, instance)
            caches = await known_caches(connection, row.id, instance)
            learnt = await learnt_figures(connection, row.id, instance)
            held = await sessions_held(connection, row.id, instance)
            ranks = await rank_loads(connection, row.id, instance, now)
            of_pool = await read_capability(connection, row, now)
        return InstanceDetail(
            instance=found[0],
            transitions=transitions,
            conditions=conditions,
            caches=caches,
            learnt=learnt,
            held=held,
            ranks=ranks,
            capability=of_instance(joined(measured(learnt), engine_of(row).declared), of_pool),
        )

    async def _pools(self, span: Span, now: datetime) -> Page[PoolSummary]:
        pools = tables.pools
        query = select(tables.pools).where(tables.pools.c.deleted_at.is_(None))
        if span.sight is not None:
            query = query.where(pools.c.namespace.in_(sorted(span.sight)))
        async with self._database.reading() as connection:
            found = await page(
                connection,
                query,
                (pools.c.namespace, pools.c.name),
                lambda row: row,
                cursor=span.cursor,
                limit=span.limit,
                reverse=span.reverse,
                descending=False,
            )
            items = await pool_summaries(self._last_minutes, connection, found.items, now)
        return Page(items=items, next_cursor=found.next_cursor, total=found.total)

    async def _pool(self, pool: PoolKey, now: datetime, *, instances: bool) -> PoolDetail:
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
        if not instances:
            return await self._without_instances(row, now)
        detail, found = await asyncio.gather(self._without_instances(row, now), self._living(row, now))
        return replace(detail, instances=found)

    async def _without_instances(self, row: Any, now: datetime) -> PoolDetail:
        async with self._database.reading() as connection:
            (summary,) = await pool_summaries(self._last_minutes, connection, [row], now)
            routers = await live_routers(connection, row.id)
            return PoolDetail(
                pool=summary,
                spec=row.spec,
                generation=row.generation,
                conditions=conditions_of(row),
                instances=[],
                live_routers=len(routers),
                table_acknowledged=table_acknowledged(row.table_version, routers),
                desired=desired_of(row),
                learnt=await learnt_figures(connection, row.id, None),
                capability=await read_capability(connection, row, now),
                counts=await instance_counts(connection, row.id),
                observed_at=row.observed_at,
            )

    async def _living(self, row: Any, now: datetime) -> list[InstanceSummary]:
        async with self._database.reading() as connection:
            return await instance_summaries(self._last_minutes, connection, row, now)

    async def _instances_page(self, pool: PoolKey, span: Span, now: datetime) -> Page[InstanceSummary]:
        instances = tables.instances
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(instances).where(instances.c.pool_id == row.id, instances.c.gone_at.is_(None))
            found = await page(
                connection,
                query,
                (instances.c.id,),
                lambda item: str(item.id),
                cursor=span.cursor,
                limit=span.limit,
                reverse=span.reverse,
                descending=False,
            )
            known = {item.id: item for item in await instance_summaries(self._last_minutes, connection, row, now, only=found.items)}
        return Page(items=[known[name] for name in found.items if name in known], next_cursor=found.next_cursor, total=found.total)


# ── figures by which others can scale a pool's instances ──

_ADVISED = """
SELECT asked.pool_id, asked.role, newest.replicas
FROM unnest(CAST(:pools AS bigint[]), CAST(:roles AS text[]), CAST(:wanted AS int[])) AS asked (pool_id, role, wanted), LATERAL
  (SELECT d.replicas, d.current FROM scaling_decisions d
   WHERE d.pool_id = asked.pool_id AND d.controller = 'Scaling' AND d.role = asked.role
   ORDER BY d.at DESC LIMIT 1) AS newest
WHERE newest.current = asked.wanted
"""


class PostgresScalingFigures:
    """Reads the scaling figures of all pools that are not deleted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, now: datetime) -> ScalingFigures:
        """Return the current scaling figures of all pools."""
        async with self._database.reading() as connection:
            rows = list(await connection.execute(select(tables.pools).where(tables.pools.c.deleted_at.is_(None))))
            advised = await _advised(connection, rows)
            headroom = await _headroom(connection, rows, now)
            of_tasks = {row.id: await _task_headroom(connection, row, now) for row in rows if slo_of(row).task}
        names = {row.id: f"{row.namespace}/{row.name}" for row in rows}
        wanted = {(names[row.id], role): number for row in rows for role, number in (desired_of(row) | advised.get(row.id, {})).items()}
        return ScalingFigures(
            wanted=wanted,
            headroom={names[pool]: value for pool, value in headroom.items()},
            task_headroom={(names[pool], name): value for pool, found in of_tasks.items() for name, value in found.items()},
        )


async def _advised(connection: AsyncConnection, rows: list[Any]) -> dict[int, dict[str, int]]:
    """Return the newest recommended number of instances, by pool id and role, for pools in mode Advise. A
    recommendation is left out if the role's desired number has changed since.
    """
    asked = [(row.id, role, number) for row in rows if _is_advised(row.spec) for role, number in desired_of(row).items()]
    found: dict[int, dict[str, int]] = {}
    if asked:
        values = dict(zip(("pools", "roles", "wanted"), map(list, zip(*asked, strict=True)), strict=True))
        for row in await connection.execute(text(_ADVISED), values):
            found.setdefault(row.pool_id, {})[row.role] = row.replicas
    return found


def _is_advised(spec: Mapping[str, Any]) -> bool:
    scaling = spec.get("scaling")
    return isinstance(scaling, Mapping) and scaling.get("mode") == ScalingMode.ADVISE


async def _headroom(connection: AsyncConnection, rows: list[Any], now: datetime) -> dict[int, float]:
    ids = [row.id for row in rows]
    goals = {row.id: slo_of(row).percentile / 100 for row in rows}
    behind = await complete_until(connection, ids, now)
    found: dict[int, float] = {}
    for row in await connection.execute(text(TRAFFIC), {"pools": ids, "now": now}):
        within = share(row.within_slo, row.judged)
        if within is not None and row.pool_id not in behind:
            found[row.pool_id] = within - goals[row.pool_id]
    return found


async def _task_headroom(connection: AsyncConnection, row: Any, now: datetime) -> dict[str, float]:
    """Return the task headroom of a pool by priority class: the share (0-1) of the tasks of the last hour that met
    their target, minus the share that the target demands.
    """
    goals = {one.name: one.percentile / 100 for one in slo_of(row).task}
    seen = await tasks_of_late(connection, row.id, now)
    return {one.name: one.in_time / one.tasks - goals[one.name] for one in seen if one.tasks and one.name in goals}
