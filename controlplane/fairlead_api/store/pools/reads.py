"""Pools, instances, revisions, events and SLO versions as the public API shows them."""

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey, SloFacts
from fairlead_api.services.errors import NotFound
from fairlead_api.services.plans.owners import owner_of
from fairlead_api.services.pools.mirroring import table_acknowledged
from fairlead_api.services.pools.reading import ready_condition
from fairlead_api.services.spans import Span
from fairlead_api.services.streams.sharing import Shared
from fairlead_api.store import tables
from fairlead_api.store.database import Database
from fairlead_api.store.paging import page
from fairlead_api.store.pools.latencies import Latencies
from fairlead_api.store.pools.observations import live_routers
from fairlead_api.store.records import read
from fairlead_client.resources.instances import InstanceDetail, InstanceSummary, InstanceTransition
from fairlead_client.resources.pages import Page
from fairlead_client.resources.pools import PoolCondition, PoolDetail, PoolEventItem, PoolRevision, PoolSummary
from fairlead_client.resources.slo import SloVersion

_TRAFFIC = """
SELECT r.pool_id, sum(ttft_within_slo) AS within, sum(ttft_total) AS total, sum(requests_total) AS requests, sum(hit_tokens) AS hits,
       sum(prompt_tokens) AS prompts, extract(epoch FROM max(bucket) - min(bucket)) + 10 AS seconds
FROM load_rollups_10s r WHERE r.pool_id = ANY(:pools) AND r.bucket > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY r.pool_id
"""
_REFUSED = """
SELECT pool_id, sum(count) AS refused FROM rejections
WHERE pool_id = ANY(:pools) AND second > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY pool_id
"""
_MOVED = """
SELECT pool_id, sum(moves) FILTER (WHERE sort = 'migrated') AS migrated, sum(moves) FILTER (WHERE sort = 'rerouted') AS rerouted,
       sum(moves) FILTER (WHERE sort = 'lost') AS lost
FROM (SELECT pool_id, at, 1 AS moves, 'migrated' AS sort FROM migrations UNION ALL SELECT pool_id, at, 1, 'rerouted' FROM reroutes
      UNION ALL SELECT pool_id, minute, moves, 'lost' FROM lost_moves) m
WHERE pool_id = ANY(:pools) AND at > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY pool_id
"""
_STATES = """
SELECT pool_id, count(*) FILTER (WHERE state = 'Serving') AS serving, count(*) FILTER (WHERE state = 'Draining') AS draining,
       string_agg(id || ' ' || state, ',' ORDER BY id) AS each
FROM instances WHERE pool_id = ANY(:pools) AND gone_at IS NULL GROUP BY pool_id
"""
_NEWEST = """
SELECT instance, sum(running) AS running, sum(waiting) AS waiting, sum(pending_prefill_tokens) AS pending, max(kv_usage) AS kv_usage
FROM (SELECT DISTINCT ON (instance, router) instance, running, waiting, pending_prefill_tokens, kv_usage FROM load_samples
      WHERE pool_id = :pool AND instance = ANY(:names) AND second > CAST(:now AS timestamptz) - interval '20 seconds'
      ORDER BY instance, router, second DESC, sent_at DESC) newest
GROUP BY instance
"""
_BY_INSTANCE = """
SELECT instance, sum(hit_tokens) AS hits, sum(prompt_tokens) AS prompts FROM load_rollups_10s
WHERE pool_id = :pool AND instance = ANY(:names) AND bucket > CAST(:now AS timestamptz) - interval '5 minutes' GROUP BY instance
"""


