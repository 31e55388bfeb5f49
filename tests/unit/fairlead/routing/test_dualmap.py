from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reports import Binding, BindingReason
from fairlead.routing.policies.dualmap import DualMap, DualMapParameters
from fairlead.routing.protocols import Decision, DecisionReason, InstanceLoad, RoutingRequest
from routing_builders import POOL, ScriptedView, entries, entry, request, table

PAIR = ("i00", "i01")


def choose(
    pending: tuple[int, int],
    hits: tuple[int, int],
    *,
    parameters: DualMapParameters | None = None,
    tokens: int = 8000,
    home: str | None = None,
) -> Decision:
    """DualMap's answer in a pool of two, so that both are the pair."""
    pool = table(2, policy="dualmap")
    policy = DualMap(parameters or DualMapParameters())
    policy.table_changed(pool)
    loads = {
        one.id: InstanceLoad(entry=one, pending_prefill_tokens=tokens_pending)
        for one, tokens_pending in zip(entries(2), pending, strict=True)
    }
    bindings = {} if home is None else {"s": bound(home)}
    view = ScriptedView(pool, loads, {("r", "i00"): hits[0], ("r", "i01"): hits[1]}, bindings)
    return policy.choose(request("r", tokens, blocks=(1, 2), session="s"), view, 0.0)


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
    assert (hot.instance, hot.reason) == ("i01", DecisionReason.PREFIX_HOT)


def test_a_fully_cached_prompt_counts_as_a_hit_with_one_token_to_compute() -> None:
    decision = choose((5_000, 0), (8_000, 0))
    assert (decision.instance, decision.candidates[0].miss_tokens) == ("i00", 1)


def test_rebalancing_is_asked_for_only_when_both_are_overloaded() -> None:
    assert choose((30_000, 1_000), (6_144, 0)).overloaded == ()
    assert set(choose((32_000, 33_000), (6_144, 0)).overloaded) == {"i00", "i01"}
    assert choose((32_000, 33_000), (6_144, 0), parameters=DualMapParameters(rebalance=False)).overloaded == ()


@pytest.mark.parametrize(
    ("home", "pending", "reason"),
    [(None, (0, 0), BindingReason.COLD), ("i00", (20_000, 1_000), None), ("i00", (32_000, 1_000), BindingReason.SLO)],
)
def test_the_binding_records_the_holder_and_why_it_changed(
    home: str | None, pending: tuple[int, int], reason: BindingReason | None
) -> None:
    assert choose(pending, (6_144, 0), home=home).bind is reason


def test_a_home_outside_the_new_pair_is_a_ring_change_and_a_vanished_one_is_lost() -> None:
    pool = table(6, policy="dualmap")
    policy = DualMap(DualMapParameters())
    policy.table_changed(pool)
    asked = request("r", blocks=(1, 2), session="s")
    outside = next(one.id for one in pool.instances if one.id not in policy.placements(asked))
    loads = {one.id: InstanceLoad(entry=one) for one in pool.instances}
    view = ScriptedView(pool, loads, bindings={"s": bound(outside)})
    assert policy.choose(asked, view, 0.0).bind is BindingReason.RING_CHANGE
    loads[outside].broken_until = 9.0
    assert policy.choose(asked, view, 0.0).bind is BindingReason.INSTANCE_LOST
    loads[outside] = InstanceLoad(entry=entry(outside, InstanceState.DRAINING))
    assert policy.choose(asked, ScriptedView(pool, loads, bindings={"s": bound(outside)}), 0.0).bind is BindingReason.DRAIN
    assert policy.choose(asked, ScriptedView(pool, loads, bindings={"s": bound("gone")}), 0.0).bind is BindingReason.INSTANCE_LOST


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


@settings(max_examples=60)
@given(st.tuples(st.integers(0, 60_000), st.integers(0, 60_000)), st.tuples(st.integers(0, 9_000), st.integers(0, 9_000)))
def test_the_larger_hit_wins_unless_it_is_overloaded_and_the_other_is_better(pending: tuple[int, int], hits: tuple[int, int]) -> None:
    decision = choose(pending, hits)
    chosen, other = decision.candidates
    assert {chosen.instance, other.instance} == set(PAIR)
    if chosen.hit_tokens < other.hit_tokens:
        assert other.total > 31_250
        assert chosen.total < other.total
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
