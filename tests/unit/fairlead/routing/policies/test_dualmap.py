from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.moves import MoveCause
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.rings import CandidateRings
from fairlead.routing.policies.dualmap import DualMap, DualMapParameters
from fairlead_testing.builders.routing import POOL, ScriptedView, cause, entries, entry, left, request, table
from fairlead_testing.examples import examples

PAIR = ("i00", "i01")
NONE: Mapping[str, Any] = MappingProxyType({})


def chosen(
    pending: tuple[int, int],
    hits: tuple[int, int],
    *,
    parameters: DualMapParameters | None = None,
    tokens: int = 8000,
    home: str | None = None,
) -> tuple[DualMap, RoutingRequest, ScriptedView]:
    """Return the facts for DualMap's choice in a pool of two, so that both instances are the pair."""
    pool = table(2, policy="dualmap")
    policy = DualMap(parameters or DualMapParameters())
    policy.table_changed(pool)
    loads = {
        one.id: InstanceLoad(entry=one, pending_prefill_tokens=tokens_pending)
        for one, tokens_pending in zip(entries(2), pending, strict=True)
    }
    bindings = {} if home is None else {"s": bound(home)}
    view = ScriptedView(pool, loads, {("r", "i00"): hits[0], ("r", "i01"): hits[1]}, bindings)
    return policy, request("r", tokens, blocks=(1, 2), session="s"), view


def choose(pending: tuple[int, int], hits: tuple[int, int], *, parameters: DualMapParameters | None = None, tokens: int = 8000) -> Decision:
    """Return DualMap's choice in a pool of two."""
    policy, asked, view = chosen(pending, hits, parameters=parameters, tokens=tokens)
    return policy.choose(asked, view, 0.0)


def bound(instance: str) -> Binding:
    return Binding(
        pool=POOL, session="s", instance=instance, version=1, reason=BindingReason.COLD, bound_at=0.0, migrated_at=None, context_tokens=0
    )


def test_the_worked_example_keeps_the_cached_instance_below_the_slo() -> None:
    decision = choose((20_000, 1_000), (6_144, 0))
    assert (decision.instance, decision.reason, decision.alternate) == ("i00", DecisionReason.PREFIX_AFFINITY, "i01")
    assert decision.candidates[0].total == 21_856
    assert decision.candidates[0].predicted_ttft_seconds == pytest.approx(3.497, abs=0.001)
    assert decision.candidates[1].predicted_ttft_seconds == pytest.approx(1.44)


def test_the_worked_example_leaves_the_cached_instance_when_it_is_overloaded() -> None:
    decision = choose((30_000, 1_000), (6_144, 0))
    assert (decision.instance, decision.reason) == ("i01", DecisionReason.SLO_OVERLOADED)


def test_the_worked_example_with_the_code_preset_is_overloaded_at_half_the_slo() -> None:
    assert choose((20_000, 1_000), (6_144, 0), parameters=DualMapParameters(preset="dualmap-code")).instance == "i01"


def test_equal_hits_go_to_the_less_loaded() -> None:
    assert choose((20_000, 1_000), (0, 0)).reason is DecisionReason.LEAST_LOADED
    hot = choose((20_000, 1_000), (512, 512))
    assert (hot.instance, hot.reason) == ("i01", DecisionReason.PREFIX_EQUAL)


def test_a_fully_cached_prompt_counts_as_a_hit_with_one_token_to_compute() -> None:
    decision = choose((5_000, 0), (8_000, 0))
    assert (decision.instance, decision.candidates[0].miss_tokens) == ("i00", 1)


def test_rebalancing_is_asked_for_only_when_both_are_overloaded() -> None:
    assert choose((30_000, 1_000), (6_144, 0)).overloaded == ()
    assert set(choose((32_000, 33_000), (6_144, 0)).overloaded) == {"i00", "i01"}
    assert choose((32_000, 33_000), (6_144, 0), parameters=DualMapParameters(rebalance=False)).overloaded == ()


