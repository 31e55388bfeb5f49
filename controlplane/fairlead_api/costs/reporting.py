"""Makes a cost report from allocated costs, and compares the costs of gateway keys with their budgets. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead.costs.allocation import Allocation, Line, Parts
from fairlead.costs.money import HOUR_MICROSECONDS, micros_of, read_back, rounded, shown, written
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.costs import CostGroup, CostLine, CostPart, CostReport, CostSaving, CostStep, CostTotal, SavedBy
from fairlead_client.resources.gateway_keys import SOFT_PERCENT

COUNTS = ("requests", "prefill_tokens", "hit_tokens", "output_tokens")
"""The counts in a line of a cost report. Lines by role have no counts, because requests are not recorded by role."""
OTHERS = "\0others"
"""The group of all sessions that have no separate line in a cost report."""
LONGEST_HOURLY = 72
"""Maximum length in hours of a range that is reported in steps of one hour. Longer ranges are reported in days."""

SCHEDULES_HOW = (
    "While windows of schedules were open, the pool wanted fewer instances than spec.replicas (or roles[].replicas) says. "
    "The saving is the difference times the price of an instance. Without the schedule, other rules might also have lowered the number."
)
CACHING_HOW = (
    "The number of prompt tokens that engines found in their caches, times the cost of a computed prompt token of the same pool in the same "
    "hour. In some hours the instances would not have had the time to compute these tokens."
)


@dataclass(slots=True, kw_only=True)
class Sums:
    """The sum of the allocated costs of several pools."""

    lines: dict[tuple[str, str], Line] = field(default_factory=lambda: defaultdict(Line))
    apart: dict[str, Parts] = field(default_factory=lambda: defaultdict(Parts))
    hours: dict[tuple[str, int], Parts] = field(default_factory=lambda: defaultdict(Parts))
    cached: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    scheduled: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unpriced: int = 0

    def add(self, one: Allocation) -> None:
        """Add the allocated costs of a pool, divided by the groups of the report."""
        for key, line in one.lines.items():
            _join(self.lines[key], line)
        self._add_common(one)

    def add_roles(self, one: Allocation) -> None:
        """Add the allocated costs of a pool, divided by role."""
        for (currency, role), parts in one.roles.items():
            found = Line(prefill=parts.prefill, decode=parts.used - parts.prefill)
            _join(self.lines[currency, role.value], found)
        self._add_common(one)

    def _add_common(self, one: Allocation) -> None:
        for (currency, _), parts in one.roles.items():
            self.apart[currency].add(parts)
        for key, parts in one.hours.items():
            self.hours[key].add(parts)
        for currency, units in one.cached.items():
            self.cached[currency] += units
        self.unpriced += one.unpriced


def _join(line: Line, other: Line) -> None:
    line.prefill += other.prefill
    line.decode += other.decode
    line.requests += other.requests
    line.prefill_tokens += other.prefill_tokens
    line.hit_tokens += other.hit_tokens
    line.output_tokens += other.output_tokens


def report(sums: Sums, by: CostGroup, start: datetime, end: datetime, labels: Mapping[str, str]) -> CostReport:
    """Return the cost report of a range: the most expensive lines first, then the cost that was not caused by any
    request.
    """
    hourly = (end - start).total_seconds() <= LONGEST_HOURLY * 3600
    currencies = sorted(sums.apart)
    return CostReport(
        by=by,
        start=start,
        end=end,
        step_seconds=3600 if hourly else 86_400,
        lines=[line for currency in currencies for line in _lines(sums, currency, by, labels)],
        totals=[_total(currency, sums.apart[currency]) for currency in currencies],
        steps=[step for currency in currencies for step in _steps(sums, currency, 1 if hourly else 24)],
        savings=list(_savings(sums)),
        unpriced_hours=sums.unpriced / HOUR_MICROSECONDS,
    )


def _lines(sums: Sums, currency: str, by: CostGroup, labels: Mapping[str, str]) -> Iterable[CostLine]:
    of_currency = [(name, line) for (unit, name), line in sums.lines.items() if unit == currency]
    ordered = sorted(of_currency, key=lambda one: (one[0] == OTHERS, -one[1].units, one[0]))
    apart = sums.apart[currency]
    amounts = shown([*(line.units for _, line in ordered), apart.idle, apart.unattributed])
    for (name, line), amount in zip(ordered, amounts, strict=False):
        yield _line(name, line, amount, currency, by, labels)
    yield CostLine(name="", part=CostPart.IDLE, currency=currency, amount=written(amounts[-2]))
    if apart.unattributed:
        yield CostLine(name="", part=CostPart.UNATTRIBUTED, currency=currency, amount=written(amounts[-1]))


def _line(name: str, line: Line, amount: int, currency: str, by: CostGroup, labels: Mapping[str, str]) -> CostLine:
    prefill = min(rounded(line.prefill), amount)
    counts = {one: None if by is CostGroup.ROLE else getattr(line, one) for one in COUNTS}
    return CostLine(
        name="" if name == OTHERS else name,
        part=CostPart.OTHERS if name == OTHERS else CostPart.USED,
        currency=currency,
        amount=written(amount),
        prefill=written(prefill),
        decode=written(amount - prefill),
        **counts,
        label=labels.get(name, "") if by is CostGroup.KEY else "",
    )


def _total(currency: str, parts: Parts) -> CostTotal:
    used, idle, unattributed = shown([parts.used, parts.idle, parts.unattributed])
    return CostTotal(
        currency=currency,
        amount=written(rounded(parts.units)),
        used=written(used),
        idle=written(idle),
        unattributed=written(unattributed),
        instance_hours=parts.microseconds / HOUR_MICROSECONDS,
        measured_hours=parts.measured / HOUR_MICROSECONDS,
    )


def _steps(sums: Sums, currency: str, hours: int) -> Iterable[CostStep]:
    steps: dict[int, Parts] = defaultdict(Parts)
    for (unit, hour), parts in sums.hours.items():
        if unit == currency:
            steps[hour - hour % hours].add(parts)
    ordered = sorted(steps.items())
    amounts = iter(shown([amount for _, parts in ordered for amount in (parts.used, parts.idle, parts.unattributed)]))
    for hour, _ in ordered:
        at = datetime.fromtimestamp(hour * 3600, UTC)
        used, idle, unattributed = (written(next(amounts)) for _ in range(3))
        yield CostStep(at=at, currency=currency, used=used, idle=idle, unattributed=unattributed)


def _savings(sums: Sums) -> Iterable[CostSaving]:
    for by, amounts, how in ((SavedBy.SCHEDULES, sums.scheduled, SCHEDULES_HOW), (SavedBy.CACHING, sums.cached, CACHING_HOW)):
        for currency, units in sorted(amounts.items()):
            if units:
                yield CostSaving(by=by, currency=currency, amount=written(rounded(units)), how=how)


Spent = Mapping[tuple[str, str], int]
"""The costs of gateway keys in micro-units, by key and currency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """The state of a gateway key's budgets: whether the soft limit is reached, and until when routers refuse the key
    (None: not refused).
    """

    soft: bool = False
    ends_at: datetime | None = None


def days_and_months(now: datetime) -> tuple[datetime, datetime, datetime, datetime]:
    """Return four times: the beginning of the present UTC day, of the next day, of the present month and of the next
    month. Pure.
    """
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    return day, day + timedelta(days=1), month, (month + timedelta(days=32)).replace(day=1)


def budget_state(row: Any, day: int, month: int, now: datetime) -> BudgetState:
    """Return the budget state of a gateway key. Its costs in micro-units are `day` for the present day and `month` for
    the present month. Pure.
    """
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
    """Return the cost of each gateway key in a report, by currency. Pure."""
    return {(one.name, one.currency): read_back(one.amount) for one in found.lines if one.part is CostPart.USED}


def drafts_of(row: Any, state: BudgetState, spent: tuple[int, int]) -> list[AuditDraft]:
    """Return the audit entries for budget limits that a gateway key has just reached. An entry for a hard limit is
    added again when a later limit makes routers refuse the key for longer.
    """
    reached = []
    if state.soft and row.budget_soft_at is None:
        reached.append(AuditAction.GATEWAY_KEY_BUDGET_SOFT)
    if state.ends_at is not None and (row.budget_ends_at is None or row.budget_ends_at < state.ends_at):
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
