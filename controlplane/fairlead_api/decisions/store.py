"""Reads sampled routing decisions for the public API, each with the rule and the terms that decided it. Also stores the
sessions for which every decision is kept.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.decisions import Attempt, Continuation, DecisionReason, KeptFor, RequestOutcome, ShadowChoice, Weighing
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.weighing import NOT_RECORDED
from fairlead.routing.explanations.fates import whole_story
from fairlead.routing.explanations.grounds import ground_of
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra import audit_log, notifying
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound, NotSampled
from fairlead_api.infra.notices import KeptSessionsChanged
from fairlead_api.infra.paging import Lists, Test, between, narrowed
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Sight, Span
from fairlead_api.tables import decisions
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.decisions import DecisionReasons, ReasonCount, RoutingDecision
from fairlead_client.resources.pages import Page
from fairlead_client.resources.sessions import KeptSession


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """Filter of routing decisions; `instance` is the chosen instance."""

    pool: str | None = None
    instance: str | None = None
    session: str | None = None
    reason: DecisionReason | None = None
    priority_class: str | None = None
    kept: KeptFor | None = None
    outcome: RequestOutcome | None = None
    trace: str | None = None
    request: str | None = None
    start: datetime | None = None
    end: datetime | None = None


_REASONS = frozenset(DecisionReason)
"""Known reasons of decisions. A decision with an unknown reason, stored by a newer version that was rolled back, is not
counted.
"""
_SHARE_ROWS = 200
"""Number of newest decisions from which the sampled share is estimated."""
_UNWEIGHED = Weighing(rule=NOT_RECORDED, candidates=(), considered=0)


class PostgresDecisions:
    """Reads routing decisions for the public API."""

    def __init__(self, database: Database, policies: PolicyCatalogue, days: int) -> None:
        """`days` is the number of days for which decisions are kept."""
        self._lists = Lists(database)
        self._policies = policies
        self._days = days

    async def decisions(self, wanted: DecisionFilter, span: Span) -> Page[RoutingDecision]:
        columns = decisions.c
        filters: list[tuple[Any, Any]] = [
            (columns.session, wanted.session),
            (columns.chosen, wanted.instance),
            (columns.reason, wanted.reason),
            (columns.trace, wanted.trace),
            (columns.request, wanted.request),
        ]
        unserved = [(columns.priority_class, wanted.priority_class), (columns.outcome, wanted.outcome)]
        async with self._lists.database.reading() as connection:
            filters.append((columns.pool_id, await self._lists.pool_id(connection, wanted.pool)))
            query, also = narrowed(between(select(decisions), columns.at, wanted.start, wanted.end), filters, unserved)
            if wanted.kept is not None:
                also.append(_kept_for(wanted.kept))
            return await self._lists.page(connection, (query, also), (columns.at, columns.id), self._build, span)

    async def decision(self, decision_id: str) -> RoutingDecision:
        """Return a decision. Raises NotFound."""
        query = select(decisions).where(decisions.c.id == decision_id).order_by(decisions.c.at.desc()).limit(1)
        try:
            return await self._lists.one(query, "decision", decision_id, self._build)
        except NotFound:
            raise NotSampled(decision_id, await self.sampled_share(), self._days) from None

    async def sampled_share(self) -> float | None:
        """Return the share (0-1) of trouble-free requests whose decisions are stored. It is estimated from the newest
        stored decisions; None if these contain no trouble-free request.
        """
        columns = decisions.c
        newest = select(columns.kept, columns.sample_rate).order_by(columns.at.desc()).limit(_SHARE_ROWS)
        async with self._lists.database.reading() as connection:
            rates = [rate for kept, rate in await connection.execute(newest) if kept == KeptFor.SAMPLE]
        return len(rates) / sum(1 / rate for rate in rates) if rates else None

    async def reasons(self, pool: PoolKey, newest: int) -> DecisionReasons:
        """Count the reasons of a pool's newest decisions; at most `newest` decisions are counted. Raises NotFound."""
        async with self._lists.database.reading() as connection:
            of_pool = decisions.c.pool_id == (await pool_row(connection, pool)).id
            rows = await connection.execute(select(decisions.c.reason).where(of_pool).order_by(decisions.c.at.desc()).limit(newest))
            counted = Counter(reason for (reason,) in rows if reason in _REASONS)
        return DecisionReasons(
            pool=str(pool), reasons=[ReasonCount(reason=DecisionReason(one), decisions=n) for one, n in counted.most_common()]
        )

    async def recent(self, pool: str | None, sight: Sight, since: datetime, limit: int) -> list[tuple[datetime, RoutingDecision]]:
        """Return decisions stored after `since`, oldest first, each with the time at which its report was stored."""
        same_days = decisions.c.at > since - timedelta(days=1)  # spares the partitions of older days
        return await self._lists.recent(decisions, since, self._build, pool, sight, limit, same_days)

    def _build(self, row: Any, pool: str) -> RoutingDecision:
        weighing = _UNWEIGHED if row.weighing is None else msgspec.convert(row.weighing, Weighing)
        ground = ground_of(self._policies.terms(row.policy), weighing.rule, weighing.limits)
        decision = read(
            RoutingDecision,
            row,
            pool=pool,
            rule=ground.rule,
            terms=list(ground.terms),
            parts=list(ground.parts),
            limits=list(ground.limits),
            considered=weighing.considered,
            passed_over=weighing.passed_over,
            kept=KeptFor.SAMPLE if row.kept is None else KeptFor(row.kept),
            attempts=() if row.attempts is None else msgspec.convert(row.attempts, tuple[Attempt, ...]),
            continuations=() if row.continuations is None else msgspec.convert(row.continuations, tuple[Continuation, ...]),
            shadows=() if row.shadows is None else msgspec.convert(row.shadows, tuple[ShadowChoice, ...]),
        )
        return replace(decision, explanation=whole_story(decision, decision))


