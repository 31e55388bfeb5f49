from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.policies.preble import MOVES_AT_ONCE, Preble, PrebleParameters
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import ScriptedView, dispatches, load_of, request, table, view_over


def asked(name: str, *blocks: int, tokens: int | None = None) -> RoutingRequest:
    return request(name, 512 * len(blocks) if tokens is None else tokens, blocks=blocks)


def two_instances(kv_cache_tokens: int = 1_000_000) -> ScriptedView:
    return view_over([load_of("i1"), load_of("i2")], kv_cache_tokens=kv_cache_tokens)


def test_a_prefix_of_more_than_half_the_prompt_is_followed_even_to_a_busy_instance() -> None:
    view = view_over([load_of("i1", requests=20, pending=90_000), load_of("i2")], {"i1": 5_001})
    decision = Preble(PrebleParameters()).choose(request("r", 10_000), view, 0.0)
    assert (decision.instance, decision.reason, decision.fallbacks) == ("i1", DecisionReason.PREFIX_AFFINITY, ("i2",))


def test_half_the_prompt_is_not_enough() -> None:
    view = view_over([load_of("i1", requests=20), load_of("i2")], {"i1": 5_000})
    decision = Preble(PrebleParameters()).choose(request("r", 10_000), view, 0.0)
    assert (decision.instance, decision.reason) == ("i2", DecisionReason.PREFIX_EXPLORED)


def test_several_holders_of_the_longest_prefix_go_by_cost_and_shorter_ones_are_not_asked() -> None:
    view = view_over([load_of("i1", requests=3), load_of("i2", requests=1), load_of("i3")], {"i1": 9_000, "i2": 9_000, "i3": 8_000})
    assert Preble(PrebleParameters()).choose(request("r", 10_000), view, 0.0).instance == "i2"


def test_recent_work_is_remembered_for_the_window_and_then_forgotten() -> None:
    policy = Preble(PrebleParameters(window_seconds=60.0))
    view = two_instances()
    assert policy.choose(request("r1", 10_000), view, 0.0).instance == "i1"
    busy = policy.choose(request("r2", 1_000), view, 1.0)
    assert busy.instance == "i2"
    assert [one.total for one in busy.candidates] == [0.16, 1.76]
    late = policy.choose(request("r3", 1_000), view, 61.5)
    assert [one.total for one in late.candidates] == [0.16, 0.16]


def test_running_decodes_are_charged() -> None:
    view = view_over([load_of("i1", requests=1), load_of("i2")])
    costs = Preble(PrebleParameters()).choose(request("r", 6_250), view, 0.0).candidates
    assert [one.total for one in costs] == [1.0, 1.0 + 45 * 0.15]


def test_requests_that_wait_in_the_router_are_charged_like_running_ones() -> None:
    waiting = load_of("i1")
    waiting.waiting = 2
    costs = Preble(PrebleParameters()).choose(request("r", 6_250), view_over([waiting, load_of("i2")]), 0.0).candidates
    assert [one.total for one in costs] == [1.0, 1.0 + 2 * 45 * 0.15]


def test_work_shared_by_instances_is_charged_in_parts() -> None:
    policy = Preble(PrebleParameters(decode_seconds=0.0))
    view = two_instances()
    policy.choose(asked("a", 1, 2, tokens=6_250), view, 0.0)
    policy.choose(asked("b", 1, 2, tokens=6_250), view, 0.0)
    probe = policy.choose(request("probe", 625), view, 0.0)
    assert {one.instance: one.total for one in probe.candidates} == {"i1": 1.1, "i2": 1.1}


def test_what_a_full_cache_would_give_up_costs() -> None:
    policy = Preble(PrebleParameters())
    view = two_instances(kv_cache_tokens=7_000)
    policy.choose(request("r1", 6_250), view, 0.0)
    totals = {one.instance: one.total for one in policy.choose(request("r2", 1_250), view, 0.0).candidates}
    assert totals == {"i2": 0.2, "i1": 0.2 + 1.0 + 1.0}  # its prefill, the work of r1, and r1 again, all of recent requests


