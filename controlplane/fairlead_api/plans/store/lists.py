"""Plans as the public API lists them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import select

from fairlead_api.infra.database import Database
from fairlead_api.infra.filters import PlanFilter
from fairlead_api.infra.lists import Lists, between, narrowed
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Span
from fairlead_api.plans.objects import Target
from fairlead_api.tables import plans
from fairlead_client.resources.pages import Page
from fairlead_client.resources.plans import Plan, PlanState


class PostgresPlanList:
    """Implements `plans.routes.PlanReader`."""

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


def _plan(row: Any, pool: str, now: datetime) -> Plan:
    plan = read(Plan, row, pool=pool, target=str(msgspec.convert(row.object, Target)))
    over = plan.state is PlanState.OPEN and now > plan.expires_at and row.begun_at is None  # noted when somebody reads it alone
    return replace(plan, state=PlanState.EXPIRED) if over else plan