@pytest.mark.parametrize(
    ("home", "pending", "hits", "why"),
    [
        ("i00", (20_000, 1_000), (6_144, 0), None),
        ("i00", (32_000, 1_000), (6_144, 0), cause("slo", 5.41696, 5.0, "seconds")),
        ("i00", (1_000, 500), (2_048, 2_048), cause("prefix-equal", 1_000.0, 500.0, "tokens")),
        ("i00", (0, 500), (512, 2_048), cause("prefix-affinity", 2_048.0, 512.0, "tokens")),
    ],
)
def test_a_home_is_left_for_what_decided(home: str, pending: tuple[int, int], hits: tuple[int, int], why: MoveCause | None) -> None:
    assert left(*chosen(pending, hits, home=home)) == why


def test_a_host_above_a_lower_threshold_is_hot_and_endangers_no_target() -> None:
    found = left(*chosen((20_000, 1_000), (6_144, 0), home="i00", parameters=DualMapParameters(slo_fraction=0.5)))
    assert found == cause("hot-migration", 21_856.0, 15_625.0, "tokens")


def test_a_home_outside_the_pair_is_a_ring_change_only_if_the_ring_changed_since() -> None:
    pool = table(40, policy="dualmap")
    policy = DualMap(DualMapParameters())
    policy.table_changed(pool)
    asked = request("r", blocks=(1, 2), session="s")

    def reason(bound_at: float, now: float) -> BindingReason | None:
        longer = CandidateRings.of(grown.instances, 2).candidates((2, 2))
        outside = next(one.id for one in grown.instances if one.id not in (*policy.placements(asked), *longer))
        loads = {one.id: InstanceLoad(entry=one) for one in grown.instances}
        home = replace(bound(outside), bound_at=bound_at)
        why = left(policy, asked, ScriptedView(grown, loads, bindings={"s": home}), now)
        return None if why is None else why.trigger

    grown = pool
    assert reason(bound_at=1.0, now=1.0) is BindingReason.OFF_RING
    policy.table_changed(replace(pool, version=2))
    assert reason(bound_at=1.0, now=2.0) is BindingReason.OFF_RING
    grown = table(42, policy="dualmap")
    policy.table_changed(grown)
    assert reason(bound_at=1.0, now=3.0) is BindingReason.RING_CHANGE
    assert reason(bound_at=3.5, now=4.0) is BindingReason.OFF_RING


def test_of_a_home_older_than_the_router_only_a_key_that_leads_there_tells_that_the_key_changed() -> None:
    pool = table(40, policy="dualmap")
    policy = DualMap(DualMapParameters())
    policy.table_changed(pool)
    asked = request("r", blocks=(1, 2), session="s")
    loads = {one.id: InstanceLoad(entry=one) for one in pool.instances}
    pair = policy.placements(asked)
    longer = CandidateRings.of(pool.instances, 2).candidates((2, 2))
    by_key = next(one for one in longer if one not in pair)
    by_ring = next(one for one in loads if one not in (*pair, *longer))
    for home, expected in ((by_key, BindingReason.PREFIX_KEY), (by_ring, BindingReason.RING_CHANGE)):
        view = ScriptedView(pool, loads, bindings={"s": replace(bound(home), bound_at=5.0)})
        assert left(policy, asked, view, 9.0) == MoveCause(trigger=expected)


def of_six(asked: RoutingRequest, broken: int) -> tuple[Decision, tuple[str, ...]]:
    pool = table(6, policy="dualmap")
    policy = DualMap(DualMapParameters())
    policy.table_changed(pool)
    pair = policy.placements(asked)
    loads = {one.id: InstanceLoad(entry=one) for one in pool.instances}
    for instance in pair[:broken]:
        loads[instance].broken_until = 5.0
    return policy.choose(asked, ScriptedView(pool, loads), 0.0), pair


def test_with_one_of_the_pair_broken_the_other_is_used_alone() -> None:
    decision, pair = of_six(request("r", blocks=(1,)), 1)
    assert (decision.instance, decision.alternate, decision.reason) == (pair[1], None, DecisionReason.FALLBACK)


def test_with_both_of_the_pair_broken_the_least_loaded_other_is_used() -> None:
    decision, pair = of_six(request("r", blocks=(1,)), 2)
    assert decision.instance not in pair
    assert decision.reason is DecisionReason.FALLBACK