class PostgresPoolReads:
    """Implements `routes.pools.PoolReader`."""

    def __init__(self, database: Database, shared: Shared, latencies: Latencies) -> None:
        self._database = database
        self._shared = shared
        self._latencies = latencies

    async def pools(self, span: Span, now: datetime) -> Page[PoolSummary]:
        return await self._shared.get(("pools", span), lambda: self._pools(span, now))

    async def pool(self, pool: PoolKey, now: datetime) -> PoolDetail:
        return await self._shared.get(("pool", pool), lambda: self._pool(pool, now))

    async def instances(self, pool: PoolKey, span: Span, now: datetime) -> Page[InstanceSummary]:
        return await self._shared.get(("instances", pool, span), lambda: self._instances_page(pool, span, now))

    async def _pools(self, span: Span, now: datetime) -> Page[PoolSummary]:
        pools = tables.pools
        query = select(pools).where(pools.c.deleted_at.is_(None))
        async with self._database.reading() as connection:
            found = await page(
                connection,
                query,
                (pools.c.namespace, pools.c.name),
                lambda row: row,
                cursor=span.cursor,
                limit=span.limit,
                descending=False,
            )
            items = await self._summaries(connection, found.items, now)
        return Page(items=items, next_cursor=found.next_cursor, total=found.total)

    async def _pool(self, pool: PoolKey, now: datetime) -> PoolDetail:
        async with self._database.reading() as connection:
            row = await _pool_row(connection, pool)
            (summary,) = await self._summaries(connection, [row], now)
            routers = await live_routers(connection, row.id)
            return PoolDetail(
                pool=summary,
                spec=row.spec,
                generation=row.generation,
                conditions=_conditions(row),
                instances=await self._instances(connection, row, now),
                live_routers=len(routers),
                table_acknowledged=table_acknowledged(row.table_version, routers),
            )

    async def _instances_page(self, pool: PoolKey, span: Span, now: datetime) -> Page[InstanceSummary]:
        instances = tables.instances
        async with self._database.reading() as connection:
            row = await _pool_row(connection, pool)
            query = select(instances).where(instances.c.pool_id == row.id, instances.c.gone_at.is_(None))
            found = await page(
                connection, query, (instances.c.id,), lambda item: str(item.id), cursor=span.cursor, limit=span.limit, descending=False
            )
            known = {item.id: item for item in await self._instances(connection, row, now, only=found.items)}
        return Page(items=[known[name] for name in found.items if name in known], next_cursor=found.next_cursor, total=found.total)

    async def instance(self, pool: PoolKey, instance: str, now: datetime) -> InstanceDetail:
        changes = tables.instance_transitions
        async with self._database.reading() as connection:
            row = await _pool_row(connection, pool)
            found = await self._instances(connection, row, now, only=[instance])
            if not found:
                raise NotFound("instance", instance)
            rows = await connection.execute(
                select(changes)
                .where(changes.c.pool_id == row.id, changes.c.instance == instance)
                .order_by(changes.c.at.desc(), changes.c.id.desc())
                .limit(500)
            )
            transitions = [read(InstanceTransition, item) for item in rows]
        return InstanceDetail(instance=found[0], transitions=transitions)

    async def revisions(self, pool: PoolKey, span: Span) -> Page[PoolRevision]:
        revisions = tables.pool_revisions

        async with self._database.reading() as connection:
            row = await _pool_row(connection, pool)
            query = select(revisions).where(revisions.c.pool_id == row.id)
            return await page(connection, query, (revisions.c.number,), partial(read, PoolRevision), cursor=span.cursor, limit=span.limit)

    async def events(self, pool: PoolKey, span: Span) -> Page[PoolEventItem]:
        events = tables.pool_events

        async with self._database.reading() as connection:
            row = await _pool_row(connection, pool)
            query = select(events).where(events.c.pool_id == row.id)
            return await page(
                connection, query, (events.c.at, events.c.id), partial(read, PoolEventItem), cursor=span.cursor, limit=span.limit
            )

    async def slo_versions(self, pool: PoolKey, span: Span, now: datetime) -> Page[SloVersion]:
        slo = tables.slo_configs
        async with self._database.reading() as connection:
            row = await _pool_row(connection, pool)
            query = select(slo).where(slo.c.pool_id == row.id)
            found = await page(connection, query, (slo.c.version,), lambda item: item, cursor=span.cursor, limit=span.limit)
            items = [await _slo_version(connection, row.id, pool, item, now) for item in found.items]
        return Page(items=items, next_cursor=found.next_cursor, total=found.total)

    async def _summaries(self, connection: AsyncConnection, rows: list[Any], now: datetime) -> list[PoolSummary]:
        ids = [row.id for row in rows]
        if not ids:
            return []
        traffic, refused, moved = [await _by_pool(connection, query, ids, now) for query in (_TRAFFIC, _REFUSED, _MOVED)]
        shares = [_slo(row).percentile / 100 for row in rows]
        latency = await self._latencies.of_pools(ids, shares, now)
        states = {row.pool_id: row for row in await connection.execute(text(_STATES), {"pools": ids})}
        return [
            _summary(row, traffic.get(row.id), latency.get(row.id), refused.get(row.id), moved.get(row.id), states.get(row.id), now)
            for row in rows
        ]

    async def _instances(
        self, connection: AsyncConnection, pool: Any, now: datetime, only: Sequence[str] | None = None
    ) -> list[InstanceSummary]:
        """Living instances by id, or those named, even if they are gone."""
        instances = tables.instances
        query = select(instances).where(instances.c.pool_id == pool.id).order_by(instances.c.id)
        rows = (await connection.execute(query.where(instances.c.gone_at.is_(None) if only is None else instances.c.id.in_(only)))).all()
        values = {"pool": pool.id, "now": now, "names": [row.id for row in rows]}
        newest = {row.instance: row for row in await connection.execute(text(_NEWEST), values)}
        hits = {row.instance: _share(row.hits, row.prompts) for row in await connection.execute(text(_BY_INSTANCE), values)}
        p95 = await self._latencies.of_instances(pool.id, only[0] if only is not None and len(only) == 1 else None, now)
        counted = await connection.execute(
            text("SELECT instance, count(*) AS bound FROM sessions WHERE pool_id = :pool AND instance = ANY(:names) GROUP BY instance"),
            values,
        )
        bound = {row.instance: row.bound for row in counted}
        routers = await live_routers(connection, pool.id)
        found = []
        for row in rows:
            load = newest.get(row.id)
            found.append(
                read(
                    InstanceSummary,
                    row,
                    pool=f"{pool.namespace}/{pool.name}",
                    in_flight=sum(router.in_flight.get(row.id, 0) for router in routers),
                    running=int(load.running) if load else 0,
                    waiting=int(load.waiting) if load else 0,
                    pending_prefill_tokens=int(load.pending) if load else 0,
                    kv_usage=load.kv_usage if load else None,
                    bound_sessions=bound.get(row.id, 0),
                    hit_rate=hits.get(row.id),
                    ttft_p95_seconds=p95.get(row.id),
                )
            )
        return found


