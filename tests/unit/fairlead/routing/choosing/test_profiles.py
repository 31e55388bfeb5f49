"""A scheduling profile: filters in order, scores times weights, and a picker."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.choosing.considered import Considered
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.filters import UtilizationCondition, UtilizationFilter
from fairlead.routing.choosing.pickers import MaxScorePicker, Picker, RandomPicker, WeightedRandomPicker
from fairlead.routing.choosing.profiles import Profile, WeightedScorer
from fairlead.routing.choosing.scorers.loads import KvCacheUtilizationScorer, QueueScorer
from fairlead.routing.choosing.scorers.placements import ColdPlacement, NoHitLruScorer
from fairlead_testing.builders.routing import load_of, request, view_over

SCORERS = (WeightedScorer(scorer=QueueScorer(), weight=2.0), WeightedScorer(scorer=KvCacheUtilizationScorer()))
NOT_FULL = UtilizationFilter(conditions=(UtilizationCondition(metric="kv-cache-utilization", max_value=0.8),))


def pool(*usages: float) -> Considered:
    """Return instances a, b, … with queues of 0, 1, … and with these shares of their caches in use."""
    loads = [load_of(name, waiting=place, kv_usage=usage) for place, (name, usage) in enumerate(zip("abcdef", usages, strict=False))]
    return Considered.of(request("r", 5120), view_over(loads), 0.0)


def test_weighted_scores_add_up_and_the_highest_sum_wins() -> None:
    picked = Profile(scorers=SCORERS, picker=MaxScorePicker()).run(pool(0.9, 0.2, 0.0), Dice(1))
    assert picked.totals.tolist() == pytest.approx([2.1, 1.8, 1.0])
    assert (picked.order, picked.count, picked.rule) == ([0, 1, 2], 1, "best-score")
    assert {name: vector.tolist() for name, vector in picked.terms.items()} == {
        "queue_score": pytest.approx([2.0, 1.0, 0.0]),
        "kv_score": pytest.approx([0.1, 0.8, 1.0]),
    }


def test_scorers_see_only_who_passed_the_filters() -> None:
    picked = Profile(filters=(NOT_FULL,), scorers=SCORERS, picker=MaxScorePicker(max_num_of_endpoints=2)).run(pool(0.9, 0.5, 0.0), Dice(1))
    assert picked.totals.tolist() == pytest.approx([0.0, 2.5, 1.0]), "of those left, b has the shortest queue"
    assert (picked.order, picked.count, picked.rule) == ([1, 2], 2, "best-passing")


def test_all_are_scored_where_nobody_passes() -> None:
    picked = Profile(filters=(NOT_FULL,), scorers=SCORERS, picker=MaxScorePicker()).run(pool(0.9, 0.95), Dice(1))
    assert (picked.order[0], picked.rule) == (0, "best-of-none")


def test_two_scorers_of_one_kind_count_together() -> None:
    twice = (WeightedScorer(scorer=QueueScorer()), WeightedScorer(scorer=QueueScorer(), weight=0.5))
    picked = Profile(scorers=twice, picker=MaxScorePicker()).run(pool(0.0, 0.0), Dice(1))
    assert picked.terms["queue_score"].tolist() == [1.5, 0.0]


def test_a_scorer_that_remembers_is_told_who_was_picked() -> None:
    cold = Profile(scorers=(WeightedScorer(scorer=NoHitLruScorer(ColdPlacement())),), picker=MaxScorePicker())
    seen = pool(0.0, 0.0, 0.0)
    assert [cold.run(seen, Dice(1)).order[0] for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_without_scorers_every_instance_is_as_likely() -> None:
    dice = Dice(3)
    drawn = Counter(Profile(picker=MaxScorePicker()).run(pool(0.0, 0.0, 0.0), dice).order[0] for _ in range(300))
    assert min(drawn.values()) > 60
    assert drawn.total() == 300


def test_the_random_picker_does_not_look_at_scores() -> None:
    dice = Dice(3)
    drawn = Counter(RandomPicker().order(np.array([0.0, 9.0, 1.0]), dice)[0] for _ in range(600))
    assert min(drawn.values()) > 150


def test_the_weighted_random_picker_draws_in_proportion_to_the_sums() -> None:
    dice = Dice(5)
    drawn = Counter(WeightedRandomPicker().order(np.array([1.0, 3.0, 0.0]), dice)[0] for _ in range(2000))
    assert drawn[2] == 0
    assert 0.70 < drawn[1] / 2000 < 0.80


def test_the_weighted_random_picker_draws_as_fairly_from_small_sums() -> None:
    dice = Dice(5)
    drawn = Counter(WeightedRandomPicker().order(np.array([1e-5, 3e-5, 0.0]), dice)[0] for _ in range(2000))
    assert drawn[2] == 0
    assert 0.70 < drawn[1] / 2000 < 0.80


def test_the_weighted_random_picker_draws_any_where_all_sums_are_nothing() -> None:
    dice = Dice(5)
    drawn = Counter(WeightedRandomPicker().order(np.zeros(3), dice)[0] for _ in range(600))
    assert min(drawn.values()) > 150


@given(
    usages=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6),
    picker=st.sampled_from([MaxScorePicker(), MaxScorePicker(max_num_of_endpoints=3), RandomPicker(), WeightedRandomPicker()]),
    seed=st.integers(0, 1000),
)
def test_who_is_picked_has_passed_if_anybody_has_and_nobody_is_picked_twice(usages: list[float], picker: Picker, seed: int) -> None:
    seen = pool(*usages)
    picked = Profile(filters=(NOT_FULL,), scorers=SCORERS, picker=picker).run(seen, Dice(seed))
    able = [place for place, usage in enumerate(usages) if usage <= 0.8] or list(range(len(usages)))
    assert set(picked.order) <= set(able)
    assert len(set(picked.order)) == len(picked.order) >= picked.count >= 1