def test_a_pool_of_one_has_one_answer() -> None:
    pool = table(1, policy="dualmap")
    policy = DualMap(DualMapParameters())
    policy.table_changed(pool)
    decision = policy.choose(request("r"), ScriptedView(pool, {"i00": InstanceLoad(entry=pool.instances[0])}), 0.0)
    assert (decision.instance, decision.reason, decision.alternate) == ("i00", DecisionReason.ONLY_INSTANCE, None)


@examples(60)
@given(st.tuples(st.integers(0, 60_000), st.integers(0, 60_000)), st.tuples(st.integers(0, 9_000), st.integers(0, 9_000)))
def test_the_larger_hit_wins_unless_it_is_overloaded_and_the_other_is_better(pending: tuple[int, int], hits: tuple[int, int]) -> None:
    decision = choose(pending, hits)
    chosen, other = decision.candidates
    assert {chosen.instance, other.instance} == set(PAIR)
    if chosen.hit_tokens < other.hit_tokens:
        assert (other.total or 0) > 31_250
        assert (chosen.total or 0) < (other.total or 0)
    elif chosen.hit_tokens == other.hit_tokens:
        assert chosen.pending_tokens <= other.pending_tokens


def of_many(candidates: int, pending: Sequence[int], hits: Sequence[int], parameters: Mapping[str, Any] = NONE) -> Decision:
    """Return DualMap's choice in a pool with as many instances as `pending` has values."""
    pool = table(len(pending), policy="dualmap")
    policy = DualMap(DualMapParameters(candidates=candidates, **parameters))
    policy.table_changed(pool)
    loads = {one.id: InstanceLoad(entry=one, pending_prefill_tokens=tokens) for one, tokens in zip(pool.instances, pending, strict=True)}
    view = ScriptedView(pool, loads, {("r", one.id): hit for one, hit in zip(pool.instances, hits, strict=True)})
    return policy.choose(request("r", 8000, blocks=(1, 2)), view, 0.0)


def test_of_three_the_largest_hit_takes_the_request_and_the_emptiest_other_is_its_alternate() -> None:
    decision = of_many(3, (20_000, 9_000, 1_000), (6_144, 512, 0))
    assert (decision.instance, decision.alternate, decision.reason) == ("i00", "i02", DecisionReason.PREFIX_AFFINITY)
    assert [one.total for one in decision.candidates] == [21_856, 9_000, 16_488]


def test_of_three_an_overloaded_one_is_left_for_the_least_total() -> None:
    decision = of_many(3, (30_000, 3_000, 1_000), (6_144, 3_072, 0))
    assert (decision.instance, decision.alternate, decision.reason) == ("i01", "i02", DecisionReason.SLO_OVERLOADED)


def test_of_three_that_hold_the_prefix_equally_the_less_loaded_takes_the_request() -> None:
    decision = of_many(3, (20_000, 1_000, 0), (512, 512, 0))
    assert (decision.instance, decision.reason) == ("i01", DecisionReason.PREFIX_EQUAL)
    assert of_many(3, (2_000, 1_000, 10), (0, 0, 0)).reason is DecisionReason.LEAST_LOADED


def test_of_three_rebalancing_is_asked_for_only_when_all_are_overloaded() -> None:
    assert of_many(3, (40_000, 40_000, 1_000), (0, 0, 0)).overloaded == ()
    assert set(of_many(3, (40_000, 40_000, 40_000), (0, 0, 0)).overloaded) == {"i00", "i01", "i02"}
    assert of_many(3, (40_000, 40_000, 40_000), (0, 0, 0), {"rebalance": False}).overloaded == ()


def test_with_two_of_three_healthy_they_are_a_pair() -> None:
    pool = table(3, policy="dualmap")
    policy = DualMap(DualMapParameters(candidates=3))
    policy.table_changed(pool)
    loads = {one.id: InstanceLoad(entry=one) for one in pool.instances}
    loads["i01"].broken_until = 5.0
    decision = policy.choose(request("r"), ScriptedView(pool, loads, {("r", "i02"): 512}), 0.0)
    assert (decision.instance, decision.alternate) == ("i02", "i00")


