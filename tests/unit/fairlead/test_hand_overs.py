"""What sessions keep when their instances leave: between nothing and everything, and never less with better means."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.hand_overs import FETCHES_AT_ONCE, HOLD_SECONDS, Leaving, Means, Transfers, expected
from fairlead.routing.knowledge.next_turns import SOON_SECONDS
from fairlead_testing.examples import examples

ONE_OF_FOUR = Leaving(instances=1, sessions=60, tokens=600_000, all_tokens=2_400_000)
COMPUTES = Means(tokens_per_second=30_000.0, budget=0.2, routers=2, transfers=None)
QUICK = Transfers(tried=100, came=100, mean_seconds=0.4)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Leaving, Means]:
    instances, sessions = draw(st.integers(1, 8)), draw(st.integers(0, 1000))
    tokens = draw(st.integers(sessions, 10**7)) if sessions else 0
    tried = draw(st.integers(1, 100))
    transfers = Transfers(tried=tried, came=draw(st.integers(0, tried)), mean_seconds=draw(st.floats(0.001, 60)))
    means = Means(
        tokens_per_second=draw(st.floats(0, 1e6)),
        budget=draw(st.floats(0, 1)),
        routers=draw(st.integers(0, 4)),
        transfers=draw(st.sampled_from([None, transfers])),
    )
    return Leaving(instances=instances, sessions=sessions, tokens=tokens, all_tokens=draw(st.integers(tokens, 10**8))), means


@given(cases())
@examples(300)
def test_what_is_kept_is_a_share_and_its_price_is_within_what_may_be_spent(case: tuple[Leaving, Means]) -> None:
    leaving, means = case
    found = expected(leaving, means)
    assert -1e-9 <= found.hits_kept <= 1 + 1e-9
    assert 1 - found.hits_kept <= leaving.tokens / max(1, leaving.all_tokens) + 1e-9, "nobody loses who stays"
    assert 0 <= found.seconds_longer <= HOLD_SECONDS * leaving.instances + 1e-9
    assert 0 <= found.more_work <= means.budget + 1e-9


@given(cases())
@examples(300)
def test_a_larger_budget_and_more_transfers_that_come_never_keep_less(case: tuple[Leaving, Means]) -> None:
    leaving, means = case
    kept = expected(leaving, means).hits_kept
    assert expected(leaving, replace(means, budget=min(1.0, means.budget * 1.5))).hits_kept >= kept - 1e-9
    better = means.transfers or Transfers(tried=1, came=0, mean_seconds=1.0)
    assert expected(leaving, replace(means, transfers=replace(better, came=better.tried))).hits_kept >= kept - 1e-9


def test_a_drain_whose_sessions_take_their_caches_along_keeps_nearly_all_for_a_few_seconds() -> None:
    found = expected(ONE_OF_FOUR, replace(COMPUTES, transfers=QUICK))
    assert found.hits_kept == pytest.approx(1.0)
    assert found.seconds_longer == pytest.approx(60 * 0.4 / (FETCHES_AT_ONCE * 2))
    assert found.more_work == 0


def test_without_transfers_the_budget_computes_some_in_time() -> None:
    found = expected(ONE_OF_FOUR, COMPUTES)
    seconds = 600_000 / 6_000  # to compute all that left, of the turns of five minutes
    assert found.hits_kept == pytest.approx(1 - 0.25 * seconds / (2 * SOON_SECONDS))
    assert found.seconds_longer == 0
    assert found.more_work == pytest.approx(600_000 / (30_000 * SOON_SECONDS))
    assert expected(ONE_OF_FOUR, replace(COMPUTES, budget=0.0)).hits_kept == pytest.approx(0.75)


def test_transfers_that_take_longer_than_an_instance_is_kept_leave_the_rest_to_be_computed() -> None:
    takes = 60.0  # seconds for all sixty sessions
    slow = replace(COMPUTES, transfers=replace(QUICK, mean_seconds=FETCHES_AT_ONCE * 2 * takes / 60), budget=0.0)
    assert expected(ONE_OF_FOUR, slow).hits_kept == pytest.approx(1 - 0.25 * (1 - HOLD_SECONDS / takes))
    half = replace(COMPUTES, transfers=replace(QUICK, came=50), budget=0.0)
    assert expected(ONE_OF_FOUR, half).hits_kept == pytest.approx(1 - 0.25 / 2)
