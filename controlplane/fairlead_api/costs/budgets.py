"""Budgets of gateway keys: what a key may cost in a UTC day and month, its soft end and its hard one. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fairlead.costs.money import micros_of, written
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.costs import CostPart, CostReport
from fairlead_client.resources.gateway_keys import SOFT_PERCENT

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
    """The state of a key with these costs in micro-units, of this day and in this month. Pure."""
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


def drafts_of(row: Any, state: BudgetState, spent: tuple[int, int]) -> list[AuditDraft]:
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