def test_one_candidate_is_the_keys_owner_whatever_its_load_and_nothing_migrates() -> None:
    policy = DualMap(DualMapParameters(candidates=1))
    asked = request("r", 8000, blocks=(1, 2))
    policy.table_changed(table(4))
    (owner,) = policy.placements(asked)
    loads = {one.id: InstanceLoad(entry=one, pending_prefill_tokens=90_000 * (one.id == owner)) for one in entries(4)}
    decision = policy.choose(asked, ScriptedView(table(4), loads), 0.0)
    assert (decision.instance, decision.alternate, decision.overloaded) == (owner, None, ())
    assert decision.reason is DecisionReason.PREFIX_AFFINITY


class _OfMany(DualMap):
    """DualMap that uses its code for three and more candidates also for two."""

    def _choose_of_two(
        self, request: RoutingRequest, first: InstanceLoad, second: InstanceLoad, named: tuple[str, ...], view: PoolView
    ) -> Decision:
        return self._choose_of_many(request, (first, second), named, view)


LOADS = st.one_of(st.sampled_from([0, 23_250, 31_250, 31_251]), st.integers(0, 60_000))
HITS = st.one_of(st.sampled_from([0, 512, 7_999]), st.integers(0, 8_000))


@examples(150)
@given(st.tuples(LOADS, LOADS), st.tuples(HITS, HITS), st.booleans())
def test_the_rules_for_many_are_with_two_those_for_a_pair(pending: tuple[int, int], hits: tuple[int, int], rebalance: bool) -> None:
    pool = table(2, policy="dualmap")
    loads = {one.id: InstanceLoad(entry=one, pending_prefill_tokens=tokens) for one, tokens in zip(pool.instances, pending, strict=True)}
    view = ScriptedView(pool, loads, {("r", one.id): hit for one, hit in zip(pool.instances, hits, strict=True)})
    decisions: list[Decision] = []
    for kind in (DualMap, _OfMany):
        policy = kind(DualMapParameters(rebalance=rebalance))
        policy.table_changed(pool)
        decisions.append(policy.choose(request("r", 8000, blocks=(1, 2), session="s"), view, 0.0))
    assert decisions[0] == decisions[1]


@examples(60)
@given(st.integers(3, 4), st.data())
def test_no_candidate_of_many_holds_more_unless_the_chosen_one_is_a_way_out_of_an_overload(candidates: int, data: st.DataObject) -> None:
    pending = data.draw(st.lists(LOADS, min_size=6, max_size=6))
    hits = data.draw(st.lists(HITS, min_size=6, max_size=6))
    decision = of_many(candidates, pending, hits)
    named = CandidateRings.of(entries(6), candidates).candidates((1, 1))
    assert {one.instance for one in decision.candidates} == set(named)
    chosen = decision.candidates[0]
    assert (chosen.instance, decision.candidates[1].instance) == (decision.instance, decision.alternate)
    for other in decision.candidates[1:]:
        if chosen.hit_tokens < other.hit_tokens:
            assert chosen.total == min(one.total or 0 for one in decision.candidates)
            assert (max(decision.candidates, key=lambda one: one.hit_tokens).total or 0) > 31_250
        elif chosen.hit_tokens == other.hit_tokens:
            assert chosen.pending_tokens <= other.pending_tokens


def test_keys_follow_the_ring_when_an_instance_is_added() -> None:
    policy = DualMap(DualMapParameters())
    policy.table_changed(table(4))
    requests = [request(f"r{number}", blocks=(number * 7919,)) for number in range(300)]
    before = [policy.placements(asked) for asked in requests]
    policy.table_changed(table([*entries(4), entry("new")]))
    after = [policy.placements(asked) for asked in requests]
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert 0 < len(changed) < 200
    assert all("new" in new for _, new in changed)
    policy.table_changed(table([*entries(4), replace(entry("new"), state=InstanceState.DRAINING)]))
    assert [policy.placements(asked) for asked in requests] == before


def test_the_codes_preset_looks_at_all_queues_and_lets_requests_wait_anywhere() -> None:
    coded = choose((0, 0), (0, 0), parameters=DualMapParameters(preset="dualmap-code"))
    assert set(coded.overloaded) == set(PAIR), "whatever the load: its rules look at waits too"
    assert choose((0, 0), (0, 0), parameters=DualMapParameters(preset="dualmap-code", rebalance=False)).overloaded == ()
    policy = DualMap(DualMapParameters(preset="dualmap-code"))
    policy.table_changed(table(4))
    assert policy.placements(request("r", blocks=(1, 2))) == ()
