import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.policies.ear import Ear, EarParameters, prefix_session
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import POOL, ScriptedView, dispatches, entry, request, table
from fairlead_testing.examples import examples

CAPACITY = 100_000


def load(name: str, pending: int, free: int = CAPACITY, sessions: int = 0) -> InstanceLoad:
    return InstanceLoad(entry=entry(name), pending_prefill_tokens=pending, kv_usage=1 - free / CAPACITY, sessions=sessions)


def home_at(instance: str, migrated_at: float | None = None, context: int = 33_600) -> Binding:
    return Binding(
        pool=POOL,
        session="s",
        instance=instance,
        version=1,
        reason=BindingReason.COLD,
        bound_at=0.0,
        migrated_at=migrated_at,
        context_tokens=context,
    )


def choose(loads: list[InstanceLoad], home: Binding | None, now: float = 0.0, parameters: EarParameters | None = None) -> Decision:
    pool = table([one.entry for one in loads], policy="ear", kv_cache_tokens=CAPACITY)
    view = ScriptedView(pool, {one.entry.id: one for one in loads}, bindings={} if home is None else {"s": home}, now=now)
    policy = Ear(parameters or EarParameters(hot_tokens=10_000, cooldown_seconds=30.0))
    return policy.choose(request("r", 1000, session="s"), view, now)


WORKED = [load("A", 12_000), load("B", 9_000, 50_000), load("C", 3_000, 20_000), load("D", 12_000)]


def test_the_worked_example_migrates_to_b_since_c_is_too_small_and_d_not_cooler() -> None:
    decision = choose(WORKED, home_at("A"))
    assert (decision.instance, decision.reason) == ("B", DecisionReason.SESSION_HOT_MIGRATED)


def test_the_worked_example_stays_on_b_within_the_cooldown() -> None:
    later = [load("A", 1_000), load("B", 15_000), load("C", 3_000), load("D", 12_000)]
    decision = choose(later, home_at("B", migrated_at=0.0), now=10.0)
    assert (decision.instance, decision.reason) == ("B", DecisionReason.SESSION_BOUND)


def test_the_worked_example_goes_back_to_a_when_exactly_the_cooldown_has_passed() -> None:
    later = [load("A", 1_000), load("B", 15_000), load("C", 3_000), load("D", 12_000)]
    assert choose(later, home_at("B", migrated_at=0.0), now=30.0).instance == "A"


def test_the_worked_example_stays_when_nobody_has_room() -> None:
    assert choose([load("A", 12_000), load("B", 9_000, 33_599), load("C", 3_000, 20_000)], home_at("A")).instance == "A"


def test_exactly_the_hot_threshold_is_not_hot() -> None:
    assert choose([load("A", 10_000), load("B", 0)], home_at("A")).instance == "A"


def test_the_default_threshold_is_the_slo_in_tokens() -> None:
    assert choose([load("A", 31_250), load("B", 0)], home_at("A"), parameters=EarParameters()).instance == "A"
    assert choose([load("A", 31_251), load("B", 0)], home_at("A"), parameters=EarParameters()).instance == "B"


def test_equal_pending_goes_to_more_free_kv_and_then_to_the_smaller_id() -> None:
    assert choose([load("A", 12_000), load("B", 0, 50_000), load("C", 0, 60_000)], home_at("A")).instance == "C"
    assert choose([load("A", 12_000), load("C", 0), load("B", 0)], home_at("A")).instance == "B"


def test_a_new_session_goes_to_the_least_pending_then_fewest_sessions_then_id() -> None:
    decision = choose([load("A", 5), load("B", 0, sessions=2), load("C", 0, sessions=1), load("D", 0, sessions=1)], None)
    assert (decision.instance, decision.reason) == ("C", DecisionReason.SESSION_COLD)


