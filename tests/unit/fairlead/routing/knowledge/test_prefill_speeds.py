"""The prefill speed is near the median of the observed ones: no assumption limits it, and no odd prefill moves it
far.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import UNKNOWN, Source
from fairlead.routing.knowledge.prefill_speeds import (
    COMPARED_TOKENS,
    ENOUGH_PREFILLS,
    KEPT_PREFILLS,
    LEAST_COMPUTING,
    LINE_PREFILLS,
    SLOW_SECONDS,
    PrefillSpeeds,
)


def seen(*prefills: tuple[int, float], instance: str = "i0") -> PrefillSpeeds:
    speeds = PrefillSpeeds()
    for at, (tokens, seconds) in enumerate(prefills):
        speeds.observe(instance, tokens, seconds, float(at))
    return speeds


@given(st.floats(1.0, 1e7), st.lists(st.integers(1_000, 100_000), min_size=ENOUGH_PREFILLS, max_size=60))
def test_any_speed_is_measured_whatever_anybody_declared(speed: float, lengths: list[int]) -> None:
    figure = seen(*((tokens, tokens / speed) for tokens in lengths)).figure(100.0)
    assert figure.source is Source.MEASURED
    assert figure.value == pytest.approx(speed)
    assert figure.samples > 0


@given(st.lists(st.floats(1e-6, 600.0), max_size=9))
def test_a_minority_of_odd_prefills_does_not_decide(odd: list[float]) -> None:
    speeds = seen(*[(4_000, 0.4)] * 10, *((4_000, seconds) for seconds in odd))
    assert speeds.tokens_per_second == pytest.approx(10_000.0, rel=0.35)


def test_short_prefills_are_the_wait_for_a_step_and_tell_no_speed() -> None:
    assert seen(*[(100, 0.03)] * 50).figure(0.0) == UNKNOWN


def test_short_prefills_tell_the_speed_of_a_slow_engine_that_has_no_others() -> None:
    assert seen(*[(400, 0.8)] * 50).tokens_per_second == pytest.approx(500.0)


def test_prefills_that_one_step_finishes_together_count_as_one() -> None:
    speeds = PrefillSpeeds()
    for number in range(10):
        speeds.observe("i0", 4_000, 0.8, float(number))
        speeds.observe("i0", 4_000, 0.0, float(number))
    assert speeds.tokens_per_second == pytest.approx(10_000.0, rel=0.1)  # of the last one half is not seen yet


def test_too_few_prefills_tell_nothing() -> None:
    assert seen(*[(4_000, 0.4)] * (ENOUGH_PREFILLS - 1)).tokens_per_second is None


def _tell(prefills: list[tuple[int, float]]) -> bool:
    long = [tokens for tokens, _ in prefills if tokens >= COMPARED_TOKENS]
    seconds = sorted(seconds for _, seconds in prefills)
    return len(long) >= ENOUGH_PREFILLS or (len(seconds) >= ENOUGH_PREFILLS and seconds[len(seconds) // 2] >= SLOW_SECONDS)


RUNS = st.lists(
    st.tuples(st.integers(1, 120), st.sampled_from([1, 600, 999, 1_000]), st.sampled_from([0.001, 0.199, 0.2, 1.0])), max_size=6
)


@given(runs=RUNS, together=st.integers(1, 5), forgotten=st.integers(1, 200))
def test_a_speed_is_known_as_soon_as_what_is_kept_tells_one(runs: list[tuple[int, int, float]], together: int, forgotten: int) -> None:
    speeds, kept, at = PrefillSpeeds(), list[tuple[int, float]](), 0.0
    for number, (tokens, seconds) in enumerate((tokens, seconds) for count, tokens, seconds in runs for _ in range(count)):
        if number and number % together == 0 and seconds <= 0.005:
            kept[-1] = kept[-1][0] + tokens, kept[-1][1] + seconds
            speeds.observe("i0", tokens, seconds, at)
            continue
        at += 1.0
        kept = [*kept, (tokens, seconds)][-KEPT_PREFILLS:]
        knew = speeds.tokens_per_second is not None
        assert speeds.observe("i0", tokens, seconds, at) or knew or not _tell(kept), "it was not measured"
        assert speeds.tokens_per_second is not None or knew or not _tell(kept)
        if not knew:
            assert (speeds.tokens_per_second is not None) == _tell(kept)
    speeds.forget_older(at - forgotten + 0.5)
    if len(kept) > forgotten:
        assert (speeds.tokens_per_second is not None) == _tell(kept[-forgotten:])


def test_an_engine_that_became_ten_times_as_fast_is_known_once_half_of_the_prefills_are_new() -> None:
    speeds = seen(*[(4_000, 4.0)] * KEPT_PREFILLS, *[(4_000, 0.4)] * (KEPT_PREFILLS // 2 + KEPT_PREFILLS // 4))
    assert speeds.tokens_per_second == pytest.approx(10_000.0)


def test_what_an_instance_showed_goes_with_it_and_what_is_old_goes_with_time() -> None:
    speeds = seen(*[(4_000, 0.4)] * 10)
    for number in range(5):
        speeds.observe("i1", 4_000, 4.0, 100.0 + number)
    speeds.forget("i0")
    assert speeds.tokens_per_second == pytest.approx(1_000.0)
    assert speeds.figure(110.0).age_seconds == pytest.approx(6.0)
    speeds.forget_older(200.0)
    assert speeds.figure(200.0) == UNKNOWN


def test_long_prompts_that_take_longer_for_each_token_count_with_the_time_that_they_take() -> None:
    """The median would be 10,000 tokens/s. At this speed half of the work would take a third longer than predicted."""
    speeds = seen(*[(4_000, 0.4)] * 11, *[(8_000, 1.2)] * 5)
    assert speeds.tokens_per_second == pytest.approx((11 * 4_000 + 5 * 8_000) / (11 * 0.4 + 5 * 1.2))


@given(
    st.floats(500.0, 1e5), st.floats(0.0, 0.2), st.lists(st.integers(1_000, 20_000), min_size=2 * LINE_PREFILLS, max_size=60, unique=True)
)
def test_what_every_prefill_waits_for_is_no_part_of_what_its_tokens_take(speed: float, wait: float, lengths: list[int]) -> None:
    speeds = seen(*((tokens, wait + tokens / speed) for tokens in lengths))
    assert speeds.tokens_per_second is not None
    computing = speeds.computing_share / speeds.tokens_per_second
    assert computing == pytest.approx(max(1 / speed, LEAST_COMPUTING / speeds.tokens_per_second), rel=1e-3)


def test_prompts_of_one_length_are_taken_to_be_computed_all_of_their_time() -> None:
    assert seen(*[(4_000, 0.4)] * 50).computing_share == 1.0


@given(st.lists(st.floats(0.0, 60.0), min_size=15, max_size=15))
def test_among_other_routers_prefills_that_stood_behind_none_of_theirs_tell_what_engines_compute_and_all_what_it_takes(
    behind: list[float],
) -> None:
    speeds, alone = PrefillSpeeds(), PrefillSpeeds()
    speeds.among_others = True
    for at, waited in enumerate([*[0.0] * 5, *behind]):
        speeds.observe("i0", 4_000, 0.4 + waited, float(at))
        alone.observe("i0", 4_000, 0.4 + waited, float(at))
    assert speeds.tokens_per_second is not None
    assert speeds.tokens_per_second == alone.tokens_per_second, "the next prefill stands behind unseen ones too"
    assert speeds.tokens_per_second / speeds.alone_share == pytest.approx(10_000.0)
    assert speeds.computing_share <= speeds.alone_share
    assert alone.alone_share == 1.0
