"""Policies that score every instance: the worked examples of their sources."""

import numpy as np
import pytest

from fairlead.routing.choosing.dice import Dice
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.policies import FollowsTable
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.policies.cache_load_linear import CacheLoadLinear, CacheLoadLinearParameters, linear_scores
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.policies.dynamo import Dynamo, DynamoParameters
from fairlead.routing.policies.least_request import LeastRequest
from fairlead.routing.policies.lmetric import LMetric, products
from fairlead.routing.policies.min_ttft import MinTtft
from fairlead.routing.policies.prefix_cache_load import (
    PrefixCacheLoad,
    PrefixCacheLoadParameters,
    crowding_bound,
    is_imbalanced,
    longest_match_within,
)
from fairlead.routing.policies.prefix_cache_threshold import PrefixCacheThreshold, PrefixCacheThresholdParameters
from fairlead.routing.policies.random import RandomChoice
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import dispatches, load_of, request, table, view_over

COUNTS = np.array([7, 4, 25, 15])
MATCHES = np.array([20, 40, 80, 60])


def test_min_ttft_takes_the_instance_dualmap_leaves_in_the_worked_example() -> None:
    view = view_over([load_of("i1", pending=20_000), load_of("i2", pending=1_000)], {"i1": 6_144})
    decision = MinTtft().choose(request("r", 8_000), view, 0.0)
    assert (decision.instance, decision.reason, decision.fallbacks) == ("i2", DecisionReason.SHORTEST_TTFT, ("i1",))
    assert [round(one.predicted_ttft_seconds, 2) for one in decision.candidates] == [1.44, 3.5]


def test_min_ttft_breaks_ties_by_running_decodes_then_id() -> None:
    view = view_over([load_of("i1", decode_tokens=10), load_of("i2", decode_tokens=5), load_of("i3", decode_tokens=5)])
    assert MinTtft().choose(request("r"), view, 0.0).instance == "i2"


def test_lmetric_worked_example_takes_the_smaller_product() -> None:
    assert products(np.array([6_000, 8_000]), np.array([11, 5])).tolist() == [66_000, 40_000]
    view = view_over([load_of("i1", requests=10, pending=5_000), load_of("i2", requests=4)], {"i1": 7_000})
    decision = LMetric().choose(request("r", 8_000), view, 0.0)
    assert (decision.instance, [one.total for one in decision.candidates]) == ("i2", [40_000.0, 66_000.0])


def test_lmetric_counts_a_prefill_until_its_first_token_and_not_where_it_was_tried_in_vain() -> None:
    scheduler = PoolScheduler(table(2, policy="lmetric", window=0), "router-0", 1)
    (sent,) = dispatches(scheduler.submit(request("r1", 8_000), 0.0))
    assert [load.pending_prefill_tokens for load in scheduler.loads()] == [8_000, 0]
    again = scheduler.retry("r1", 0.1, sent.instance)
    assert isinstance(again, Dispatch)
    assert [load.pending_prefill_tokens for load in scheduler.loads()] == [0, 8_000]
    scheduler.first_token("r1", 1.0)
    assert [load.pending_prefill_tokens for load in scheduler.loads()] == [0, 0]


def test_lmetric_still_sees_the_batch_where_everything_is_cached() -> None:
    view = view_over([load_of("i1", requests=3), load_of("i2", requests=1)], {"i1": 8_000, "i2": 8_000})
    assert LMetric().choose(request("r", 8_000), view, 0.0).instance == "i2"


def test_prefix_cache_load_first_stage_sends_an_imbalanced_pool_to_the_fewest() -> None:
    assert is_imbalanced(COUNTS, 8)
    assert not is_imbalanced(np.array([7, 4, 12]), 8)
    loads = [load_of(f"pod{index + 1}", requests=int(count)) for index, count in enumerate(COUNTS)]
    view = view_over(loads, {f"pod{index + 1}": int(match) * 100 for index, match in enumerate(MATCHES)})
    decision = PrefixCacheLoad(PrefixCacheLoadParameters(), 1).choose(request("r", 10_000), view, 0.0)
    assert (decision.instance, decision.reason) == ("pod2", DecisionReason.LOAD_IMBALANCED)


def test_prefix_cache_load_second_stage_takes_the_longest_match_that_is_not_crowded() -> None:
    assert crowding_bound(COUNTS, 1.0, sample=True) == pytest.approx(22.14, abs=0.01)
    assert crowding_bound(COUNTS, 1.0, sample=False) == pytest.approx(20.89, abs=0.01)
    assert longest_match_within(COUNTS, MATCHES, 1.0) == 3
    assert longest_match_within(COUNTS, MATCHES, 1.0, sample=False) == 3
    assert longest_match_within(COUNTS, np.zeros(4, dtype=np.int64), 1.0) is None


def test_prefix_cache_load_with_both_stages_open_follows_the_match() -> None:
    loads = [load_of(f"pod{index + 1}", requests=int(count)) for index, count in enumerate(COUNTS)]
    view = view_over(loads, {f"pod{index + 1}": int(match) * 100 for index, match in enumerate(MATCHES)})
    policy = PrefixCacheLoad(PrefixCacheLoadParameters(imbalance_requests=100), 1)
    decision = policy.choose(request("r", 10_000), view, 0.0)
    assert (decision.instance, decision.reason) == ("pod4", DecisionReason.PREFIX_AFFINITY)
    assert decision.fallbacks[0] == "pod2"


