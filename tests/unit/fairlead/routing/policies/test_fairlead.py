"""The policy `fairlead`: where it sends requests, its explanations, and how its queues handle late requests."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState
from fairlead.predictors.reports import HeuristicReason
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.choosing.instance_features import FEATURES
from fairlead.routing.choosing.placement_costs import waits
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.vectors import PoolVectors
from fairlead.routing.knowledge.pool_load import affinity
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.policies.fairlead import Fairlead, FairleadParameters, LearningFairlead
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import FAIR_TENANTS, EarlyRejectionFacts, PriorityClass, RoutingFacts
from fairlead_testing.builders.routing import (
    POOL,
    ScriptedView,
    dispatches,
    entry,
    having_seen,
    load_of,
    refusals,
    request,
    table,
    view_over,
)
from fairlead_testing.examples import examples
from fairlead_testing.worlds.learnt_models import sum_of
from fairlead_testing.worlds.watched_policy import WatchedPolicy

TOKENS = 8000
SECOND = 6250
"""The number of tokens that are prefilled in a second."""


def busy(name: str, seconds: float = 0.0, late_seconds: float = 0.0, sessions: int = 0) -> InstanceLoad:
    """Return an instance with this much to compute before a new request, and this much after it."""
    pending = seconds + late_seconds
    return load_of(
        name,
        pending=round(pending * SECOND),
        pending_prefill_microseconds=round(pending * 1e6),
        late_prefill_microseconds=round(late_seconds * 1e6),
        sessions=sessions,
    )


def decided(
    *loads: InstanceLoad, hits: dict[str, int] | None = None, home: Binding | None = None, load: float = 0.0, **parameters: Any
) -> Decision:
    """Return the decision for a request of 8,000 tokens, which is of session s if the session has a home."""
    bindings = {} if home is None else {"s": home}
    of = table([load.entry for load in loads])
    seen = ScriptedView(of, {load.entry.id: load for load in loads}, {("r", name): hit for name, hit in (hits or {}).items()}, bindings)
    asked = request("r", TOKENS, session=None if home is None else "s")
    seen.load_of_pool = load
    return Fairlead(FairleadParameters(**parameters)).choose(asked, seen, 0.0)


def home_at(instance: str, context_tokens: int) -> Binding:
    return Binding(
        pool=POOL,
        session="s",
        instance=instance,
        version=1,
        reason=BindingReason.COLD,
        bound_at=0.0,
        migrated_at=None,
        context_tokens=context_tokens,
    )


def test_an_idle_pool_sends_a_request_to_the_longest_prefix() -> None:
    decision = decided(busy("i0"), busy("i1"), busy("i2"), hits={"i1": 6144, "i2": 512})
    assert (decision.instance, decision.reason) == ("i1", DecisionReason.PREFIX_AFFINITY)
    assert decision.fallbacks == ("i2", "i0")


def test_of_equal_instances_the_one_with_the_most_sessions_takes_a_new_one() -> None:
    """So the instances that a scale-in would remove hold few sessions."""
    loads = busy("i0"), busy("i1"), busy("i2")
    assert decided(*loads).instance == "i0"
    loads[1].sessions, loads[2].sessions = 3, 9
    assert decided(*loads).instance == "i2"
    assert decided(*loads).fallbacks == ("i1", "i0")
    loads[2].decode_tokens = 1
    assert decided(*loads).instance == "i1", "fewest tokens in decodes come first"
    assert decided(busy("i0"), busy("i1", 0.01, sessions=9)).instance == "i0", "the least wait outweighs any number of sessions"


def test_a_session_that_is_bound_counts_in_the_next_choice() -> None:
    scheduler = PoolScheduler(table(3, policy="fairlead"), "router-0", 0)
    bound = Binding(
        pool=POOL, session="s", instance="i02", version=1, reason=BindingReason.COLD, bound_at=0.0, migrated_at=None, context_tokens=10
    )
    chosen = []
    for number, bindings in enumerate(((), (bound,), (replace(bound, instance=None, version=2),))):
        scheduler.apply_bindings(bindings, 100.0 * number)
        decision = scheduler.choose(request(f"r{number}", TOKENS, blocks=(number,)), 100.0 * number)
        assert decision is not None
        chosen.append(decision.instance)
    assert chosen == ["i00", "i02", "i00"]


def test_on_an_idle_pool_a_cached_second_is_worth_a_second_of_waiting() -> None:
    """One instance holds 6,144 tokens, which are 0.98 s of prefill."""
    assert decided(busy("i0", 0.97), busy("i1"), hits={"i0": 6144}).instance == "i0"
    assert decided(busy("i0", 0.99), busy("i1"), hits={"i0": 6144}).instance == "i1"


def test_on_a_half_full_pool_it_is_worth_two() -> None:
    assert decided(busy("i0", 1.96), busy("i1"), hits={"i0": 6144}, load=0.5).instance == "i0"
    assert decided(busy("i0", 1.97), busy("i1"), hits={"i0": 6144}, load=0.5).instance == "i1"


def test_on_a_full_pool_it_is_worth_eight_seconds_of_waiting() -> None:
    """The 0.98 s cached on i1 are worth 7.86 s. The request would be late on both instances."""
    assert decided(busy("i0", 5.0), busy("i1", 12.8), hits={"i1": 6144}, load=2.0).instance == "i1"
    assert decided(busy("i0", 5.0), busy("i1", 12.9), hits={"i1": 6144}, load=2.0).instance == "i0"
    assert decided(busy("i0", 5.0), busy("i1", 12.8), hits={"i1": 6144}, load=2.0, most_affinity=3.0).instance == "i0"


def test_what_decodes_on_an_instance_makes_waits_there_longer() -> None:
    """Decodes need half of i0's time. They get 0.85 s for each second of earlier prefills, and of the prefill
    itself.
    """
    loads = [busy("i0", 1.0), busy("i1", 1.0)]
    loads[0].decoding = 1
    vectors = PoolVectors.of(loads, 1000, lambda load: 0.5 if load.entry.id == "i0" else 0.0)
    wait, rest = waits(np.array([1.28, 1.28]), vectors.ahead_seconds(0.0), None, vectors, 0.0)
    assert (wait.tolist(), rest.tolist()) == ([1.85, 1.0], [1.28 * 0.85, 0.0])


def test_an_engine_without_prefills_rests_from_its_last_one_on() -> None:
    load = busy("i0")
    load.last_first_token_at, load.decoding = 10.0, 1
    vectors = PoolVectors.of([load], 1000, lambda load: 0.5)
    rests = [float(waits(np.array([2.0]), vectors.ahead_seconds(now), None, vectors, now)[1][0]) for now in (10.0, 11.5, 13.0)]
    assert rests == pytest.approx([1.7, 0.2, 0.0])


def test_an_instance_that_was_seen_to_be_slower_than_the_others_counts_as_much_longer() -> None:
    slow, fast = busy("i0", 1.0), busy("i1", 1.9)
    assert decided(slow, fast).instance == "i0"
    slow.lasting_pace, fast.lasting_pace = 1.2, 1.0
    assert decided(slow, fast).instance == "i0", "that may be chance"
    slow.lasting_pace, fast.lasting_pace = 3.0, 1.0
    decision = decided(slow, fast)
    assert decision.instance == "i1"
    assert decision.ttft_seconds == pytest.approx((1.9 + 1.28) / 2), "half as long as in the mean of the two"
    slow.lasting_pace = fast.lasting_pace = 3.0
    assert decided(slow, fast).instance == "i0", "all slow: nothing is known of who is slower"


def test_what_a_prefill_makes_others_wait_is_at_the_speed_of_the_pool() -> None:
    """At load 0.75, each second of prefill makes others wait three more seconds. For 1.28 s at the mean speed, the fast
    instance needs 0.64 s and the slow one 1.92 s. Requests behind it wait 3.84 s at both.
    """
    fast, slow = busy("fast"), busy("slow")
    fast.lasting_pace, slow.lasting_pace = 0.5, 1.5
    costs = {one.instance: one.terms["weighted_prefill_seconds"] for one in decided(fast, slow, load=0.75).candidates}
    assert costs == {"fast": pytest.approx(0.64 + 3.84), "slow": pytest.approx(1.92 + 3.84)}


def test_a_prefill_under_way_is_waited_for_as_long_as_it_still_takes() -> None:
    load = busy("i0", 3.0)
    load.in_flight["r"] = (0.0, 3_000_000)
    assert PoolVectors.of([load], 1000).ahead_seconds(2.0).tolist() == [1.0]


def test_a_short_prefix_does_not_gather_sessions_on_a_full_instance() -> None:
    holder, empty = busy("holder"), busy("empty")
    holder.kv_usage, empty.kv_usage = 0.5, 0.1
    assert decided(holder, empty, hits={"holder": 512}).instance == "empty"  # 0.08 s of prefill against 0.12 s
    assert decided(holder, empty, hits={"holder": 2048}).instance == "holder"


def test_an_instance_that_would_be_too_late_comes_after_those_that_would_not() -> None:
    """i1 would give the first token after 4.6 s, more than 0.9 of the SLO, i0 after 3.78 s. By cost alone i1 would be
    better.
    """
    decision = decided(busy("i0", 2.5), busy("i1", 4.3), hits={"i1": 6144}, load=0.5)
    assert (decision.instance, decision.fallbacks) == ("i0", ("i1",))
    assert decided(busy("i0", 2.5), busy("i1", 4.1), hits={"i1": 6144}, load=0.5).instance == "i1"


@pytest.mark.parametrize(("load", "chosen", "rule"), [(0.5, "i1", "in-time-first"), (1.0, "i0", "lowest-cost")])
def test_a_first_token_in_time_is_not_bought_with_more_than_a_target_of_the_others_time(load: float, chosen: str, rule: str) -> None:
    """The home holds all but 500 tokens and would finish in 4.6 s, past the limit of 4.5 s. Another instance would
    compute 1.28 s, which are worth 2.6 s in a half full pool and 10.2 s in a full one.
    """
    decision = decided(busy("i0", 4.52), busy("i1", 3.18), hits={"i0": 7500}, load=load)
    assert (decision.instance, decision.weigh().rule) == (chosen, rule)


@pytest.mark.parametrize(("load", "worth"), [(0.0, 1.0), (0.5, 2.0), (0.75, 4.0), (0.875, 8.0), (1.0, 8.0), (3.0, 8.0)])
def test_affinity_is_what_a_second_of_work_makes_all_wait(load: float, worth: float) -> None:
    assert affinity(load, most=8.0) == pytest.approx(worth)


def test_leaving_the_larger_hit_is_said_to_be_for_the_slo() -> None:
    decision = decided(busy("i0"), busy("i1", 8.0), hits={"i1": 6144, "i0": 512})
    assert (decision.instance, decision.reason) == ("i0", DecisionReason.PREFIX_OUTWEIGHED)


def test_late_requests_do_not_count_as_waiting() -> None:
    assert decided(busy("i0", 1.0), busy("i1", 0.5, late_seconds=30.0)).instance == "i1"


def test_the_prediction_is_the_wait_and_the_prefill() -> None:
    decision = decided(busy("i0", 1.0), hits={"i0": TOKENS - SECOND})
    assert decision.ttft_seconds == pytest.approx(2.0)
    assert decision.reason is DecisionReason.ONLY_INSTANCE


def test_a_session_nobody_is_seen_to_hold_goes_to_its_home() -> None:
    decision = decided(busy("i0"), busy("i1"), hits={"i0": 512}, home=home_at("i1", 7000))
    assert (decision.instance, decision.reason) == ("i1", DecisionReason.SESSION_BOUND)


def test_what_is_seen_counts_more_than_a_home() -> None:
    decision = decided(busy("i0"), busy("i1"), hits={"i0": 6144}, home=home_at("i1", 7000))
    assert (decision.instance, decision.reason) == ("i0", DecisionReason.PREFIX_AFFINITY)
    assert {one.instance for one in decision.candidates} == {"i0", "i1"}


def test_a_home_that_is_gone_is_no_candidate() -> None:
    assert decided(busy("i0"), busy("i1", 0.1), home=home_at("i9", 7000)).instance == "i0"


LINK = {"kv_transfer_bytes_per_second": 25e9, "kv_bytes_per_token": 57_344}
"""A link on which the KV blocks of 6,144 tokens take 14 ms."""


def fetching(hits: dict[str, int], *loads: InstanceLoad, **parameters: bool) -> Decision:
    """Return the decision as `decided` does, in a pool whose engines can fetch from each other."""
    seen = view_over(loads, hits, **LINK)
    return Fairlead(FairleadParameters(fetch=parameters.get("fetch", True))).choose(request("r", TOKENS), seen, 0.0)


def test_where_engines_can_fetch_an_idle_instance_fetches_from_a_waiting_holder() -> None:
    decision = fetching({"i0": 6144}, busy("i0", 0.5), busy("i1"))
    assert (decision.instance, decision.transfer_from, decision.reason) == ("i1", "i0", DecisionReason.PREFIX_REPLICATED)
    assert decision.ttft_seconds == pytest.approx(0.297 + 0.014 + 0.098, abs=0.001), "the rest, the fetch, and a tenth of what is saved"
    alone = fetching({"i0": 6144}, busy("i0", 0.5), busy("i1"), fetch=False)
    assert (alone.instance, alone.transfer_from) == ("i0", None)


def test_an_idle_holder_computes_itself_and_nothing_is_fetched_where_nobody_holds_any() -> None:
    held = fetching({"i0": 6144}, busy("i0"), busy("i1"))
    assert (held.instance, held.transfer_from) == ("i0", None)
    assert fetching({}, busy("i0", 0.5), busy("i1")).transfer_from is None


def test_a_fetch_comes_from_the_holder_that_serves_the_fewest() -> None:
    holders = [busy("i0", 3.0), busy("i1", 3.0), busy("i2")]
    holders[0].transfers_out = 2
    assert fetching({"i0": 6144, "i1": 6144}, *holders).transfer_from == "i1"


def pool(window: int = 1, mode: str = "Disabled", **parameters: Any) -> PoolScheduler:
    """Return a pool of one instance with a TTFT SLO of 5 s and 6,250 tokens/s."""
    of = table(1, policy="fairlead", window=window, parameters=parameters, rejection=EarlyRejectionFacts(mode=mode))
    return having_seen(PoolScheduler(of, "router-0", 1))


def test_a_request_that_became_late_is_served_once_nothing_else_waits() -> None:
    scheduler = pool(late_share=0.0, calm_load=0.0)
    assert [one.request.id for one in dispatches(scheduler.submit(request("a", 4 * SECOND), 0.0))] == ["a"]
    assert scheduler.submit(request("b", 4 * SECOND), 0.1) == ()
    scheduler.tick(1.0)
    load = scheduler.load("i00")
    assert load is not None
    assert load.late_prefill_microseconds == 4_000_000
    assert [one.request.id for one in dispatches(scheduler.first_token("a", 4.0))] == ["b"]
    assert load.late_prefill_microseconds == 0
    assert scheduler.discrepancies() == ()


def test_late_requests_are_held_back_while_the_pool_is_not_calm() -> None:
    """Late requests wait until they get their share of the time, or until little else waits."""
    scheduler = PoolScheduler(table(2, policy="fairlead", parameters={"late_share": 0.0, "calm_load": 0.0}), "router-0", 1)
    for name in ("a", "b"):  # keep both busy for long
        scheduler.submit(request(name, 3 * SECOND, at=0.0), 0.0)
    for number in range(10):
        scheduler.submit(request(f"r{number}", 2 * SECOND, at=0.0), 0.0)
    scheduler.tick(2.95)
    first, second = scheduler.load("i00"), scheduler.load("i01")
    assert first is not None
    assert second is not None
    assert first.late_prefill_microseconds + second.late_prefill_microseconds == 20_000_000, "ten requests are late"
    scheduler.submit(request("fresh", 4 * SECOND, at=2.95), 2.95)
    outcomes = [*scheduler.first_token("a", 3.0), *scheduler.first_token("b", 3.0)]
    assert [one.request.id for one in dispatches(outcomes)] == ["fresh"], "the other instance is kept free for what can be in time"
    assert scheduler.discrepancies() == ()


def test_a_request_that_became_late_is_refused_when_early_rejection_is_on() -> None:
    scheduler = pool(mode="Load")
    scheduler.submit(request("a", 2 * SECOND), 0.0)
    assert scheduler.submit(request("b", round(2.7 * SECOND)), 0.0) == ()
    assert scheduler.tick(2.0) == ()
    (refused,) = refusals(scheduler.tick(2.5))
    assert (refused.request.id, refused.reason, refused.status) == ("b", RejectionReason.PREDICTED_TTFT, 429)
    assert refused.retry_after_seconds >= 1
    assert "2.5 s in the queue" in refused.message
    assert scheduler.waiting() == 0
    assert scheduler.discrepancies() == ()


@pytest.mark.parametrize("mode", ["Load", "Disabled"])
def test_a_request_whose_prefix_is_computed_ahead_of_it_is_not_late_by_the_time_without(mode: str) -> None:
    """The next request of a session often arrives while the last one is still computed."""
    scheduler = pool(mode=mode)
    blocks = tuple(range(24))  # of 512 tokens
    scheduler.submit(request("a", 2 * SECOND, blocks=blocks), 0.0)
    assert scheduler.submit(request("b", round(2.7 * SECOND), blocks=(*blocks, 100, 101)), 0.0) == ()
    load = scheduler.load("i00")
    assert load is not None
    assert load.pending_prefill_microseconds == 4_700_000
    assert scheduler.tick(2.5) == ()
    assert (load.late_prefill_microseconds, load.pending_prefill_microseconds) == (0, 2_000_000 + 733_920)
    (sent,) = dispatches(scheduler.first_token("a", 3.0))
    assert (sent.request.id, sent.hit_tokens) == ("b", 24 * 512)
    assert scheduler.discrepancies() == ()


def test_what_is_late_no_more_is_counted_among_classes_and_tenants_as_it_is() -> None:
    of = table(1, policy="fairlead", classes=(PriorityClass(name="high", priority=10), PriorityClass(name="low", priority=-10)))
    scheduler = PoolScheduler(replace(of, routing=replace(of.routing, fairness=FAIR_TENANTS)), "router-0", 1)
    blocks = tuple(range(24))
    scheduler.submit(request("a", 2 * SECOND, blocks=blocks), 0.0)
    for name in ("high", "low"):
        scheduler.submit(replace(request(name, round(2.7 * SECOND), blocks=(*blocks, 100)), priority_class=name, tenant=name), 0.0)
    scheduler.tick(2.5)
    load = scheduler.load("i00")
    assert load is not None
    assert (load.late_prefill_microseconds, load.pending_prefill_microseconds) == (0, 2_000_000 + 2 * 733_920)
    assert scheduler.discrepancies() == ()


def test_a_prefix_that_is_too_short_leaves_a_request_late() -> None:
    scheduler = pool(mode="Load")
    scheduler.submit(request("a", 2 * SECOND, blocks=(1, 2, 3)), 0.0)
    scheduler.submit(request("b", round(2.7 * SECOND), blocks=(1, 4, 5)), 0.0)
    assert scheduler.tick(2.27) == (), "by a block's time later"
    assert [one.request.id for one in refusals(scheduler.tick(2.5))] == ["b"]
    assert scheduler.discrepancies() == ()


def test_early_rejection_refuses_at_arrival_what_is_predicted_too_late() -> None:
    scheduler = pool(mode="Load")
    scheduler.submit(request("a", 4 * SECOND), 0.0)
    (refused,) = refusals(scheduler.submit(request("b", 2 * SECOND), 0.0))
    assert refused.predicted_ttft_seconds == pytest.approx(6.0)


def test_turning_early_rejection_on_refuses_the_late_that_already_wait() -> None:
    scheduler = pool(late_share=0.0, calm_load=0.0)
    scheduler.submit(request("a", 4 * SECOND), 0.0)
    scheduler.submit(request("b", 4 * SECOND), 0.0)
    scheduler.tick(2.0)
    newer = table(
        1, policy="fairlead", version=2, parameters={"late_share": 0.0, "calm_load": 0.0}, rejection=EarlyRejectionFacts(mode="Load")
    )
    assert [one.request.id for one in refusals(scheduler.update_table(newer, 2.1))] == ["b"]
    assert scheduler.discrepancies() == ()


def test_short_prefills_go_together_until_their_time_is_used_and_a_long_one_goes_alone() -> None:
    scheduler = pool()  # 0.07 s = 437 tokens
    sent = [dispatches(scheduler.submit(request(f"r{number}", 200), 0.0)) for number in range(4)]
    assert [len(one) for one in sent] == [1, 1, 1, 0]
    alone = pool()
    assert [len(dispatches(alone.submit(request(f"r{number}", 4000), 0.0))) for number in range(2)] == [1, 0]


def test_without_queues_everything_is_sent_at_once() -> None:
    scheduler = pool(window=0)
    sent = [one.request.id for name in "abc" for one in dispatches(scheduler.submit(request(name, 10 * SECOND), 0.0))]
    assert sent == ["a", "b", "c"]


@pytest.mark.parametrize(("first_token", "ended", "kept"), [(0.5, 5.0, True), (0.5, 1.0, False), (7.0, 12.0, False)])
def test_rests_are_kept_in_a_pool_with_time_once_answers_are_seen_to_be_late_and_first_tokens_are_not(
    first_token: float, ended: float, kept: bool
) -> None:
    """The targets are 5 s and 0.1 s. Answers have 21 tokens."""
    scheduler = pool()
    for number in range(10):
        scheduler.submit(request(f"r{number}", 100, at=100.0 * number), 100.0 * number)
        scheduler.first_token(f"r{number}", 100.0 * number + first_token)
        scheduler.complete(f"r{number}", 100.0 * number + ended, 21, None)
    assert scheduler._state.view.pool_load() < 1
    assert scheduler._state._has_time() is not kept


def test_the_pace_of_an_instance_is_learnt_and_forgotten_with_its_engine() -> None:
    scheduler = pool()
    for number in range(30):
        scheduler.submit(request(f"r{number}", SECOND), 10.0 * number)
        scheduler.first_token(f"r{number}", 10.0 * number + 2.1)
        scheduler.complete(f"r{number}", 10.0 * number + 3, 5, None)
    load = scheduler.load("i00")
    assert load is not None
    of_pool = scheduler.prefill_speed / 6250
    assert of_pool == pytest.approx(1 / 2.1), "all that are seen are as slow"
    assert load.prefill_pace / of_pool == pytest.approx(2.0, abs=0.15)
    assert 1.3 < load.lasting_pace / of_pool < 1.7, "it needs many more to be sure"
    scheduler.update_table(table([entry("i00", InstanceState.LOST)], policy="fairlead", version=2), 400.0)
    assert load.prefill_pace == load.lasting_pace == 1.0


def test_many_short_prefills_do_not_make_an_instance_a_fast_one() -> None:
    """Most of the expected time of a short prefill is the wait for the present step, and often it need not wait."""
    scheduler = pool()
    load = scheduler.load("i00")
    assert load is not None
    at = 0.0
    for number in range(400):
        seconds = 2.0 if number % 10 == 0 else 0.02
        scheduler.submit(request(f"r{number}", round(seconds * SECOND)), at)
        scheduler.first_token(f"r{number}", at + seconds)
        scheduler.complete(f"r{number}", at + seconds + 0.1, 5, None)
        at += 10.0
    assert load.lasting_pace == pytest.approx(2.18 / 2.68, abs=0.05), "of ten: what they took, and were expected to take"


def test_what_other_routers_send_there_makes_no_instance_slow() -> None:
    """Every second prefill takes twice as long as predicted, because a prefill of another router runs before it."""
    lasting, offered = [], []
    for routers in (1, 2):
        scheduler = pool()
        scheduler.know_routers(routers)
        assert scheduler.routers == routers
        for number in range(300):
            scheduler.submit(request(f"r{number}", SECOND), 10.0 * number)
            scheduler.first_token(f"r{number}", 10.0 * number + (2.1 if number % 2 else 1.05))
            scheduler.complete(f"r{number}", 10.0 * number + 3, 5, None)
        load = scheduler.load("i00")
        assert load is not None
        lasting.append(load.lasting_pace * 6250 / scheduler.prefill_speed)
        offered.append(scheduler._state.view.pool_load())
    assert lasting == [pytest.approx(1.5, abs=0.1), pytest.approx(1.11, abs=0.1)]
    assert 0.95 < offered[1] / offered[0] < 1.5, "twice as much comes, each hardly longer than it is computed"


def test_prompts_that_one_step_finishes_together_teach_their_common_pace() -> None:
    scheduler = pool(window=2)
    load = scheduler.load("i00")
    assert load is not None
    for number in range(60):
        for name in (f"a{number}", f"b{number}"):
            scheduler.submit(request(name, SECOND), 10.0 * number)
        for name in (f"a{number}", f"b{number}"):
            scheduler.first_token(name, 10.0 * number + 2)
            scheduler.complete(name, 10.0 * number + 3, 5, None)
    assert load.prefill_pace == pytest.approx(1.0, abs=0.2), "the second counts as done in no time, the first in twice its own"


@examples(40)
@given(
    st.lists(st.tuples(st.integers(100, 30_000), st.floats(0.0, 2.0)), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.02, 0.5]),
    st.sampled_from(["Disabled", "Load"]),
)
def test_no_request_waits_beyond_the_queue_timeout(arrivals: list[tuple[int, float]], share: float, mode: str) -> None:
    """The instance computes all that it gets. Every request is dispatched or refused within the timeout, however late
    it is.
    """
    timeout, step = 8.0, 0.05
    scheduler = pool(mode=mode, queue_timeout_seconds=timeout, late_share=share)
    due = []
    now = 0.0
    for number, (tokens, pause) in enumerate(arrivals):
        now += pause
        due.append((now, request(f"r{number}", tokens, at=now)))
    waiting: dict[str, float] = {}
    computing: tuple[str, float] | None = None
    now, ended = 0.0, 0
    while due or waiting or computing:
        outcomes: list[Any] = []
        if computing is not None and computing[1] <= now:
            name, computing = computing[0], None
            outcomes += scheduler.first_token(name, now)
            outcomes += scheduler.complete(name, now, 1, None)
        while due and due[0][0] <= now:
            at, asked = due.pop(0)
            waiting[asked.id] = at
            outcomes += scheduler.submit(asked, now)
        outcomes += scheduler.tick(now)
        for sent in dispatches(outcomes):
            del waiting[sent.request.id]
            computing = (sent.request.id, now + sent.miss_tokens / SECOND)
        for refused in refusals(outcomes):
            del waiting[refused.request.id]
        ended += len(outcomes)
        assert all(now - since <= timeout + 2 * step for since in waiting.values())
        now += step
    assert ended == len(arrivals)
    assert scheduler.discrepancies() == ()


def test_its_parameters_are_checked() -> None:
    assert BUILT_IN.check_parameters("fairlead", {}).queue_discipline == "deadline"
    with pytest.raises(InvalidInput, match="most_affinity"):
        BUILT_IN.check_parameters("fairlead", {"most_affinity": 0})
    with pytest.raises(InvalidInput, match="late_share"):
        BUILT_IN.check_parameters("fairlead", {"late_share": 1.5})


def learning(*errors: tuple[float, float]) -> LearningFairlead:
    """Return a policy after one observation for each pair of `errors`: the error of its model, and that of its formula.

    The model predicts 1 ms for each token to compute, six times as much as the formula.
    """
    policy = LearningFairlead(FairleadParameters(learned_ttft=True))
    policy.adopt(sum_of("prefill_tokens"))
    for model, formula in errors:
        policy._learnt._experience.saw(np.zeros(len(FEATURES), dtype=np.float32), 1.0 + model, 1.0 + formula, 1.0)
    return policy


MISLED = view_over((busy("i0", 1.0), busy("i1", 0.9, late_seconds=0.9)))
"""Loads for which the formula prefers i1, because late requests wait there behind new ones; the model counts them."""


def watched(policy: LearningFairlead) -> Decision:
    """Return the decision, after its record is checked."""
    return WatchedPolicy(policy, Counter()).choose(request("r", TOKENS), MISLED, 0.0)


def test_a_learnt_ttft_takes_the_place_of_the_formula_while_it_errs_less() -> None:
    decision = watched(learning(*[(0.1, 0.2)] * 100))
    assert (decision.instance, decision.weigh().rule) == ("i0", "learned-lowest-cost")
    assert decision.ttft_seconds == pytest.approx(6.25)
    assert decision.candidates[0].terms["learned_seconds"] == pytest.approx(6.25 - 1.0 - 1.28)
    limits = decision.weigh().limits
    assert limits["learned_error_seconds"] == pytest.approx(0.1)
    assert limits["formula_error_seconds"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ([], HeuristicReason.UNPROVEN),
        ([(0.1, 0.2)] * 99, HeuristicReason.UNPROVEN),
        ([(0.2, 0.1)] * 100, HeuristicReason.LOSING),
        ([(0.2, 0.1)] * 100 + [(0.0, 0.1)] * 110, HeuristicReason.LOSING),
    ],
)
def test_a_learnt_ttft_that_is_not_proven_better_is_recorded_and_not_obeyed(
    errors: list[tuple[float, float]], reason: HeuristicReason
) -> None:
    """In the end the model's error is 0.098 s and the formula's 0.1 s, which is not clearly more."""
    policy = learning(*errors)
    decision = watched(policy)
    assert (decision.instance, decision.weigh().rule) == ("i1", "lowest-cost")
    assert decision.candidates[0].terms["learned_ttft_seconds"] == pytest.approx(11.25)
    assert policy.learning().heuristic_choices == {reason: 1}


def test_a_model_stands_as_the_one_before_it_until_it_was_compared() -> None:
    for errors, rule in (((0.1, 0.2), "learned-lowest-cost"), ((0.2, 0.1), "lowest-cost")):
        policy = learning(*[errors] * 100)
        policy.adopt(sum_of("prefill_tokens", number=2))
        assert watched(policy).weigh().rule == rule


def test_without_a_model_the_formula_places_and_what_came_of_it_is_learnt() -> None:
    policy = LearningFairlead(FairleadParameters(learned_ttft=True))
    decision = watched(policy)
    assert (decision.instance, decision.weigh().rule) == ("i1", "lowest-cost")
    assert decision.learn is not None
    decision.learn("i0", 3.0)
    assert policy.learning().samples == 0, "another instance computed it"
    decision.learn("i1", 3.0)
    assert policy.take_samples().ttft_seconds.tolist() == [3.0]


@pytest.mark.parametrize(
    ("policy", "parameters", "learns"),
    [
        ("fairlead", {}, False),
        ("fairlead", {"learned_ttft": True}, True),
        ("lodestar", {}, True),
        ("lodestar", {"mode": "Off"}, False),
        ("gone", {}, False),
    ],
)
def test_a_pool_learns_by_its_policy_and_parameters(policy: str, parameters: dict[str, Any], learns: bool) -> None:
    assert BUILT_IN.learns(RoutingFacts(policy=policy, parameters=parameters)) is learns
