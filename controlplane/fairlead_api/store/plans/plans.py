"""Plans in Postgres."""

from dataclasses import replace
from datetime import datetime

import msgspec
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api.services.audit.chain import AuditDraft
from fairlead_api.services.errors import NotFound
from fairlead_api.services.plans.objects import Target
from fairlead_api.services.plans.plans import StoredPlan
from fairlead_api.store import audit, tables
from fairlead_api.store.database import Database
from fairlead_api.store.pools.rows import pool_row
from fairlead_api.store.records import read
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.plans import Plan, PlanState

plans, pools = tables.plans, tables.pools


class PostgresPlans:
    """Implements `services.plans.PlanStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            plan = stored.plan
            row = await pool_row(connection, PoolKey.parse(plan.pool))
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
                    object=msgspec.to_builtins(stored.object),
                    change=stored.change,
                    inverse=stored.inverse,
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


async def _get(connection: AsyncConnection, plan_id: str) -> StoredPlan:
    query = select(plans, (pools.c.namespace + "/" + pools.c.name).label("pool")).join(pools, pools.c.id == plans.c.pool_id)
    row = (await connection.execute(query.where(plans.c.id == plan_id))).one_or_none()
    if row is None:
        raise NotFound("plan", plan_id)
    of = msgspec.convert(row.object, Target)
    return read(StoredPlan, row, object=of, plan=read(Plan, row, target=str(of)))