def test_prefix_cache_load_without_any_match_takes_the_fewest_requests() -> None:
    view = view_over([load_of("pod1", requests=7), load_of("pod2", requests=4), load_of("pod3", requests=9)])
    decision = PrefixCacheLoad(PrefixCacheLoadParameters(), 1).choose(request("r", 10_000), view, 0.0)
    assert (decision.instance, decision.reason) == ("pod2", DecisionReason.FEWEST_REQUESTS)


def test_exactly_the_imbalance_threshold_is_still_balanced() -> None:
    assert not is_imbalanced(np.array([4, 12]), 8)
    assert is_imbalanced(np.array([4, 13]), 8)


@pytest.mark.parametrize(("hit", "chosen"), [(5_000, "i2"), (5_001, "i1")])
def test_the_threshold_is_strict(hit: int, chosen: str) -> None:
    view = view_over([load_of("i1", requests=5), load_of("i2")], {"i1": hit})
    assert PrefixCacheThreshold(PrefixCacheThresholdParameters(), 1).choose(request("r", 10_000), view, 0.0).instance == chosen


def test_a_threshold_of_100_is_least_request() -> None:
    view = view_over([load_of("i1", requests=5), load_of("i2")], {"i1": 10_000})
    policy = PrefixCacheThreshold(PrefixCacheThresholdParameters(match_percent=100.0), 1)
    assert policy.choose(request("r", 10_000), view, 0.0).reason is DecisionReason.FEWEST_REQUESTS


def test_equal_matches_go_to_the_fewest_requests() -> None:
    view = view_over([load_of("i1", requests=5), load_of("i2", requests=2)], {"i1": 9_000, "i2": 9_000})
    assert PrefixCacheThreshold(PrefixCacheThresholdParameters(), 1).choose(request("r", 10_000), view, 0.0).instance == "i2"


def test_dynamo_weighs_the_match_against_the_load() -> None:
    busy = view_over([load_of("i1", pending=8_000), load_of("i2", pending=4_000)], {"i1": 4_000})
    decision = Dynamo(DynamoParameters()).choose(request("r", 10_000), busy, 0.0)
    assert (decision.instance, [one.total for one in decision.candidates]) == ("i2", [-0.5, pytest.approx(-0.6)])
    assert Dynamo(DynamoParameters(load_weight=0.5)).choose(request("r", 10_000), busy, 0.0).instance == "i1"


def test_dynamo_in_an_idle_pool_goes_by_the_match_alone() -> None:
    assert (
        Dynamo(DynamoParameters()).choose(request("r", 10_000), view_over([load_of("i1"), load_of("i2")], {"i2": 512}), 0.0).instance
        == "i2"
    )


def test_cache_load_linear_adds_both_shares_and_an_idle_pool_is_idle_everywhere() -> None:
    scores = linear_scores(np.array([8_000, 0]), 10_000, np.array([10_000, 2_000]), 0.5)
    assert scores.tolist() == pytest.approx([0.4, 0.4])
    assert linear_scores(np.array([0, 0]), 10_000, np.array([0, 0]), 0.25).tolist() == [0.75, 0.75]
    view = view_over([load_of("i1", pending=10_000), load_of("i2", pending=2_000)], {"i1": 8_000})
    assert CacheLoadLinear(CacheLoadLinearParameters(cache_weight=0.6)).choose(request("r", 10_000), view, 0.0).instance == "i1"
    assert CacheLoadLinear(CacheLoadLinearParameters(cache_weight=0.4)).choose(request("r", 10_000), view, 0.0).instance == "i2"


def test_least_request_breaks_ties_by_chance_and_never_takes_a_busier_one() -> None:
    view = view_over([load_of("i1", requests=1), load_of("i2", requests=1), load_of("i3", requests=2)])
    policy = LeastRequest(5)
    chosen = [policy.choose(request("r"), view, 0.0).instance for _ in range(40)]
    assert set(chosen) == {"i1", "i2"}


def test_random_is_fair_and_the_same_for_the_same_seed() -> None:
    view = view_over([load_of("i1", pending=99_999), load_of("i2"), load_of("i3")])
    first, again = RandomChoice(3), RandomChoice(3)
    chosen = [first.choose(request("r"), view, 0.0).instance for _ in range(900)]
    assert [again.choose(request("r"), view, 0.0).instance for _ in range(900)] == chosen
    assert all(240 < chosen.count(name) < 360 for name in ("i1", "i2", "i3"))


def test_dice_shuffle_everything_and_refuse_to_choose_among_nothing() -> None:
    assert sorted(Dice(1).shuffled(9)) == list(range(9))
    assert Dice(1).shuffled(9) != Dice(2).shuffled(9)
    with pytest.raises(ValueError, match="among 0"):
        Dice(1).below(0)


@pytest.mark.parametrize("policy", BUILT_IN.names)
def test_a_pool_of_one_has_one_answer_under_every_policy(policy: str) -> None:
    view = view_over([load_of("i1", requests=9, pending=90_000)], policy=policy)
    built = BUILT_IN.build(view.table.routing, 1)
    if isinstance(built, FollowsTable):
        built.table_changed(view.table)
    decision = built.choose(request("r", session="s"), view, 0.0)
    assert (decision.instance, decision.fallbacks) == ("i1", ())
