"""The number of instances that prompts need. Prompts that no number of instances can serve in time need none."""

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis.strategies import floats

from fairlead.capabilities import declared
from fairlead.instances import Role
from fairlead.scaling.overload import tokens_within
from fairlead.scaling.signals import RoleSignals
from fairlead.scaling.sizing import Capacity, need, prefill_work
from fairlead.scaling.specs import ScalingSpec
from fairlead.tables import SloFacts

CAPACITY = Capacity(prefill_speed=declared(6250.0), kv_cache_tokens=1_000_000)
SLO = SloFacts(ttft_seconds=2.0)


def arriving(mean: float, **changes: Any) -> RoleSignals:
    """Return signals of two prompts a second with this mean of uncached tokens, at instances that compute 6,250 a
    second.
    """
    figures = {
        "prompt_tokens_per_second": 2 * mean,
        "requests_per_second": 2.0,
        "cached_share": 0.0,
        "output_tokens_per_second": 0.0,
        "prefill_tokens_per_second": 6250.0,
    }
    return RoleSignals(**{"role": Role.BOTH, "serving": 2, "in_flight": 1, "waiting": 0, **figures, **changes})


def test_prompts_that_alone_miss_the_target_ask_for_no_instances() -> None:
    assert prefill_work(arriving(12_000.0), SLO, CAPACITY) == pytest.approx(24_000 / 6250)
    assert prefill_work(arriving(13_000.0), SLO, CAPACITY) is None
    assert need(arriving(13_000.0), SLO, CAPACITY, ScalingSpec()).for_prompts is None


def test_a_few_very_long_prompts_do_not_stop_the_scaling_for_all_others() -> None:
    """In simulations of such prompts, 51 % are in time with 2 instances and 62 % with 4. Alone, 61 % are within the
    target.
    """
    heavy = arriving(17_180.0, prompt_variation=1.8)
    assert prefill_work(heavy, SLO, CAPACITY) == pytest.approx(2 * 17_180 / 6250)
    refusing = prefill_work(heavy, SLO, CAPACITY, refuses_late=True)
    assert refusing is not None and 0.0 < refusing < 2 * 12_500 / 6250


@given(floats(1.0, 50_000.0), floats(0.0, 4.0))
def test_prompts_ask_for_instances_while_half_of_them_can_be_in_time(median: float, variation: float) -> None:
    assume(abs(median - 12_500) > 0.01)
    seen = arriving(median * math.sqrt(1 + variation**2), prompt_variation=variation)
    assert (prefill_work(seen, SLO, CAPACITY) is None) == (median > 12_500)


def test_a_measured_speed_decides_and_a_declared_one_alone_does_not() -> None:
    assert prefill_work(arriving(12_000.0, prefill_tokens_per_second=None), SLO, CAPACITY) is None
    assert prefill_work(arriving(13_000.0, prefill_tokens_per_second=20_000.0), SLO, CAPACITY) == pytest.approx(1.3)


def test_the_tokens_of_prompts_that_are_refused_as_too_long_ask_for_no_instances() -> None:
    """With a coefficient of variation of 1.3, prompts of up to four times the mean have 81 % of the tokens."""
    heavy = arriving(3125.0, prompt_variation=1.3)
    assert prefill_work(heavy, SLO, CAPACITY) == pytest.approx(1.0), "none is refused: all are computed"
    assert prefill_work(heavy, SLO, CAPACITY, refuses_late=True) == pytest.approx(0.815, abs=0.001)


@given(floats(0.01, 100.0), floats(0.0, 5.0))
def test_tokens_within_a_length_are_a_share_that_grows_with_it(length: float, variation: float) -> None:
    assert 0.0 <= tokens_within(length, variation) <= tokens_within(2 * length, variation) <= 1.0
