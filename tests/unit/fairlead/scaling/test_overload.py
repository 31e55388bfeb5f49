"""The requests that a split of instances can serve: an overload of prefill costs few requests, one of decode many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.scaling.overload import Demand, Outlook, kept_requests, outlook

LONG_TAILED = Demand(prompt_variation=1.31, refuses_late=True)  # sigma 1, as in Mooncake's conversation trace
WORKS = st.floats(0.1, 40.0)


def test_an_overload_of_prefill_is_refused_to_the_longest_prompts() -> None:
    assert kept_requests(0.75, 0.0) == 0.75
    assert kept_requests(0.75, 1.0) == pytest.approx(0.953, abs=0.001)
    assert (kept_requests(1.5, 1.0), kept_requests(0.0, 1.0), kept_requests(0.0, 0.0)) == (1.0, 0.0, 0.0)


def test_of_equal_overloads_the_one_of_decode_costs_more_requests() -> None:
    short_of_prefill = outlook((7, 9.1), (5, 4.5), LONG_TAILED)
    short_of_decode = outlook((8, 9.1), (4, 4.9), LONG_TAILED)
    assert short_of_prefill.busiest > short_of_decode.busiest
    assert short_of_prefill.servable > 0.95 and short_of_decode.servable < 0.83
    assert short_of_prefill.is_better_than(short_of_decode)


@pytest.mark.parametrize(
    "demand", [Demand(prompt_variation=1.31), Demand(refuses_late=True)], ids=["refuses nothing early", "unknown lengths"]
)
def test_without_refusals_by_length_the_less_busy_split_is_better(demand: Demand) -> None:
    assert outlook((8, 9.1), (4, 4.9), demand).is_better_than(outlook((7, 9.1), (5, 4.5), demand))


def test_a_pool_with_room_is_better_with_its_busier_role_less_busy() -> None:
    even, uneven = outlook((4, 2.0), (4, 2.0), LONG_TAILED), outlook((6, 2.0), (2, 1.9), LONG_TAILED)
    assert even.servable == uneven.servable == 1.0
    assert even.is_better_than(uneven) and not uneven.is_better_than(even)


def test_idle_roles_are_no_limit() -> None:
    assert outlook((1, 0.0), (1, 0.0), LONG_TAILED) == Outlook(servable=1.0, busiest=0.0)


@given(prefill=st.integers(1, 20), decode=st.integers(1, 20), works=st.tuples(WORKS, WORKS), spread=st.floats(0.0, 4.0))
def test_of_two_splits_at_most_one_is_better(prefill: int, decode: int, works: tuple[float, float], spread: float) -> None:
    demand = Demand(prompt_variation=spread, refuses_late=True)
    here = outlook((prefill, works[0]), (decode + 1, works[1]), demand)
    there = outlook((prefill + 1, works[0]), (decode, works[1]), demand)
    assert 0.0 <= here.servable <= 1.0
    assert not (here.is_better_than(there) and there.is_better_than(here))


def test_work_is_known_better_the_more_requests_there_were() -> None:
    assert Demand().error(60.0) == Demand(requests_per_second=1.0).error(0.0) == 0.0
    assert Demand(requests_per_second=1.0, prompt_variation=1.0).error(200.0) == pytest.approx(0.1)
    assert Demand(requests_per_second=0.001).error(30.0) == 0.5