def test_rebalancing_gives_prefixes_of_the_busiest_to_the_idlest() -> None:
    policy = Preble(PrebleParameters(rebalance_every=10, decode_seconds=0.0))
    view = two_instances()
    view.loads["i2"].broken_until = 99.0  # at first everything is computed on i1
    for number in range(19):
        policy.choose(asked(f"r{number}", number % 4 + 1, tokens=600), view, 0.0)
    view.loads["i2"].broken_until = 0.0
    placed = []
    for number in range(20, 60):
        view.hits = {(f"r{number}", "i1"): 599}
        placed.append(policy.choose(asked(f"r{number}", number % 4 + 1, tokens=600), view, 0.0).instance)
    assert set(placed[-8:]) == {"i1", "i2"}, "every prefix is still held by i1 alone, so whatever goes to i2 was moved there"


def test_a_look_at_the_balance_moves_a_few_prefixes_and_the_next_requests_go_on_to_the_balance() -> None:
    policy = Preble(PrebleParameters(rebalance_every=1_000, decode_seconds=0.0))
    view = two_instances()
    view.loads["i2"].broken_until = 99.0  # at first everything is computed on i1
    prefixes = 8 * MOVES_AT_ONCE
    for number in range(2 * prefixes - 1):
        policy.choose(asked(f"r{number}", number % prefixes + 1, tokens=600), view, 0.0)
    view.loads["i2"].broken_until = 0.0
    policy._since_rebalance = 2_000
    moved = []
    for number in range(5):
        view.hits = {(f"s{number}", "i1"): 599}
        policy.choose(asked(f"s{number}", number + 1, tokens=600), view, 0.0)
        moved.append(sum("i2" in node.instances for node in policy._nodes.values()))
    assert moved[:3] == [MOVES_AT_ONCE, 2 * MOVES_AT_ONCE, 3 * MOVES_AT_ONCE]
    assert moved[3] == moved[4], "balanced: the work of i1 is not more than one and a half times that of i2"
    assert 1.4 < policy._work["i1"] / policy._work["i2"] <= 1.5


def test_an_instance_that_left_takes_its_work_with_it() -> None:
    policy = Preble(PrebleParameters(decode_seconds=0.0))
    view = two_instances()
    policy.choose(request("r1", 6_250), view, 0.0)
    policy.table_changed(table([view.loads["i2"].entry]))
    policy.table_changed(view.table)
    assert [one.total for one in policy.choose(request("r2", 6_250), view, 0.0).candidates] == [1.0, 1.0]


def test_the_same_conversation_stays_with_its_holder_in_a_live_scheduler() -> None:
    scheduler = PoolScheduler(table(4, policy="preble", window=0), "router-0", 1)
    placed = []
    for turn in range(1, 6):
        blocks = tuple(range(1, 4 * turn + 1))
        (sent,) = dispatches(scheduler.submit(request(f"r{turn}", 512 * len(blocks), blocks=blocks, at=float(turn)), float(turn)))
        scheduler.first_token(f"r{turn}", turn + 0.5)
        placed.append(sent.instance)
    assert len(set(placed[1:])) == 1


def hot_prefix(pending: int) -> list[str]:
    """Return the target of requests with a hot prefix after a check of the balance.

    The prefix is held by i1, which is busy with `pending` tokens.
    """
    policy = Preble(PrebleParameters(rebalance_every=5))
    view = two_instances()
    view.loads["i2"].broken_until = 99.0
    for number in range(9):
        policy.choose(asked(f"r{number}", 1, tokens=600), view, 0.0)
    view.loads["i2"].broken_until = 0.0
    view.loads["i1"].pending_prefill_tokens = pending
    view.loads["i1"].decoding = 3
    placed = []
    for number in range(9, 30):
        view.hits = {(f"r{number}", "i1"): 599}
        placed.append(policy.choose(asked(f"r{number}", 1, tokens=600), view, 0.0).instance)
    return placed


def test_a_single_hot_prefix_is_replicated_only_when_its_holder_endangers_the_slo() -> None:
    assert set(hot_prefix(pending=31_250)) == {"i1"}
    assert set(hot_prefix(pending=31_251)) == {"i1", "i2"}
