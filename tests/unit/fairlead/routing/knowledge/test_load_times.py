"""Load times of tiers outside the GPU, learned from first tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import Source
from fairlead.kv_events.sources import SLOW, Tier, TierCounts
from fairlead.routing.knowledge.load_times import KEPT_LOADS, LEAST_LOADS, LEAST_TOKENS, LoadTimes
from fairlead_testing.examples import examples

HOST: TierCounts = (10_000, 0, 0)


def seen(*seconds: float, tokens: TierCounts = HOST) -> LoadTimes:
    times = LoadTimes()
    for at, each in enumerate(seconds):
        times.observe(tokens, each, float(at))
    return times


def test_a_tier_is_known_by_the_median_of_its_loads() -> None:
    times = seen(0.1, 0.1, 0.1, 30.0, 0.1)  # one engine stood still
    assert times.seconds((5_000, 0, 0)) == pytest.approx(0.05)
    figure = times.figure(Tier.HOST, 10.0)
    assert figure.value == pytest.approx(100_000)
    assert (figure.source, figure.samples, figure.age_seconds) == (Source.MEASURED, 5, 6.0)


def test_an_unknown_tier_costs_nothing_and_is_said_to_be_unknown() -> None:
    times = seen(*[0.1] * (LEAST_LOADS - 1))
    assert (times.seconds(HOST), times.knows(HOST), times.figure(Tier.HOST, 9.0).source) == (0.0, False, Source.UNKNOWN)
    assert times.knows((0, 0, 0))


def test_a_declared_speed_counts_until_loads_were_seen() -> None:
    times = LoadTimes()
    times.declare(Tier.REMOTE, 50_000)
    assert times.seconds((0, 0, 5_000)) == pytest.approx(0.1)
    assert times.figure(Tier.REMOTE, 0.0).source is Source.DECLARED
    for at in range(LEAST_LOADS):
        times.observe((0, 0, 1_000), 0.1, float(at))
    assert times.seconds((0, 0, 5_000)) == pytest.approx(0.5)
    times.declare(Tier.REMOTE, None)
    assert times.seconds((0, 0, 5_000)) == pytest.approx(0.5)


def test_a_few_tokens_and_those_of_several_tiers_say_nothing() -> None:
    assert not seen(*[1.0] * 9, tokens=(LEAST_TOKENS - 1, 0, 0)).knows(HOST)
    assert not seen(*[1.0] * 9, tokens=(800, 200, 0)).knows(HOST)


def test_what_was_seen_too_long_ago_is_forgotten() -> None:
    times = seen(0.1, 0.1, 0.1)
    times.forget_older(2.0)
    assert times.knows(HOST)
    times.forget_older(2.5)
    assert not times.knows(HOST)


@examples(100)
@given(
    st.lists(st.tuples(st.tuples(*[st.integers(0, 5_000)] * 3), st.floats(-1.0, 1e9)), max_size=200),
    st.tuples(*[st.integers(0, 10**6)] * 3),
)
def test_a_prediction_is_never_negative_and_what_is_kept_is_bounded(loads: list[tuple[TierCounts, float]], asked: TierCounts) -> None:
    times = LoadTimes()
    for at, (tokens, seconds) in enumerate(loads):
        times.observe(tokens, seconds, float(at))
    assert times.seconds(asked) >= 0.0
    assert all(times.figure(tier, 1e9).samples <= KEPT_LOADS for tier in SLOW)
