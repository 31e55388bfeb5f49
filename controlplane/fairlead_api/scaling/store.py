"""Scaling decisions as the public API shows them."""

from typing import Any

from sqlalchemy import select

from fairlead_api.infra.database import Database
from fairlead_api.infra.filters import ScalingFilter
from fairlead_api.infra.lists import Lists, between, narrowed
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Span
from fairlead_api.tables import scaling_decisions
from fairlead_client.resources.pages import Page
from fairlead_client.resources.scaling import ScalingDecisionItem


class PostgresScaling:
    """Implements `scaling.routes.ScalingReader`."""

    def __init__(self, database: Database) -> None:
        self._lists = Lists(database)

    async def scaling_decisions(self, wanted: ScalingFilter, span: Span) -> Page[ScalingDecisionItem]:
        columns = scaling_decisions.c
        async with self._lists.database.reading() as connection:
            pool = await self._lists.pool_id(connection, wanted.pool)
            unserved = [(columns.role, wanted.role), (columns.controller, wanted.controller), (columns.verdict, wanted.verdict)]
            decided = between(select(scaling_decisions), columns.at, wanted.start, wanted.end)
            chosen = narrowed(decided, [(columns.pool_id, pool)], unserved)
            return await self._lists.page(connection, chosen, (columns.at, columns.id), _item, span)

    async def scaling_decision(self, decision_id: str) -> ScalingDecisionItem:
        query = select(scaling_decisions).where(scaling_decisions.c.id == decision_id)
        return await self._lists.one(query, "scaling decision", decision_id, _item)


def _item(row: Any, pool: str) -> ScalingDecisionItem:
    return read(ScalingDecisionItem, row, pool=pool)
