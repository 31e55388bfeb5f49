"""How many refusals of one caller get an audit entry each."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fairlead_api.access.limits import BURST, MAX_CALLERS, REFILL_SECONDS, DenialBudgets

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_first_refusals_of_a_caller_are_written_and_the_rest_counted() -> None:
    budgets = DenialBudgets()
    assert [budgets.spend("eve", START) for _ in range(BURST + 3)] == [0] * BURST + [None] * 3
    assert budgets.spend("ada", START) == 0
    assert budgets.spend("eve", START + timedelta(seconds=REFILL_SECONDS)) == 3


def test_a_clock_that_goes_back_gives_nobody_more() -> None:
    budgets = DenialBudgets()
    for _ in range(BURST):
        budgets.spend("eve", START)
    assert budgets.spend("eve", START - timedelta(hours=1)) is None


def test_memory_is_bounded_by_the_callers_refused_last() -> None:
    budgets = DenialBudgets()
    for _ in range(BURST + 1):
        budgets.spend("eve", START)
    for number in range(MAX_CALLERS):
        budgets.spend(number, START)
    assert budgets.spend("eve", START) == 0


@given(st.lists(st.floats(0, 300), max_size=200))
def test_written_and_counted_refusals_add_up(pauses: list[float]) -> None:
    budgets, now, told = DenialBudgets(), START, 0
    for pause in pauses:
        now += timedelta(seconds=pause)
        counted = budgets.spend("eve", now)
        told += 0 if counted is None else counted + 1
    last = budgets.spend("eve", now + timedelta(seconds=REFILL_SECONDS))
    assert last is not None
    assert told + last == len(pauses)
