"""Stores plans in Postgres, and lists them for the public API."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
from sqlalchemy import ColumnElement, func, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra import audit_log
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.paging import Lists, between, narrowed
from fairlead_api.infra.pool_rows import new_pool, pool_row, share
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Span
from fairlead_api.plans.objects import Target
from fairlead_api.plans.stored_plans import SpecChange, StoredPlan
from fairlead_api.webhooks.events import of_plan, of_proposal
from fairlead_api.webhooks.store import outbox
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.pages import Page
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import HandOverResult, Plan, PlanState


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFilter:
    """Filter of plans; the range selects plans by their creation time."""

    pool: str | None = None
    kind: PlanKind | None = None
    created_by: str | None = None
    start: datetime | None = None
    end: datetime | None = None


plans, pools = tables.plans, tables.pools
_PLANS = select(plans, (pools.c.namespace + "/" + pools.c.name).label("pool")).join(pools, pools.c.id == plans.c.pool_id)
_LOOKED_BACK = timedelta(days=7)
"""Maximum age of a plan that is examined because a process of the API may have stopped while it applied the plan."""
_MOST = 100


class PostgresPlans:
    """Implements `plans.stored_plans.PlanStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            plan = stored.plan
            if plan.kind.facts.creates:
                await _remember(connection, PoolKey.parse(plan.pool), now)
            row = await _row_of(connection, PoolKey.parse(plan.pool))
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
                    seen=stored.seen,
                    proposal=None if plan.proposal is None else msgspec.to_builtins(plan.proposal),
                )
            )
            await outbox.write(connection, [*of_proposal(plan)], now)
            await audit_log.append(connection, [draft], now)

        await self._database.writing(work)

    async def get(self, plan_id: str) -> StoredPlan:
        async with self._database.reading() as connection:
            return await _get(connection, plan_id)

    async def begin(self, plan_id: str, draft: AuditDraft, now: datetime, settling: timedelta) -> bool:
        mine = func.jsonb_extract_path_text(plans.c.begun, "actor") == draft.actor
        free = or_(plans.c.begun_at.is_(None), plans.c.begun_at <= now - settling, mine)

        async def work(connection: AsyncConnection) -> bool:
            begun = update(plans).where(plans.c.id == plan_id, plans.c.state == PlanState.OPEN, plans.c.expires_at >= now, free)
            found = await connection.execute(begun.values(begun_at=now, begun=msgspec.to_builtins(draft)).returning(plans.c.id))
            return found.scalar_one_or_none() is not None

        return await self._database.writing(work)

    async def refused(self, plan_id: str, draft: AuditDraft, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            mine = plans.c.id == plan_id, plans.c.begun_at == now, func.jsonb_extract_path_text(plans.c.begun, "actor") == draft.actor
            await connection.execute(update(plans).where(*mine).values(begun_at=None, begun=None))
            await audit_log.append(connection, [draft], now)

        await self._database.writing(work)

    async def begun(self, now: datetime, settling: timedelta) -> Sequence[StoredPlan]:
        left = plans.c.state == PlanState.OPEN, plans.c.begun_at <= now - settling, plans.c.created_at >= now - _LOOKED_BACK
        async with self._database.reading() as connection:
            found = await connection.execute(_PLANS.where(*left).order_by(plans.c.begun_at).limit(_MOST))
            return [_stored(row) for row in found]

    async def spec_changes(self, pool: PoolKey, uid: str, generation: int) -> Sequence[SpecChange]:
        revisions = tables.pool_revisions
        mine = pools.c.namespace == pool.namespace, pools.c.name == pool.name, revisions.c.uid == uid, revisions.c.generation > generation
        query = select(revisions).join(pools, pools.c.id == revisions.c.pool_id).where(*mine).order_by(revisions.c.number).limit(_MOST)
        async with self._database.reading() as connection:
            return [read(SpecChange, row) for row in await connection.execute(query)]

    async def finish(self, stored: StoredPlan, draft: AuditDraft, now: datetime) -> StoredPlan:
        async def work(connection: AsyncConnection) -> StoredPlan:
            plan = stored.plan
            done = await connection.execute(
                update(plans)
                .where(plans.c.id == plan.id, plans.c.state.in_([PlanState.OPEN, PlanState.EXPIRED]))
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
                await outbox.write(connection, [of_plan(plan, draft.reason)], now)
                others = plans.c.pool_id == pool_id, plans.c.state == PlanState.OPEN, plans.c.id != plan.id
                unbegun = update(plans).where(*others, plans.c.begun_at.is_(None))  # what was begun may be written already
                await connection.execute(unbegun.values(state=PlanState.SUPERSEDED))
                if plan.undo_of is not None:
                    await connection.execute(update(plans).where(plans.c.id == plan.undo_of).values(state=PlanState.UNDONE))
                    draft_of = replace(draft, action=AuditAction.PLAN_UNDONE)
                    await audit_log.append(connection, [draft_of], now)
                else:
                    await audit_log.append(connection, [draft], now)
            return await _get(connection, plan.id)

        return await self._database.writing(work)

    async def spec_of(self, pool: PoolKey, revision: int) -> Mapping[str, Any]:
        revisions = tables.pool_revisions.c
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(revisions.spec).where(revisions.pool_id == row.id, revisions.number == revision)
            found = (await connection.execute(query)).scalar_one_or_none() if 0 < revision <= row.revision else None
        if found is None:
            raise InvalidInput("revision", revision, f"the pool's newest revision is {row.revision}; write one of the list")
        return cast("Mapping[str, Any]", found)

    async def waiting(self, now: datetime) -> Sequence[Plan]:
        waits = plans.c.state == PlanState.OPEN, plans.c.proposal.is_not(None), plans.c.expires_at >= now, plans.c.begun_at.is_(None)
        async with self._database.reading() as connection:
            return [_stored(row).plan for row in await connection.execute(_PLANS.where(*waits).order_by(plans.c.created_at).limit(_MOST))]

    async def supersede(self, plan_id: str) -> None:
        await self._close(PlanState.SUPERSEDED, plans.c.id == plan_id)

    async def expire(self, plan_id: str, now: datetime, settling: timedelta) -> None:
        nobodys = or_(plans.c.begun_at.is_(None), plans.c.begun_at <= now - settling)
        await self._close(PlanState.EXPIRED, plans.c.id == plan_id, nobodys)

    async def _close(self, state: PlanState, *which: ColumnElement[bool]) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(update(plans).where(plans.c.state == PlanState.OPEN, *which).values(state=state))

        await self._database.writing(work)

    async def record(self, draft: AuditDraft, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            await audit_log.append(connection, [draft], now)

        await self._database.writing(work)


async def _row_of(connection: AsyncConnection, pool: PoolKey) -> Any:
    """Return the pool's id, also of a deleted pool, because a plan may create the pool again. Raises NotFound."""
    row = (await connection.execute(select(pools.c.id).where(pools.c.namespace == pool.namespace, pools.c.name == pool.name))).one_or_none()
    if row is None:
        raise NotFound("pool", str(pool))
    return row


async def _remember(connection: AsyncConnection, pool: PoolKey, now: datetime) -> None:
    """Store a row for a pool that does not exist yet but has a plan to create it, because plans refer to the row. The
    row is marked as deleted, so the pool is not shown.
    """
    await connection.execute(new_pool(namespace=pool.namespace, name=pool.name, uid="", created_at=now, observed_at=now, deleted_at=now))


async def _get(connection: AsyncConnection, plan_id: str) -> StoredPlan:
    row = (await connection.execute(_PLANS.where(plans.c.id == plan_id))).one_or_none()
    if row is None:
        raise NotFound("plan", plan_id)
    return _stored(row)


def _stored(row: Any) -> StoredPlan:
    of = msgspec.convert(row.object, Target)
    return read(StoredPlan, row, object=of, plan=read(Plan, row, target=str(of)))


class PostgresPlanList:
    """Lists plans for the public API."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._lists = Lists(database)
        self._clock = clock

    async def plans(self, wanted: PlanFilter, span: Span) -> Page[Plan]:
        columns, now = plans.c, self._clock()
        async with self._lists.database.reading() as connection:
            pool = await self._lists.pool_id(connection, wanted.pool)
            unserved = [(columns.kind, wanted.kind), (columns.created_by, wanted.created_by)]
            made = between(select(plans), columns.created_at, wanted.start, wanted.end)
            chosen = narrowed(made, [(columns.pool_id, pool)], unserved)
            return await self._lists.page(
                connection, chosen, (columns.created_at, columns.id), lambda row, name: _plan(row, name, now), span
            )

    async def hand_over(self, plan: Plan) -> HandOverResult:
        """Return the part of the leaving instances' caches that sessions have kept since the plan was applied, with the
        attainment of the pool before and after. If the plan was not applied, the result has only the expected part.
        """
        result = HandOverResult(plan=plan.id, expected=plan.effect.hand_over)
        if plan.applied_at is None:
            return result
        until = min(self._clock(), plan.applied_at + WATCHED)
        async with self._lists.database.reading() as connection:
            pool = await self._lists.pool_id(connection, plan.pool)
            span = {"pool": pool, "since": plan.applied_at, "until": until}
            before = {**span, "since": plan.applied_at - WATCHED, "until": plan.applied_at}
            met = [(await connection.execute(text(_IN_TIME), one)).one() for one in (before, span)]
            moved = (await connection.execute(text(_HANDED_OVER), {**span, "sources": plan.effect.victims or None})).one()
            hits = int((await connection.execute(text(_HITS), span)).scalar_one())
        counts = {name: int(value) for name, value in moved._mapping.items()}
        could = hits + counts["tokens_lost"]
        result = replace(result, attainment_before=share(*met[0]), attainment_after=share(*met[1]))
        return replace(result, until=until, hits_kept=hits / could if could else None, **counts)  # type: ignore[arg-type]  # the query's names


WATCHED = timedelta(minutes=10)
_HANDED_OVER = """
SELECT count(*) AS sessions_moved, count(*) FILTER (WHERE handed_over) AS sessions_handed_over, coalesce(sum(tokens_moved), 0) AS tokens_moved,
coalesce(sum(tokens_recomputed) FILTER (WHERE handed_over), 0) AS tokens_computed_ahead,
coalesce(sum(tokens_recomputed) FILTER (WHERE NOT handed_over), 0) AS tokens_lost
FROM migrations WHERE pool_id = :pool AND at >= :since AND at < :until AND trigger IN ('drain', 'instance-lost')
AND (CAST(:sources AS text[]) IS NULL OR source = ANY(CAST(:sources AS text[])))
"""
_IN_TIME = """
SELECT sum(within_slo), sum(judged_by_slo) FROM pool_rollups_10s WHERE pool_id = :pool AND bucket >= :since AND bucket < :until
"""
_HITS = "SELECT coalesce(sum(hit_tokens), 0) FROM pool_rollups_10s WHERE pool_id = :pool AND bucket >= :since AND bucket < :until"


def _plan(row: Any, pool: str, now: datetime) -> Plan:
    plan = read(Plan, row, pool=pool, target=str(msgspec.convert(row.object, Target)))
    over = plan.state is PlanState.OPEN and now > plan.expires_at and row.begun_at is None  # noted when somebody reads it alone
    return replace(plan, state=PlanState.EXPIRED) if over else plan
