"""The load of a pool, and for how long decodes are not interrupted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.rests import MOST_SHARE, REST, rest_seconds
from fairlead.routing.knowledge.pool_load import OfferedPrefills, decode_share


def test_a_steady_stream_is_told_at_its_rate_from_the_first_minute_on() -> None:
    offered = OfferedPrefills()
    assert offered.per_second(0.0) == 0.0
    for tenth in range(3000):
        offered.add(0.06, 1000 + tenth / 10)
        if tenth in (200, 1000, 2999):
            assert offered.per_second(1000 + tenth / 10) == pytest.approx(0.6, rel=0.02)


def test_the_first_request_does_not_look_like_an_overload_and_what_came_is_forgotten() -> None:
    offered = OfferedPrefills()
    offered.add(1.0, 50.0)
    assert offered.per_second(50.0) == pytest.approx(0.2, abs=0.03), "one second in five"
    assert offered.per_second(350.0) < 0.0001


@pytest.mark.parametrize(("step", "share"), [(0.0, 0.0), (0.03, 0.3), (0.09, MOST_SHARE), (0.1, 0.0), (0.2, 0.0)])
def test_decodes_need_the_share_of_a_step_in_its_target_unless_that_cannot_be_met(step: float, share: float) -> None:
    assert decode_share(step, 0.1) == pytest.approx(share)


@given(st.floats(0.001, 0.07), st.lists(st.floats(0.01, 20.0), min_size=1, max_size=6), st.integers(1, 400))
def test_with_whole_rests_every_answer_keeps_its_tpot_however_long_it_is(step: float, prefills: list[float], answer: int) -> None:
    """An answer begins when a prefill ends. Then rests and prefills alternate until it has all its tokens."""
    target, at, tokens = 0.1, 0.0, 0.0
    for prefill in prefills:
        rest = rest_seconds(prefill, decode_share(step, target)) / REST
        if tokens + rest / step >= answer:
            break
        tokens += rest / step
        at += rest + prefill
    at += max(0.0, answer - tokens) * step
    assert at <= answer * target * (1 + 1e-9)
