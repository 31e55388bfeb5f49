"""The work beside a decode: totals of an instance over time."""

import pytest

from fairlead.routing.contracts.decode_history import DecodeHistory


def test_the_mean_load_between_two_marks_is_weighted_by_time() -> None:
    history = DecodeHistory()
    began = history.advance(100.0, 1_000, 1)
    history.advance(101.0, 5_000, 3)
    history.prefill_seconds += 0.5
    ended = history.advance(105.0, 0, 0)
    seconds = ended.at - began.at
    assert (ended.token_seconds - began.token_seconds) / seconds == pytest.approx((1_000 + 4 * 5_000) / 5)
    assert (ended.request_seconds - began.request_seconds) / seconds == pytest.approx((1 + 4 * 3) / 5)
    assert ended.prefill_seconds - began.prefill_seconds == 0.5


def test_a_clock_that_steps_back_adds_nothing() -> None:
    history = DecodeHistory()
    before = history.advance(100.0, 1_000, 1)
    assert history.advance(99.0, 1_000, 1) == before
