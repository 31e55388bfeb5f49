"""When a key's budget has reached its soft end and its hard one."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_api.costs.reporting import BudgetState, budget_state

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
