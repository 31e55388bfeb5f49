"""Compares the costs of gateway keys with their budgets."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.access.tables import gateway_keys as keys
from fairlead_api.costs.reporting import BudgetState, budget_state, days_and_months, drafts_of, spent_of
from fairlead_api.costs.store.reading import PostgresCosts
from fairlead_api.infra import audit_log, notifying
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.database import Database
from fairlead_api.infra.notices import GatewayKeysChanged
from fairlead_client.resources.costs import CostGroup

LOOK_SECONDS = 15
"""Seconds between two comparisons of costs with budgets. A gateway key may still be used for this long after it reached
its hard limit.
"""


JUDGED = ("budget_day", "budget_month", "budget_currency", "budget_soft_percent", "budget_soft_at", "budget_ends_at", "revoked_at")
"""The columns of a gateway key from which its budget state follows."""


def _unchanged(row: Any) -> list["ColumnElement[bool]"]:
    """Return SQL conditions that are true if a key's budget has not changed since its row was read. Reading costs takes
    seconds, so a budget may have changed in the meantime; it is then compared in the next round.
    """
    return [keys.c[name].is_not_distinct_from(getattr(row, name)) for name in JUDGED]


class Budgets:
    """Compares the costs of gateway keys with their budgets, records which keys reached a limit, notifies routers and
    writes audit entries.
    """

    def __init__(self, costs: PostgresCosts, database: Database) -> None:
        self._costs = costs
        self._database = database

    async def look(self, now: datetime) -> None:
        """Compare the cost of each gateway key that has a budget with that budget, and store changed states."""
        limited = keys.c.budget_day.is_not(None) | keys.c.budget_month.is_not(None)
        marked = keys.c.budget_soft_at.is_not(None) | keys.c.budget_ends_at.is_not(None)
        query = select(keys).where(keys.c.revoked_at.is_(None), limited | marked).order_by(keys.c.id)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        if not rows:
            return
        day_start, _, month_start, _ = days_and_months(now)
        day, month = [spent_of(await self._costs.report(CostGroup.KEY, None, start, now)) for start in (day_start, month_start)]
        changes = {}
        for row in rows:
            at = row.id, row.budget_currency or ""
            state = budget_state(row, day.get(at, 0), month.get(at, 0), now)
            if (state.soft, state.ends_at) != (row.budget_soft_at is not None, row.budget_ends_at):
                changes[row.id] = (row, state, (day.get(at, 0), month.get(at, 0)))
        if changes:
            await self._database.writing(self._noting(changes, now))

    def _noting(self, changes: Mapping[str, tuple[Any, BudgetState, tuple[int, int]]], now: datetime) -> Callable[[AsyncConnection], Any]:
        async def work(connection: AsyncConnection) -> None:
            drafts: list[AuditDraft] = []
            for key, (row, state, spent) in changes.items():
                soft_at = (row.budget_soft_at or now) if state.soft else None
                values = {"budget_soft_at": soft_at, "budget_ends_at": state.ends_at}
                noted = await connection.execute(update(keys).where(keys.c.id == key, *_unchanged(row)).values(values))
                drafts += drafts_of(row, state, spent) if noted.rowcount else []
            await notifying.send(connection, [GatewayKeysChanged()])
            await audit_log.append(connection, drafts, now)

        return work