def test_a_new_instance_gets_its_share_of_new_sessions_and_not_all() -> None:
    loads = [load("A", 0, sessions=90), load("B", 0, sessions=100), load("C", 0, sessions=110)]
    policy, found = Ear(EarParameters()), []
    for count in (3, 4):
        known = [*loads, load("D", 0)][:count]
        seen = ScriptedView(table([one.entry for one in known], policy="ear"), {one.entry.id: one for one in known})
        found.append(Counter(policy.choose(request(f"r{number}", 1000, session=f"s{number}"), seen, 0.0).instance for number in range(12)))
    assert found == [{"A": 4, "B": 4, "C": 4}, {"A": 3, "B": 3, "C": 3, "D": 3}]


def test_a_target_that_is_hot_itself_is_not_worth_the_cache_unless_the_drafts_rule_is_chosen() -> None:
    loads = [load("A", 40_000), load("B", 11_000)]
    assert choose(loads, home_at("A")).instance == "A"
    assert choose(loads, home_at("A"), parameters=EarParameters(hot_tokens=10_000, cool_target=False)).instance == "B"


def test_a_move_that_recomputes_more_than_it_saves_in_waiting_is_not_made() -> None:
    pool = table([entry("A"), entry("B")], policy="ear", kv_cache_tokens=CAPACITY)
    loads = {"A": load("A", 12_000), "B": load("B", 9_000)}
    asked = request("r", 8_000, session="s")
    for cached, chosen in ((2_999, "B"), (3_000, "A")):
        view = ScriptedView(pool, loads, {("r", "A"): cached}, {"s": home_at("A")})
        assert Ear(EarParameters(hot_tokens=10_000)).choose(asked, view, 0.0).instance == chosen


LINK: dict[str, Any] = {"kv_bytes_per_token": 100, "kv_transfer_bytes_per_second": 100 * 62_500.0, "kv_transfer_latency_seconds": 0.016}
"""A link that transfers ten tokens in the time of computing one, after a latency of 100 tokens' time."""


def hot_host(cached: dict[str, int], pending_b: int = 9_000, **engine_facts: Any) -> ScriptedView:
    """Return a view in which A has 12,000 pending tokens and is the home of session s.

    Instances hold `cached` tokens of the session's request r.
    """
    pool = table([entry("A"), entry("B")], policy="ear", kv_cache_tokens=CAPACITY, **engine_facts)
    hits = {("r", name): tokens for name, tokens in cached.items()}
    return ScriptedView(pool, {"A": load("A", 12_000), "B": load("B", pending_b)}, hits, {"s": home_at("A")})


def test_a_session_that_migrates_takes_its_context_along() -> None:
    view = hot_host({"A": 6_000, "B": 1_000}, **LINK)
    decision = Ear(EarParameters(hot_tokens=10_000)).choose(request("r", 8_000, session="s"), view, 0.0)
    assert (decision.instance, decision.transfer_from) == ("B", "A")
    assert decision.ttft_seconds == pytest.approx((9_000 + 5_000 / 10 + 100 + 2_000) / 6_250)


@pytest.mark.parametrize(
    ("parameters", "cached"),
    [({"fetch": False}, {"A": 2_000}), ({}, {"A": 110}), ({}, {"A": 1_000, "B": 1_000}), ({}, {"B": 1_000})],
    ids=["not wanted", "slower than computing", "held there as well", "held there only"],
)
def test_a_context_is_not_fetched_without_need(parameters: dict[str, Any], cached: dict[str, int]) -> None:
    view = hot_host(cached, **LINK)
    decision = Ear(EarParameters(hot_tokens=10_000, **parameters)).choose(request("r", 8_000, session="s"), view, 0.0)
    assert (decision.instance, decision.transfer_from, decision.ttft_seconds) == ("B", None, None)


@pytest.mark.parametrize(("transfers", "chosen"), [(5, "B"), (6, "A")])
def test_a_busy_link_of_the_host_can_make_a_move_not_worth_it(transfers: int, chosen: str) -> None:
    view = hot_host({"A": 5_000}, pending_b=8_450, **LINK)
    view.loads["A"].transfers_out = transfers
    assert Ear(EarParameters(hot_tokens=10_000)).choose(request("r", 8_000, session="s"), view, 0.0).instance == chosen