async def _slo_version(connection: AsyncConnection, pool_id: int, pool: PoolKey, item: Any, now: datetime) -> SloVersion:
    """Attainment from 10 s buckets while those are kept, else from minutes."""
    rollup = (tables.load_rollups_10s if (now - item.active_from).days < 6 else tables.load_rollups_1m).c
    sums = select(
        func.sum(rollup.ttft_within_slo).label("within"),
        func.sum(rollup.ttft_total).label("total"),
        func.sum(rollup.requests_total).label("requests"),
    )
    begun = func.date_bin(text("interval '10 seconds'"), item.active_from, text("timestamptz 'epoch'"))
    within = (rollup.pool_id == pool_id, rollup.bucket >= begun, rollup.bucket < (item.active_until or now))
    found = (await connection.execute(sums.where(*within))).one()
    return read(SloVersion, item, pool=str(pool), attainment=_share(found.within, found.total), requests=int(found.requests or 0))


async def _pool_row(connection: AsyncConnection, pool: PoolKey) -> Any:
    pools = tables.pools
    query = select(pools).where(pools.c.namespace == pool.namespace, pools.c.name == pool.name, pools.c.deleted_at.is_(None))
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound("pool", str(pool))
    return row


async def _by_pool(connection: AsyncConnection, query: str, pools: list[int], now: datetime) -> dict[int, Any]:
    return {row.pool_id: row for row in await connection.execute(text(query), {"pools": pools, "now": now})}


def _summary(row: Any, traffic: Any, latency: Any, refused: Any, moved: Any, states: Any, now: datetime) -> PoolSummary:
    facts = msgspec.convert(row.facts, MirroredFacts) if row.facts else None
    ready = ready_condition(_conditions(row), row.problem)
    seconds = float(traffic.seconds) if traffic else 0.0
    p50, p95, at_percentile = latency if latency else (None, None, None)
    slo = _slo(row)
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
        desired=int(row.spec.get("replicas", 1)) if isinstance(row.spec.get("replicas", 1), int) else 0,
        serving=states.serving if states else 0,
        draining=states.draining if states else 0,
        attainment=_share(traffic.within, traffic.total) if traffic else None,
        slo_percentile=slo.percentile,
        ttft_slo_seconds=slo.ttft_seconds,
        ttft_p50_seconds=p50,
        ttft_p95_seconds=p95,
        ttft_at_percentile_seconds=at_percentile,
        hit_rate=_share(traffic.hits, traffic.prompts) if traffic else None,
        requests_per_second=float(traffic.requests) / seconds if traffic and seconds else 0.0,
        rejections_per_second=float(refused.refused) / window if refused else 0.0,
        migrations_per_hour=float(moved.migrated or 0) / window * 3600 if moved else 0.0,
        reroutes_per_hour=float(moved.rerouted or 0) / window * 3600 if moved else 0.0,
        lost_moves_per_hour=float(moved.lost or 0) / window * 3600 if moved else 0.0,
        table_version=row.table_version,
        state_digest=_digest(row, states.each if states else ""),
        owner=owner_of(row.labels, row.annotations, (row.changed_by,)),
        created_at=row.created_at,
    )


def _slo(row: Any) -> SloFacts:
    return msgspec.convert(row.facts, MirroredFacts).table.slo if row.facts else SloFacts()


def _digest(row: Any, instances: str) -> str:
    """Eight hex digits over what a page shows of the pool's state and no rate or latency."""
    seen = (row.generation, row.table_version, row.problem, row.conditions, instances)
    return f"{zlib.crc32(msgspec.json.encode(seen)):08x}"


def _inside(spec: Mapping[str, Any], *path: str) -> Any:
    found: Any = spec
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _share(part: Any, whole: Any) -> float | None:
    return float(part) / float(whole) if whole else None


def _conditions(row: Any) -> list[PoolCondition]:
    """The object's conditions in Kubernetes' own spelling; unreadable times are left out."""
    found = []
    for item in row.conditions:
        since = item.get("lastTransitionTime")
        try:
            at = datetime.fromisoformat(since) if isinstance(since, str) else None
        except ValueError:
            at = None
        found.append(
            PoolCondition(
                type=str(item.get("type", "")),
                status=str(item.get("status", "Unknown")),
                reason=str(item.get("reason", "")),
                message=str(item.get("message", "")),
                since=at,
            )
        )
    return found
