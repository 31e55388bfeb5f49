"""Plans in Postgres."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey
from fairlead_api.services.audit.chain import AuditDraft
from fairlead_api.services.errors import NotFound
from fairlead_api.services.plans.effects import InstanceUse, ScaleBasis
from fairlead_api.services.plans.plans import StoredPlan
from fairlead_api.store import audit, tables
from fairlead_api.store.database import Database
from fairlead_api.store.pools.observations import live_routers
from fairlead_api.store.records import read
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.plans import Plan, PlanState

plans, pools = tables.plans, tables.pools


class PostgresPlans:
    """Implements `services.plans.PlanStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def basis(self, pool: PoolKey, now: datetime) -> ScaleBasis:
        async with self._database.reading() as connection:
            row = await _pool(connection, pool)
            if row.facts is None:
                raise NotFound("usable spec of pool", str(pool))
            facts = msgspec.convert(row.facts, MirroredFacts).table
            routers = await live_routers(connection, row.id)
            rows = await connection.execute(
                text(
                    "SELECT i.id, i.state, count(s.session) AS bound, coalesce(sum(s.context_tokens), 0) AS cached FROM instances i "
                    "LEFT JOIN sessions s ON s.pool_id = i.pool_id AND s.instance = i.id "
                    "WHERE i.pool_id = :pool AND i.gone_at IS NULL GROUP BY i.id, i.state ORDER BY i.id"
                ),
                {"pool": row.id},
            )
            uses = [
                InstanceUse(
                    id=name,
                    state=state,
                    bound_sessions=bound,
                    cache_tokens=int(cached),
                    in_flight=sum(router.in_flight.get(name, 0) for router in routers),
                )
                for name, state, bound, cached in rows
            ]
            traffic = (
                await connection.execute(
                    text(
                        "SELECT sum(ttft_within_slo) AS within, sum(ttft_total) AS total, sum(requests_total) AS requests, "
                        "sum(prompt_tokens - hit_tokens) AS misses, extract(epoch FROM max(bucket) - min(bucket)) + 10 AS seconds "
                        "FROM load_rollups_10s WHERE pool_id = :pool AND bucket > CAST(:now AS timestamptz) - interval '5 minutes'"
                    ),
                    {"pool": row.id, "now": now},
                )
            ).one()
        flowing = bool(traffic.requests)
        return ScaleBasis(
            instances=uses,
            attainment=float(traffic.within / traffic.total) if traffic.total else None,
            requests_per_second=float(traffic.requests) / float(traffic.seconds) if flowing else None,
            miss_tokens_per_second=float(traffic.misses) / float(traffic.seconds) if flowing else None,
            prefill_tokens_per_second=facts.engine.prefill_tokens_per_second,
            ttft_slo_seconds=facts.slo.ttft_seconds,
        )

    async def add(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            plan = stored.plan
            row = await _pool(connection, PoolKey.parse(plan.pool))
            await connection.execute(
                insert(plans).values(
                    id=plan.id,
                    pool_id=row.id,
                    kind=plan.kind,
                    created_at=plan.created_at,
                    created_by=plan.created_by,
                    expires_at=plan.expires_at,
                    state=plan.state,
                    uid=stored.uid,
                    generation=stored.generation,
                    replicas_before=stored.replicas_before,
                    replicas_after=stored.replicas_after,
                    diff=plan.diff,
                    effect=msgspec.to_builtins(plan.effect),
                    owner=plan.owner,
                    patch=plan.patch,
                    undo_of=plan.undo_of,
                )
            )
            await audit.append(connection, [draft], now)

        await self._database.writing(work)

    async def get(self, plan_id: str) -> StoredPlan:
        async with self._database.reading() as connection:
            return await _get(connection, plan_id)

    async def finish(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> StoredPlan:
        async def work(connection: AsyncConnection) -> StoredPlan:
            plan = stored.plan
            done = await connection.execute(
                update(plans)
                .where(plans.c.id == plan.id, plans.c.state == PlanState.OPEN)
                .values(
                    state=PlanState.APPLIED,
                    applied_at=plan.applied_at,
                    applied_by=plan.applied_by,
                    undo_until=plan.undo_until,
                    applied_generation=stored.applied_generation,
                    reason=draft.reason,
                )
                .returning(plans.c.pool_id)
            )
            pool_id = done.scalar_one_or_none()
            if pool_id is not None:
                others = update(plans).where(plans.c.pool_id == pool_id, plans.c.state == PlanState.OPEN, plans.c.id != plan.id)
                await connection.execute(others.values(state=PlanState.SUPERSEDED))
                if plan.undo_of is not None:
                    await connection.execute(update(plans).where(plans.c.id == plan.undo_of).values(state=PlanState.UNDONE))
                    draft_of = replace(draft, action=AuditAction.PLAN_UNDONE)
                    await audit.append(connection, [draft_of], now)
                else:
                    await audit.append(connection, [draft], now)
            return await _get(connection, plan.id)

        return await self._database.writing(work)

    async def set_state(self, plan_id: str, state: PlanState) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(update(plans).where(plans.c.id == plan_id, plans.c.state == PlanState.OPEN).values(state=state))

        await self._database.writing(work)

    async def record(self, draft: AuditDraft, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            await audit.append(connection, [draft], now)

        await self._database.writing(work)


async def _pool(connection: AsyncConnection, pool: PoolKey) -> Any:
    query = select(pools.c.id, pools.c.facts).where(
        pools.c.namespace == pool.namespace, pools.c.name == pool.name, pools.c.deleted_at.is_(None)
    )
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound("pool", str(pool))
    return row


async def _get(connection: AsyncConnection, plan_id: str) -> StoredPlan:
    query = select(plans, (pools.c.namespace + "/" + pools.c.name).label("pool")).join(pools, pools.c.id == plans.c.pool_id)
    row = (await connection.execute(query.where(plans.c.id == plan_id))).one_or_none()
    if row is None:
        raise NotFound("plan", plan_id)
    return read(StoredPlan, row, plan=read(Plan, row))