def test_the_record_of_a_migration_tells_tokens_moved_from_tokens_recomputed() -> None:
    for fetch in (True, False):
        pool = table(2, policy="ear", parameters={"hot_tokens": 3_000, "fetch": fetch}, window=0, **LINK)
        scheduler = PoolScheduler(pool, "router-0", 1)
        context = tuple(range(10, 14))
        scheduler.submit(request("a", 2_100, session="s", blocks=context), 0.0)
        scheduler.first_token("a", 0.5)
        scheduler.complete("a", 1.0, 5, None)
        scheduler.submit(request("other", 2_500, session="t"), 1.0)  # to the second instance
        scheduler.submit(request("crowd", 9_000, session="u"), 1.0)  # to the first, where s is
        sent = dispatches(scheduler.submit(request("b", 2_200, session="s", blocks=context), 2.0))
        (move,) = scheduler.take_records(2.0).migrations
        assert (move.tokens_moved, move.tokens_recomputed) == ((2_048, 0) if fetch else (0, 2_048))
        assert [(one.transfer_from, one.transfer_tokens) for one in sent] == [(move.source, 2_048) if fetch else (None, 0)]


def test_pure_affinity_never_migrates() -> None:
    assert choose(WORKED, home_at("A"), parameters=EarParameters(hot_tokens=10_000, migrate=False)).instance == "A"


@pytest.mark.parametrize("state", [InstanceState.DRAINING, InstanceState.LOST])
def test_a_host_that_is_gone_forces_a_new_home_even_within_the_cooldown(state: InstanceState) -> None:
    gone = InstanceLoad(entry=entry("A", state))
    decision = choose([gone, load("B", 50_000), load("C", 60_000)], home_at("A", migrated_at=0.0), now=1.0)
    assert (decision.instance, decision.reason) == ("B", DecisionReason.SESSION_HOST_GONE)


def test_a_request_without_a_session_is_bound_by_its_first_two_blocks() -> None:
    one, two = request("a", blocks=(1, 2, 3)), request("b", blocks=(1, 2, 9))
    assert prefix_session(one) == prefix_session(two) == f"prefix:{2:016x}"
    assert prefix_session(request("c", blocks=(1,))) == f"prefix:{1:016x}"
    assert prefix_session(request("d")) != prefix_session(request("e"))


def test_free_kv_is_what_neither_the_engine_nor_this_router_knows_to_be_used() -> None:
    busy = InstanceLoad(entry=entry("A"), decode_tokens=30_000, dispatched_prefill_tokens=10_000)
    assert busy.free_kv_tokens(CAPACITY) == 60_000
    busy.kv_usage = 0.75
    assert busy.free_kv_tokens(CAPACITY) == 25_000


@examples(30)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.booleans()), min_size=10, max_size=80))
def test_a_session_migrates_at_most_once_per_cooldown(steps: list[tuple[int, int, bool]]) -> None:
    parameters = {"hot_tokens": 3000, "cooldown_seconds": 30}
    scheduler = PoolScheduler(table(3, policy="ear", parameters=parameters, window=0), "router-0", 1)
    now = 0.0
    moves: dict[str, list[float]] = {}
    for number, (pause, session, finishes) in enumerate(steps):
        now += pause / 4
        name = f"r{number}"
        scheduler.submit(request(name, 4000, session=f"s{session}"), now)
        if finishes:
            scheduler.first_token(name, now)
            scheduler.complete(name, now, 5, None)
        for record in scheduler.take_records(now).migrations:
            assert record.trigger is BindingReason.HOT_MIGRATION
            moves.setdefault(record.session or "", []).append(record.at)
    for times in moves.values():
        assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(times))
        assert len(times) <= 1 + now / 30
