"""Budgets of gateway keys: what a key may cost in a UTC day and month, its soft end and its hard one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.costs.money import micros_of, written
from fairlead_api.access.tables import gateway_keys as keys
from fairlead_api.costs.store import PostgresCosts
from fairlead_api.infra import audit_log, notifying
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.database import Database
from fairlead_api.infra.notices import GatewayKeysChanged
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.costs import CostGroup, CostPart, CostReport
from fairlead_client.resources.gateway_keys import SOFT_PERCENT

LOOK_SECONDS = 15
"""Pause between two looks at what keys have cost: by so much a key may go on after its hard end."""

Spent = Mapping[tuple[str, str], int]
"""What keys cost in micro-units, by key and currency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """Where a key stands: whether a soft end is reached, and until when it is refused (None: it is not)."""

    soft: bool = False
    ends_at: datetime | None = None


def days_and_months(now: datetime) -> tuple[datetime, datetime, datetime, datetime]:
    """The beginnings of the UTC day and the next, and of the month and the next. Pure."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    return day, day + timedelta(days=1), month, (month + timedelta(days=32)).replace(day=1)


def budget_state(row: Any, day: int, month: int, now: datetime) -> BudgetState:
    """The state of a key that cost so much, in micro-units, on this day and in this month. Pure."""
    _, next_day, _, next_month = days_and_months(now)
    percent = row.budget_soft_percent or SOFT_PERCENT
    soft, ends = False, list[datetime]()
    for name, spent, end in (("budget_day", day, next_day), ("budget_month", month, next_month)):
        written_amount = getattr(row, name)
        if written_amount is not None:
            most = micros_of(name, written_amount)
            soft |= 100 * spent >= percent * most
            ends += [end] if spent >= most else []
    return BudgetState(soft=soft, ends_at=max(ends, default=None))


def spent_of(found: CostReport) -> Spent:
    """What each key cost, by currency. Pure."""
    return {(one.name, one.currency): micros_of("amount", one.amount) for one in found.lines if one.part is CostPart.USED}


class Budgets:
    """Looks at what keys have cost, notes who reached an end, and tells routers and the audit log."""

    def __init__(self, costs: PostgresCosts, database: Database) -> None:
        self._costs = costs
        self._database = database

    async def look(self, now: datetime) -> None:
        """Note the state of all keys with a budget."""
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
                await connection.execute(update(keys).where(keys.c.id == key).values(values))
                drafts += _drafts(row, state, spent)
            await notifying.send(connection, [GatewayKeysChanged()])
            await audit_log.append(connection, drafts, now)

        return work


def _drafts(row: Any, state: BudgetState, spent: tuple[int, int]) -> list[AuditDraft]:
    """The audit entries for ends that were reached now."""
    reached = []
    if state.soft and row.budget_soft_at is None:
        reached.append(AuditAction.GATEWAY_KEY_BUDGET_SOFT)
    if state.ends_at is not None and row.budget_ends_at is None:
        reached.append(AuditAction.GATEWAY_KEY_BUDGET_USED_UP)
    after = {
        "name": row.name,
        "currency": row.budget_currency,
        "day": written(spent[0]),
        "month": written(spent[1]),
        "budget_day": row.budget_day,
        "budget_month": row.budget_month,
        "refused_until": None if state.ends_at is None else state.ends_at.isoformat(),
    }
    about = {"actor": "control API", "role": AccessRole.SYSTEM_OPERATOR, "source": "budgets", "object": row.id}
    return [AuditDraft(action=action, after=after, **about) for action in reached]
