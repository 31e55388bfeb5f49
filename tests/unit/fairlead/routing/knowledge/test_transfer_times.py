"""The expected times of transfers between instances, and which instances are avoided after a failure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import Source
from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.routing.knowledge.transfer_times import TransferTimes
from fairlead_testing.examples import examples


def moved(times: TransferTimes, tokens: int, seconds: float, pair: tuple[str, str] = ("a", "b"), now: float = 0.0) -> None:
    times.observe(*pair, CacheTransfer(fate=CacheFate.MOVED, seconds=seconds, tokens=tokens), seconds, now)


def failed(times: TransferTimes, fate: CacheFate, now: float, pair: tuple[str, str] = ("a", "b")) -> None:
    times.observe(*pair, CacheTransfer(fate=fate, seconds=1.0), 1.0, now)


def test_an_unknown_transfer_takes_what_is_declared_or_half_of_computing() -> None:
    times = TransferTimes()
    assert times.seconds("a", "b", 1000, 2.0, None) == pytest.approx(1.05)
    assert times.seconds("a", "b", 1000, 2.0, 10_000.0) == pytest.approx(0.15)
    assert times.figure(10_000.0, 0.0).source is Source.DECLARED
    assert times.figure(None, 0.0).source is Source.UNKNOWN


def test_latency_and_speed_of_a_pair_are_told_apart() -> None:
    times = TransferTimes()
    for tokens in (1000, 4000, 9000):
        moved(times, tokens, 0.2 + tokens / 20_000)
    assert times.seconds("a", "b", 20_000, 9.0, 1.0) == pytest.approx(1.2)
    assert times.figure(1.0, 5.0).source is Source.MEASURED


def test_a_pair_that_never_met_is_taken_to_be_like_the_others() -> None:
    times = TransferTimes()
    moved(times, 1000, 0.5)
    assert times.seconds("c", "d", 2000, 9.0, None) == pytest.approx(1.0)


def test_a_pair_that_failed_rests_longer_each_time_and_no_other_pair_does() -> None:
    times = TransferTimes()
    failed(times, CacheFate.LATE, 0.0)
    assert (times.may_try("a", "b", 9.0), times.may_try("a", "b", 10.0), times.may_try("a", "c", 0.0)) == (False, True, True)
    failed(times, CacheFate.LOST, 10.0)
    assert (times.may_try("a", "b", 29.0), times.may_try("a", "b", 30.0)) == (False, True)
    moved(times, 1000, 0.1, now=30.0)
    failed(times, CacheFate.LATE, 31.0)
    assert times.may_try("a", "b", 41.0)


def test_a_pair_that_was_late_rests_for_those_who_wait_only() -> None:
    times = TransferTimes()
    failed(times, CacheFate.LATE, 0.0)
    assert (times.may_try("a", "b", 1.0), times.may_try("a", "b", 1.0, waits=False)) == (False, True)
    failed(times, CacheFate.LOST, 2.0)
    assert not times.may_try("a", "b", 3.0, waits=False)
    moved(times, 1000, 0.1, now=4.0)
    assert times.may_try("a", "b", 4.0)


def test_a_source_that_names_nothing_tells_nothing_of_the_pair() -> None:
    times = TransferTimes()
    failed(times, CacheFate.UNNAMED, 0.0)
    assert times.may_try("a", "b", 0.0)


def test_a_pair_with_another_engine_does_not_rest() -> None:
    times = TransferTimes()
    failed(times, CacheFate.LATE, 0.0)
    times.forget("a")
    assert times.may_try("a", "b", 1.0)


@examples(200)
@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 600)), min_size=1, max_size=40),
    st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
)
def test_more_tokens_never_take_less_time_whatever_was_seen(seen: list[tuple[int, float]], tokens: tuple[int, int]) -> None:
    times = TransferTimes()
    for one, seconds in seen:
        moved(times, one, seconds)
    few, many = (times.seconds("a", "b", one, 1.0, None) for one in sorted(tokens))
    assert 0 <= few <= many
