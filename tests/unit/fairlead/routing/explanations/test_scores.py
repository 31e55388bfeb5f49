"""Scores on one scale for every policy: 1 for the best of the compared instances, 0 for the worst."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.decisions import CandidateScore
from fairlead.routing.contracts.weighing import better
from fairlead.routing.explanations.scores import relative_scores
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_testing.examples import examples

POLICIES = sorted(name for name in BUILT_IN.names if (terms := BUILT_IN.terms(name)) is not None and terms.total is not None)


def compared(*totals: float | None) -> list[CandidateScore]:
    same = {"hit_tokens": 0, "miss_tokens": 1, "pending_tokens": 0, "predicted_ttft_seconds": 1.0}
    return [CandidateScore(instance=f"i{number}", total=total, **same) for number, total in enumerate(totals)]  # type: ignore[arg-type]


@examples(100)
@given(policy=st.sampled_from(POLICIES), totals=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_a_better_total_never_has_a_lower_score(policy: str, totals: list[float]) -> None:
    terms = BUILT_IN.terms(policy)
    assert terms is not None
    assert terms.total is not None
    scores = relative_scores(terms, compared(*totals))
    assert max(scores.values()) == 1.0
    assert min(scores.values()) >= 0.0
    for one, first in enumerate(totals):
        for other, second in enumerate(totals):
            if better(terms.total, first, second):
                assert scores[f"i{one}"] >= scores[f"i{other}"]


@pytest.mark.parametrize(
    ("policy", "totals", "scores"),
    [
        ("fairlead", (1.0, 3.0, 2.0), {"i0": 1.0, "i1": 0.0, "i2": 0.5}),
        ("endpoint-picker", (1.0, 3.0), {"i0": 0.0, "i1": 1.0}),
        ("fairlead", (2.0, 2.0), {"i0": 1.0, "i1": 1.0}),
        ("fairlead", (None, None), {}),
        ("not known here", (1.0, 2.0), {}),
    ],
)
def test_the_direction_is_the_policys_and_nothing_is_made_up(
    policy: str, totals: tuple[float | None, ...], scores: dict[str, float]
) -> None:
    assert relative_scores(BUILT_IN.terms(policy), compared(*totals)) == scores
