"""Remedies offered to random pools keep their promise when they are applied; the benchmark tries 200."""

import pytest
from benchmarks.remedies import a_pool, outcomes


@pytest.mark.parametrize(
    ("number", "claims"),
    [
        (0, {"a number of instances"}),
        (6, {"no number of instances meets the goal"}),
        (7, {"a number of instances"}),
    ],
)
def test_what_is_offered_to_a_pool_holds_for_the_requests_that_come_next(number: int, claims: set[str]) -> None:
    found = list(outcomes(a_pool(number, 400)))
    assert {one.claim for one in found} == claims
    assert all(one.holds for one in found), found
