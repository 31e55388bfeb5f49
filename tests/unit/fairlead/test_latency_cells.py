from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.latency_cells import EDGES, added, cell_of, in_time, is_edge

LATENCY = st.floats(0.0001, 20_000.0)


def test_steps_end_at_the_numbers_that_people_write() -> None:
    assert (EDGES[0], EDGES[-1]) == (0.001, 9000.0)
    assert all(1 < after / before < 1.14 for before, after in pairwise(EDGES))
    assert all(is_edge(target) for target in (0.02, 0.05, 0.08, 0.1, 0.25, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 10.0, 60.0, 300.0))
    assert not any(is_edge(target) for target in (0.0005, 0.17, 5.1, 20_000.0))


@given(st.lists(st.tuples(LATENCY, st.none() | LATENCY)), st.sampled_from(EDGES), st.sampled_from(EDGES))
def test_a_target_at_the_end_of_a_step_is_answered_exactly(requests: list[tuple[float, float | None]], ttft: float, tpot: float) -> None:
    found = in_time(Counter(cell_of(*one) for one in requests), ttft, tpot)
    met = sum(first < ttft and (rest is None or rest < tpot) for first, rest in requests)
    assert (found.least, found.most, found.requests) == (met, met, len(requests))


@given(st.lists(st.tuples(LATENCY, st.none() | LATENCY)), LATENCY, LATENCY)
def test_any_other_target_lies_between_two_numbers_that_differ_by_the_steps_it_cuts(
    requests: list[tuple[float, float | None]], ttft: float, tpot: float
) -> None:
    found = in_time(Counter(cell_of(*one) for one in requests), ttft, tpot)
    met = sum(first < ttft and (rest is None or rest < tpot) for first, rest in requests)
    assert found.least <= met <= found.most
    if not requests:
        assert found.most == 0


def test_counts_of_two_classes_add_up() -> None:
    assert added([{1: 2, 3: 1}, {3: 4}, {}]) == {1: 2, 3: 5}


@pytest.mark.parametrize(("ttft", "in_time_then"), [(2.0, (1, 1)), (2.2, (2, 2)), (2.1, (1, 2))])
def test_a_request_at_a_target_is_late(ttft: float, in_time_then: tuple[int, int]) -> None:
    found = in_time(Counter([cell_of(1.9, None), cell_of(2.0, 0.01)]), ttft, 0.1)
    assert (found.least, found.most) == in_time_then
