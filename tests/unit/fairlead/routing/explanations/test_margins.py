"""The margin of a decision is the difference in the term which distinguished the chosen instance from the next best.

It is given in the term's own direction.
"""

from collections.abc import Sequence

import pytest

from fairlead.reports.decisions import CandidateScore
from fairlead.routing.explanations.forecasts import forecast
from fairlead.routing.explanations.grounds import ground_of
from fairlead.routing.explanations.margins import Margin, Standing, margin_of
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_testing.worlds.watched_policy import Recorded


def scored(instance: str, total: float | None, ttft: float = 1.0, **terms: float) -> CandidateScore:
    return CandidateScore(
        instance=instance, hit_tokens=0, miss_tokens=1, pending_tokens=0, predicted_ttft_seconds=ttft, total=total, terms=terms
    )


def margin(policy: str, rule: str, candidates: Sequence[CandidateScore], chosen: str = "a", **limits: float) -> Margin | None:
    ground = ground_of(BUILT_IN.terms(policy), rule, limits)
    return margin_of(
        Recorded(
            chosen=chosen,
            rule=ground.rule,
            terms=ground.terms,
            limits=ground.limits,
            candidates=tuple(candidates),
            passed_over=None,
            prompt_tokens=1000,
        )
    )


def test_it_is_of_the_first_term_in_which_the_two_differ() -> None:
    found = margin("least-loaded", "least-pending", [scored("a", 5.0, decode_tokens=3.0), scored("b", 5.0, decode_tokens=7.0)])
    assert found is not None
    assert (found.term.name, found.standing, found.size, found.other, found.by_rule) == ("decode_tokens", Standing.AHEAD, 4.0, "b", True)


def test_it_is_to_the_best_of_the_others_and_higher_wins_where_higher_is_better() -> None:
    scores = {"queue_score": 1.0, "kv_score": 1.0, "prefix_score": 1.0}
    found = margin("heimdall", "best-score", [scored(name, total, **scores) for name, total in (("a", 4.7), ("b", 3.0), ("c", 4.5))])
    assert found is not None
    assert (found.other, found.standing) == ("c", Standing.AHEAD)
    assert found.size == pytest.approx(0.2)


def test_equals_have_none() -> None:
    found = margin("least-loaded", "least-pending", [scored("a", 5.0, decode_tokens=3.0), scored("b", 5.0, decode_tokens=3.0)])
    assert found is not None
    assert (found.standing, found.size) == (Standing.EQUAL, 0.0)


def test_a_rule_above_the_score_is_told_with_the_score_it_stands_above() -> None:
    host, idle = scored("a", 900.0, sessions=3.0, free_kv_tokens=10.0), scored("b", 0.0, sessions=0.0, free_kv_tokens=10.0)
    behind = margin("ear", "host-not-hot", [host, idle], hot_tokens=1000.0)
    ahead = margin("ear", "host-not-hot", [idle, host], chosen="b", hot_tokens=1000.0)
    assert behind is not None
    assert ahead is not None
    assert (behind.standing, behind.size, behind.other, behind.by_rule) == (Standing.BEHIND, 900.0, "b", False)
    assert (ahead.standing, ahead.other) == (Standing.AHEAD, "a")


def test_nothing_to_compare_with_has_no_margin() -> None:
    assert margin("least-loaded", "least-pending", [scored("a", 5.0, decode_tokens=3.0)]) is None
    assert margin("random", "drawn", [scored("a", None), scored("b", None)]) is None
    assert margin("least-loaded", "least-pending", [scored("b", 5.0, decode_tokens=3.0)]) is None, "the chosen one was not recorded"


@pytest.mark.parametrize(
    ("predicted", "came", "held", "elsewhere", "far"),
    [
        (1.0, 3.0, None, False, True),
        (3.0, 1.0, 0.0, False, True),
        (1.0, 1.9, None, False, False),
        (0.01, 0.4, None, False, False),
        (1.0, 61.0, 60.0, False, False),
        (1.0, 9.0, None, True, False),
    ],
)
def test_a_prediction_is_far_off_by_a_factor_and_by_seconds_and_only_for_its_own_road(
    predicted: float, came: float, held: float | None, elsewhere: bool, far: bool
) -> None:
    found = forecast(predicted, came, held, elsewhere=elsewhere)
    assert found is not None
    assert found.is_far_off is far
    assert forecast(predicted, None, held, elsewhere=elsewhere) is None
