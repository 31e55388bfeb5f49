"""When a key has reached the soft and the hard limit of its budget."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_api.costs.reporting import BudgetState, budget_state, drafts_of, spent_of
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.costs import CostGroup, CostLine, CostPart, CostReport

NOW = datetime(2026, 12, 31, 13, 5, tzinfo=UTC)
MIDNIGHT = datetime(2027, 1, 1, tzinfo=UTC)
EURO = 1_000_000


def key(**given: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"budget_day": None, "budget_month": None, "budget_soft_percent": None, **given})


@pytest.mark.parametrize(
    ("row", "day", "month", "state"),
    [
        (key(budget_day="10"), 8 * EURO - 1, 99 * EURO, BudgetState()),
        (key(budget_day="10"), 8 * EURO, 99 * EURO, BudgetState(soft=True)),
        (key(budget_day="10", budget_soft_percent=50), 5 * EURO, 0, BudgetState(soft=True)),
        (key(budget_day="10"), 10 * EURO - 1, 0, BudgetState(soft=True)),
        (key(budget_day="10"), 10 * EURO, 0, BudgetState(soft=True, ends_at=MIDNIGHT)),
        (key(budget_month="0.000001"), 0, 1, BudgetState(soft=True, ends_at=MIDNIGHT)),
        (key(), 10**12, 10**12, BudgetState()),
    ],
)
def test_an_end_is_reached_at_its_amount(row: Any, day: int, month: int, state: BudgetState) -> None:
    assert budget_state(row, day, month, NOW) == state


def test_of_two_ends_the_later_holds() -> None:
    both = key(budget_day="1", budget_month="2")
    noon = datetime(2026, 2, 3, 12, tzinfo=UTC)
    assert budget_state(both, EURO, 2 * EURO, noon).ends_at == datetime(2026, 3, 1, tzinfo=UTC)
    assert budget_state(both, EURO, EURO, noon).ends_at == datetime(2026, 2, 4, tzinfo=UTC)


def test_a_key_that_cost_tens_of_millions_is_compared_like_any_other() -> None:
    line = CostLine(name="k", part=CostPart.USED, currency="KRW", amount="12345678.500000")
    found = CostReport(by=CostGroup.KEY, start=NOW, end=NOW, step_seconds=3600, lines=[line], totals=[], steps=[], savings=[])
    spent = spent_of(found)["k", "KRW"]
    assert spent == 12_345_678_500_000
    assert budget_state(key(budget_month="9999999"), 0, spent, NOW).ends_at == MIDNIGHT


def test_every_time_from_which_a_key_is_refused_for_longer_is_in_the_audit_log() -> None:
    used_up = BudgetState(soft=True, ends_at=MIDNIGHT)

    def entries(before: datetime | None) -> list[str]:
        row = SimpleNamespace(
            id="k", name="team", budget_soft_at=NOW, budget_ends_at=before, budget_currency="EUR", budget_day="1", budget_month=None
        )
        return [one.action for one in drafts_of(row, used_up, (EURO, EURO))]

    assert entries(None) == entries(MIDNIGHT - timedelta(days=1)) == [AuditAction.GATEWAY_KEY_BUDGET_USED_UP]
    assert entries(MIDNIGHT) == []
