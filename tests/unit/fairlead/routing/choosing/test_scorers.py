"""Scores and filters by llm-d's rules, on small pools whose results can be computed by hand."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.instances import Role
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.routing.choosing.considered import Considered
from fairlead.routing.choosing.dice import Dice
from fairlead.routing.choosing.filters import (
    DecodeFilter,
    PrefillFilter,
    PrefixCacheAffinity,
    PrefixCacheAffinityFilter,
    SessionAffinityFilter,
    UtilizationCondition,
    UtilizationFilter,
)
from fairlead.routing.choosing.profiles import Filter, Scorer
from fairlead.routing.choosing.scorers.loads import (
    ActiveRequestScorer,
    KvCacheUtilizationScorer,
    LoadAwareScorer,
    QueueScorer,
    RunningRequestsScorer,
    TokenLoadScorer,
)
from fairlead.routing.choosing.scorers.placements import ColdPlacement, NoHitLruScorer, SessionAffinityScorer
from fairlead.routing.choosing.scorers.prefixes import PrefixCacheScorer, PrefixMatches
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead_testing.builders.routing import POOL, ScriptedView, entry, load_of, request, table, view_over

DICE = Dice(1)


def pool(
    *loads: InstanceLoad, hits: dict[str, int] | None = None, session: str | None = None, tokens: int = 5120, **facts: Any
) -> Considered:
    """Return the view of this pool for a request `r` of ten blocks."""
    return Considered.of(request("r", tokens, session=session), view_over(loads, hits, **facts), 0.0)


def scores(scorer: Scorer, seen: Considered) -> list[float]:
    return [round(float(score), 6) for score in scorer.scores(seen)]


def kept(of: Filter, seen: Considered) -> list[str]:
    return [load.entry.id for load, stays in zip(seen.loads, of.kept(seen, DICE), strict=True) if stays]


def test_the_shortest_queue_scores_one_and_the_longest_none() -> None:
    seen = pool(load_of("a", waiting=0), load_of("b", waiting=4), load_of("c", waiting=8, requests=3))
    assert scores(QueueScorer(), seen) == [1.0, 0.5, 0.0]
    assert scores(RunningRequestsScorer(), seen) == [1.0, 1.0, 0.0]
    assert scores(QueueScorer(), pool(load_of("a", waiting=2), load_of("b", waiting=2))) == [1.0, 1.0]


def test_a_full_kv_cache_scores_none() -> None:
    assert scores(KvCacheUtilizationScorer(), pool(load_of("a", kv_usage=0.25), load_of("b", kv_usage=1.0))) == [0.75, 0.0]


def test_idle_instances_score_one_and_busy_ones_less_the_busier_they_are() -> None:
    seen = pool(load_of("a"), load_of("b", requests=2), load_of("c", requests=8))
    assert scores(ActiveRequestScorer(), seen) == [1.0, 0.75, 0.0]
    assert scores(ActiveRequestScorer(idle_threshold=2, max_busy_score=0.5), seen) == [1.0, 1.0, 0.0]
    assert scores(ActiveRequestScorer(max_busy_score=0.4), seen) == [1.0, 0.3, 0.0]


def test_queues_are_scored_against_a_threshold_and_never_more_than_half() -> None:
    seen = pool(load_of("a"), load_of("b", waiting=32), load_of("c", waiting=500))
    assert scores(LoadAwareScorer(), seen) == [0.5, 0.375, 0.0]


def test_tokens_in_flight_count_with_what_the_request_would_add() -> None:
    seen = pool(load_of("a", pending=4880), load_of("b", pending=0), load_of("c", pending=99_999), hits={"b": 5000})
    assert scores(TokenLoadScorer(queue_threshold_tokens=20_000), seen) == [0.5, 0.994, 0.0]


def test_a_match_scores_by_its_share_of_the_prompts_blocks() -> None:
    seen = pool(load_of("a"), load_of("b"), load_of("c"), hits={"b": 2560, "c": 5119})
    assert scores(PrefixCacheScorer(PrefixMatches()), seen) == [0.0, 0.5, 1.0]


def test_a_match_told_by_events_is_counted_in_the_engines_own_blocks() -> None:
    loads = {name: load_of(name) for name in ("a", "b")}
    view = ScriptedView(table([load.entry for load in loads.values()]), loads, {("r", "a"): 512, ("r", "b"): 16})
    view.told_block_tokens = 16
    known = replace(request("r", 1024), engine_blocks=tuple(range(64)))
    assert scores(PrefixCacheScorer(PrefixMatches()), Considered.of(known, view, 0.0)) == [0.5, 1 / 64]
    by_length = PrefixCacheScorer(PrefixMatches(match_length_weight=1.0, match_length_scale_tokens=64))
    assert scores(by_length, Considered.of(known, view, 0.0)) == [1.0, 1 / 16]
    assert kept(PrefixCacheAffinityFilter(PrefixCacheAffinity(affinity_threshold=0.4)), Considered.of(known, view, 0.0)) == ["a"]
    unknown = Considered.of(request("r", 1024), view, 0.0)
    assert (unknown.prompt_blocks(), unknown.block_tokens) == (2, 512), "own history counts in routing blocks"


def test_only_so_many_leading_tokens_are_compared_where_the_producer_says_so() -> None:
    seen = pool(load_of("a"), load_of("b"), hits={"a": 1024, "b": 2048})
    assert scores(PrefixCacheScorer(PrefixMatches(), 2048), seen) == [0.5, 1.0]


def test_the_length_of_a_match_can_count_by_its_square() -> None:
    seen = pool(load_of("a"), load_of("b"), hits={"a": 2048, "b": 4096})
    half = PrefixMatches(match_length_weight=0.5, match_length_scale_tokens=4096)
    assert scores(PrefixCacheScorer(half), seen) == [0.5 * 0.25 + 0.5 * 0.4, 0.5 * 1.0 + 0.5 * 0.8]


def test_a_prompt_that_nobody_holds_goes_to_who_had_such_a_prompt_longest_ago() -> None:
    scorer = NoHitLruScorer(ColdPlacement())
    seen = pool(load_of("a"), load_of("b"), load_of("c"))
    assert scores(scorer, seen) == [1.0, 0.5, 0.0]
    scorer.picked(seen, 0)
    scorer.picked(seen, 2)
    assert scores(scorer, seen) == [0.5, 1.0, 0.0]
    scorer.picked(seen, 1)
    scorer.picked(seen, 0)
    assert scores(scorer, seen) == [0.0, 0.5, 1.0]


def test_a_prompt_that_somebody_holds_is_not_placed_by_turns() -> None:
    scorer = NoHitLruScorer(ColdPlacement())
    known = pool(load_of("a"), load_of("b"), hits={"b": 512})
    assert scores(scorer, known) == [0.5, 0.5]
    scorer.picked(known, 0)
    assert scores(scorer, pool(load_of("a"), load_of("b"))) == [1.0, 0.0]
    assert scores(scorer, pool(load_of("a"))) == [1.0]


def test_the_turns_of_more_instances_than_are_remembered_are_forgotten() -> None:
    scorer = NoHitLruScorer(ColdPlacement(lru_size=1))
    seen = pool(load_of("a"), load_of("b"), load_of("c"))
    scorer.picked(seen, 0)
    scorer.picked(seen, 1)
    assert scores(scorer, seen) == [1.0, 0.0, 0.5]


def test_instances_that_are_gone_take_no_turn_from_those_that_are_there() -> None:
    scorer = NoHitLruScorer(ColdPlacement())
    gone = pool(*map(load_of, "wxyz"))
    for place in range(4):
        scorer.picked(gone, place)
    seen = pool(load_of("a"), load_of("b"), load_of("c"))
    for place in (1, 0, 2):
        scorer.picked(seen, place)
    assert scores(scorer, seen) == [0.5, 1.0, 0.0]


def bound(home: str | None) -> Considered:
    binding = Binding(pool=POOL, session="s", instance=home, version=1, reason=BindingReason.COLD, bound_at=0.0, migrated_at=None)
    loads = {name: load_of(name) for name in ("a", "b")}
    view = ScriptedView(table([load.entry for load in loads.values()]), loads, bindings={"s": binding})
    return Considered.of(request("r", 5120, session="s"), view, 0.0)


@pytest.mark.parametrize(
    ("home", "expected", "left"), [("b", [0.0, 1.0], ["b"]), ("gone", [0.0, 0.0], ["a", "b"]), (None, [0.0, 0.0], ["a", "b"])]
)
def test_a_session_is_drawn_to_its_home_if_that_can_take_it(home: str | None, expected: list[float], left: list[str]) -> None:
    assert scores(SessionAffinityScorer(strategy="session_id"), bound(home)) == expected
    assert kept(SessionAffinityFilter(strategy="session_id"), bound(home)) == left


def test_a_request_without_a_session_is_drawn_nowhere() -> None:
    seen = pool(load_of("a"), load_of("b"))
    assert scores(SessionAffinityScorer(strategy="session_id"), seen) == [0.0, 0.0]
    assert kept(SessionAffinityFilter(strategy="session_id"), seen) == ["a", "b"]


def test_roles_are_filtered_by_what_they_can_do() -> None:
    both, prefill = InstanceLoad(entry=entry("a")), InstanceLoad(entry=entry("b", role=Role.PREFILL))
    decode = InstanceLoad(entry=entry("c", role=Role.DECODE))
    seen = pool(both, prefill, decode)
    assert [load.entry.id for load in seen.loads] == ["a", "b"], "the view offers nobody who only decodes"
    assert kept(PrefillFilter(), seen) == ["a", "b"]
    assert kept(DecodeFilter(), seen) == ["a"]


def test_an_instance_beyond_any_bound_is_filtered_out() -> None:
    seen = pool(load_of("a", waiting=6, kv_usage=0.1), load_of("b", requests=3, kv_usage=0.9), load_of("c", requests=1, kv_usage=0.5))

    def within(**bounds: float) -> list[str]:
        conditions = tuple(UtilizationCondition(metric=name.replace("_", "-"), max_value=most) for name, most in bounds.items())
        return kept(UtilizationFilter(conditions=conditions), seen)

    assert within(waiting_queue=5) == ["b", "c"]
    assert within(waiting_queue=5, kv_cache_utilization=0.5) == ["c"]
    assert within(active_requests=3) == ["b", "c"]
    assert within(running_requests=0) == ["a"]
    assert within(kv_cache_utilization=0.05) == []


def test_all_pass_where_none_would_if_the_filter_says_so() -> None:
    full = (UtilizationCondition(metric="kv-cache-utilization", max_value=0.1),)
    seen = pool(load_of("a", kv_usage=0.5), load_of("b", kv_usage=0.6))
    assert kept(UtilizationFilter(conditions=full, fallback_on_empty=True), seen) == ["a", "b"]


def test_who_holds_the_prompt_alone_passes_unless_they_are_far_too_busy() -> None:
    free = pool(load_of("a", pending=10_000), load_of("b"), load_of("c"), hits={"a": 4096, "b": 4095})
    assert kept(PrefixCacheAffinityFilter(PrefixCacheAffinity()), free) == ["a", "b"]
    assert kept(PrefixCacheAffinityFilter(PrefixCacheAffinity(affinity_threshold=0.9)), free) == ["a", "b", "c"]
    busy = pool(load_of("a", pending=300_000), load_of("b"), hits={"a": 5000})
    assert kept(PrefixCacheAffinityFilter(PrefixCacheAffinity()), busy) == ["a", "b"]
    assert kept(PrefixCacheAffinityFilter(PrefixCacheAffinity(max_ttft_penalty_ms=0)), busy) == ["a"]
    assert kept(PrefixCacheAffinityFilter(PrefixCacheAffinity(peak_prefill_throughput=30_000)), busy) == ["a"]


def test_some_requests_explore_where_the_filter_asks_for_it() -> None:
    seen = pool(load_of("a"), load_of("b"), hits={"a": 5000})
    exploring = PrefixCacheAffinityFilter(PrefixCacheAffinity(exploration_probability=0.5))
    dice = Dice(7)
    explored = sum(bool(exploring.kept(seen, dice).all()) for _ in range(400))
    assert 150 < explored < 250
