"""The durations of decodes: the learned distribution, and the remaining time of a decode of a given age."""

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.admission.lifetimes import KEPT, DecodeLifetimes

durations = st.lists(st.floats(0.01, 500.0), max_size=2 * KEPT)
ages = st.lists(st.floats(0.0, 600.0), min_size=1, max_size=20)


def learnt(seconds: list[float]) -> DecodeLifetimes:
    lifetimes = DecodeLifetimes(20.0)
    for one in seconds:
        lifetimes.observe(one)
    return lifetimes


def test_before_any_was_seen_every_decode_lasts_the_assumed_time() -> None:
    lifetimes = DecodeLifetimes(20.0)
    assert lifetimes.mean_seconds == 20.0
    assert lifetimes.surviving(np.array([0.0, 20.0, 20.1])).tolist() == [1.0, 1.0, 0.0]
    assert lifetimes.remaining(np.array([0.0, 12.0, 13.0]), 8.0).tolist() == [1.0, 1.0, 0.0]


def test_a_decode_that_outlived_the_short_ones_is_more_likely_to_stay() -> None:
    lifetimes = learnt([1.0, 30.0] * (KEPT // 2))
    assert lifetimes.remaining(np.array([0.5, 2.0]), 10.0).tolist() == [0.5, 1.0]


def test_what_outlived_all_decodes_seen_is_still_there_now_and_may_end_at_any_time() -> None:
    lifetimes = DecodeLifetimes(20.0)
    assert lifetimes.remaining(np.array([99.0]), 0.0).tolist() == [1.0]
    assert lifetimes.remaining(np.array([99.0]), 20.0).tolist() == pytest.approx([exp(-1)])


def test_where_decodes_took_no_time_at_all_none_is_expected_to_stay() -> None:
    lifetimes = learnt([0.0] * KEPT)
    assert lifetimes.remaining(np.array([0.0, 1.0]), 1.0).tolist() == [0.0, 0.0]


@given(durations, ages)
def test_the_share_that_survives_is_that_of_the_last_decodes_kept(seconds: list[float], asked: list[float]) -> None:
    lifetimes = learnt(seconds)
    kept = ([20.0] * KEPT + seconds)[-KEPT:]
    expected = [sum(one >= age for one in kept) / KEPT for age in asked]
    assert lifetimes.surviving(np.array(asked)).tolist() == pytest.approx(expected)
    assert lifetimes.mean_seconds == pytest.approx(sum(kept) / KEPT)


@given(durations, ages, st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_ever_fewer_remain_and_all_do_at_once(seconds: list[float], asked: list[float], sooner: float, longer: float) -> None:
    lifetimes, at = learnt(seconds), np.array(asked)
    assert lifetimes.remaining(at, 0.0).tolist() == [1.0] * len(asked)
    first, second = lifetimes.remaining(at, sooner), lifetimes.remaining(at, sooner + longer)
    assert bool(((second <= first) & (second >= 0) & (first <= 1)).all())
