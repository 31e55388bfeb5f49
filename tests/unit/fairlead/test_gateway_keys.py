"""What a gateway key gives access to, and how much may be taken from a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.gateway_keys import GatewayKeyFacts, RateLimit
from fairlead.tables import PoolKey

CHAT = PoolKey(namespace="default", name="chat")
PER_MINUTE = st.floats(0.1, 1e6)
STEPS = st.lists(st.tuples(st.floats(0.0, 90.0), st.integers(1, 40)), max_size=60)
"""Pairs of (seconds since the step before, requests at that time)."""


@given(PER_MINUTE, STEPS)
def test_no_span_of_time_has_more_than_its_share_and_one_burst(per_minute: float, steps: list[tuple[float, int]]) -> None:
    limit, now = RateLimit(per_minute, 0.0), 0.0
    taken: list[float] = []
    for pause, tries in steps:
        now += pause
        for _ in range(tries):
            if limit.wait_seconds(now) == 0.0:
                limit.take(1, now)
                taken.append(now)
    burst = max(1.0, per_minute)
    for first, start in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + (taken[last] - start) * per_minute / 60 + 1e-6


@given(PER_MINUTE, st.integers(0, 50), st.integers(0, 5000))
def test_who_waits_as_long_as_told_is_admitted_and_nobody_before(per_minute: float, requests: int, debt: int) -> None:
    limit = RateLimit(per_minute, 0.0)
    for _ in range(requests):
        limit.take(1, 0.0)
    limit.take(debt, 0.0)
    seconds = limit.wait_seconds(0.0)
    if seconds > 1e-3:
        assert limit.wait_seconds(seconds * 0.99) > 0
    assert limit.wait_seconds(seconds * (1 + 1e-9) + 1e-6) == 0


def test_a_minutes_worth_may_come_at_once_and_then_evenly() -> None:
    limit = RateLimit(60, 1000.0)
    for _ in range(60):
        assert limit.wait_seconds(1000.0) == 0
        limit.take(1, 1000.0)
    assert limit.wait_seconds(1000.0) == pytest.approx(1.0)
    assert limit.wait_seconds(1001.0) == 0


def test_a_debt_is_waited_for_and_what_is_given_back_never_exceeds_a_minutes_worth() -> None:
    limit = RateLimit(600, 0.0)
    limit.take(2000, 0.0)
    assert limit.wait_seconds(0.0) == pytest.approx(140.1)
    limit.take(-5000, 0.0)
    limit.take(600, 0.0)
    assert limit.wait_seconds(0.0) == pytest.approx(0.1)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    limit = RateLimit(60, 100.0)
    limit.take(60, 100.0)
    assert limit.wait_seconds(40.0) == pytest.approx(1.0)
    assert limit.wait_seconds(100.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("pools", "models", "opens"),
    [
        ((), (), True),
        (("default/chat",), (), True),
        (("default/other",), (), False),
        ((), ("llama",), True),
        ((), ("mixtral",), False),
        (("default/chat",), ("mixtral",), False),
        (("default/other", "default/chat"), ("mixtral", "llama"), True),
    ],
)
def test_a_key_opens_a_pool_that_both_its_scopes_allow(pools: tuple[str, ...], models: tuple[str, ...], opens: bool) -> None:
    assert GatewayKeyFacts(id="k", digest="", pools=pools, models=models).opens(CHAT, "llama") is opens