def _kept_for(reason: KeptFor) -> Test:
    """Return the condition that a decision was stored for `reason`. A decision without a reason, from a router that
    reports none, counts as one of the sample.
    """
    return lambda columns: func.coalesce(columns.kept, KeptFor.SAMPLE.value) == reason.value


kept = tables.kept_sessions


class PostgresKeptSessions:
    """Sessions for which every decision is kept, in the database. A write appends its audit entry and notifies routers,
    in the same transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def kept(self, pool: PoolKey, now: datetime) -> list[KeptSession]:
        """Return the pool's sessions for which every decision is kept now. Raises NotFound for an unknown pool."""
        async with self._database.reading() as connection:
            of_pool = kept.c.pool_id == (await pool_row(connection, pool)).id
            rows = await connection.execute(select(kept).where(of_pool, kept.c.until > now).order_by(kept.c.until, kept.c.session))
            return [read(KeptSession, row) for row in rows]

    async def keep(self, pool: PoolKey, session: KeptSession, caller: Caller, now: datetime, most: int) -> bool:
        """Start to keep every decision of a session, or extend the time. Returns False if decisions of `most` other
        sessions are already kept. Raises NotFound for an unknown pool.
        """

        async def work(connection: AsyncConnection) -> bool:
            number = await _locked(connection, pool)
            await connection.execute(delete(kept).where(kept.c.pool_id == number, kept.c.until <= now))
            others = select(func.count()).select_from(kept).where(kept.c.pool_id == number, kept.c.session != session.session)
            if (await connection.execute(others)).scalar_one() >= most:
                return False
            values = {"until": session.until, "by": session.by}
            row = insert(kept).values(pool_id=number, session=session.session, **values)
            await connection.execute(row.on_conflict_do_update(index_elements=["pool_id", "session"], set_=values))
            await notifying.send(connection, [KeptSessionsChanged()])
            after = {"session": session.session, "until": session.until.isoformat()}
            await audit_log.append(connection, [replace(caller.draft(AuditAction.SESSION_KEPT, str(pool)), after=after)], now)
            return True

        return await self._database.writing(work)

    async def let_go(self, pool: PoolKey, session: str, caller: Caller, now: datetime) -> None:
        """Stop keeping every decision of a session; no effect if its decisions are not all kept. Raises NotFound for an
        unknown pool.
        """

        async def work(connection: AsyncConnection) -> None:
            number = await _locked(connection, pool)
            found = await connection.execute(
                delete(kept).where(kept.c.pool_id == number, kept.c.session == session).returning(kept.c.until)
            )
            until = found.scalar_one_or_none()
            if until is None or until <= now:
                return
            await notifying.send(connection, [KeptSessionsChanged()])
            before = {"session": session, "until": until.isoformat()}
            await audit_log.append(connection, [replace(caller.draft(AuditAction.SESSION_LET_GO, str(pool)), before=before)], now)

        await self._database.writing(work)


async def _locked(connection: AsyncConnection, pool: PoolKey) -> int:
    """Lock the pool's row and return its id. Until the transaction ends, no other call can change the list of the
    pool's sessions whose decisions are all kept. Raises NotFound.
    """
    number: int = (await pool_row(connection, pool)).id
    pools = tables.pools
    await connection.execute(select(pools.c.id).where(pools.c.id == number).with_for_update(key_share=True))
    return number
