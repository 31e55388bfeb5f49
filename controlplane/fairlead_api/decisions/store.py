"""Sampled decisions as the public API shows them, each with the rule and the terms that decided it."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import func, select

from fairlead.reports.decisions import Attempt, DecisionReason, KeptFor, Weighing
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.weighing import NOT_RECORDED
from fairlead.routing.explanations.fates import whole_story
from fairlead.routing.explanations.grounds import ground_of
from fairlead.tables import PoolKey
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound, NotSampled
from fairlead_api.infra.filters import DecisionFilter
from fairlead_api.infra.lists import Lists, between, living, narrowed
from fairlead_api.infra.paging import Test
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Sight, Span
from fairlead_api.tables import decisions
from fairlead_client.resources.decisions import DecisionReasons, ReasonCount, RoutingDecision
from fairlead_client.resources.pages import Page

_REASONS = frozenset(DecisionReason)
"""Decisions with another reason, stored by a newer version that was rolled back, are not counted."""
_SHARE_ROWS = 200
"""Rows from which the sampled share is known well enough to be told."""
_UNWEIGHED = Weighing(rule=NOT_RECORDED, candidates=(), considered=0)


class PostgresDecisions:
    """Implements `decisions.routes.DecisionReader`."""

    def __init__(self, database: Database, policies: PolicyCatalogue, days: int) -> None:
        """`days` is how long decisions are kept."""
        self._lists = Lists(database)
        self._policies = policies
        self._days = days

    async def decisions(self, wanted: DecisionFilter, span: Span) -> Page[RoutingDecision]:
        columns = decisions.c
        filters: list[tuple[Any, Any]] = [
            (columns.session, wanted.session),
            (columns.chosen, wanted.instance),
            (columns.reason, wanted.reason),
        ]
        unserved = [(columns.priority_class, wanted.priority_class), (columns.outcome, wanted.outcome)]
        async with self._lists.database.reading() as connection:
            filters.append((columns.pool_id, await self._lists.pool_id(connection, wanted.pool)))
            query, also = narrowed(between(select(decisions), columns.at, wanted.start, wanted.end), filters, unserved)
            if wanted.kept is not None:
                also.append(_kept_for(wanted.kept))
            return await self._lists.page(connection, (query, also), (columns.at, columns.id), self._build, span)

    async def decision(self, decision_id: str) -> RoutingDecision:
        query = select(decisions).where(decisions.c.id == decision_id).order_by(decisions.c.at.desc()).limit(1)
        try:
            return await self._lists.one(query, "decision", decision_id, self._build)
        except NotFound:
            raise NotSampled(decision_id, await self.sampled_share(), self._days) from None

    async def sampled_share(self) -> float | None:
        """The share of requests with which all is well whose decisions are kept, as the newest rows show; None while
        there are none of them.
        """
        columns = decisions.c
        newest = select(columns.kept, columns.sample_rate).order_by(columns.at.desc()).limit(_SHARE_ROWS)
        async with self._lists.database.reading() as connection:
            rates = [rate for kept, rate in await connection.execute(newest) if kept == KeptFor.SAMPLE]
        return len(rates) / sum(1 / rate for rate in rates) if rates else None

    async def reasons(self, pool: PoolKey, newest: int) -> DecisionReasons:
        async with self._lists.database.reading() as connection:
            of_pool = decisions.c.pool_id == (await living(connection, pool)).id
            rows = await connection.execute(select(decisions.c.reason).where(of_pool).order_by(decisions.c.at.desc()).limit(newest))
            counted = Counter(reason for (reason,) in rows if reason in _REASONS)
        return DecisionReasons(
            pool=str(pool), reasons=[ReasonCount(reason=DecisionReason(one), decisions=n) for one, n in counted.most_common()]
        )

    async def recent(self, pool: str | None, sight: Sight, since: datetime, limit: int) -> list[tuple[datetime, RoutingDecision]]:
        """Decisions recorded since, oldest first, with the time of recording (when a report brought them)."""
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
        )
        return replace(decision, explanation=whole_story(decision, decision))


def _kept_for(reason: KeptFor) -> Test:
    """Rows of routers that did not tell why are of the sample."""
    return lambda columns: func.coalesce(columns.kept, KeptFor.SAMPLE.value) == reason.value
