from typing import Any

import pytest

from fairlead.instances import Role
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.policies.mooncake import Mooncake, MooncakeParameters
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import ScriptedView, dispatches, entry, load_of, request, table, view_over

SPEED = 10_000.0
"""The prefill speed: 0.1 ms per token. A transfer takes 0.01 ms per token."""
LINK: dict[str, Any] = {"kv_bytes_per_token": 100_000, "kv_transfer_bytes_per_second": 1e10}


def worked_example(**changes: Any) -> ScriptedView:
    loads = [load_of("p1", pending=20_000), load_of("p2", pending=3_000), load_of("p3")]
    return view_over(loads, {"p1": 8_000, "p2": 5_000}, speed=SPEED, **(LINK | changes))


def test_the_worked_example_chooses_the_idle_instance_and_replicates_the_prefix_to_it() -> None:
    decision = Mooncake(MooncakeParameters()).choose(request("r", 10_000), worked_example(), 0.0)
    assert (decision.instance, decision.transfer_from, decision.reason) == ("p3", "p1", DecisionReason.PREFIX_REPLICATED)
    assert decision.fallbacks == ("p2", "p1")
    assert decision.ttft_seconds == pytest.approx(0.28)
    assert [one.total for one in decision.candidates] == pytest.approx([0.28, 0.80, 2.2])


def test_the_worked_example_without_transfers_chooses_the_shorter_prefix_in_the_shorter_queue() -> None:
    decision = Mooncake(MooncakeParameters(preset="mooncake-cache-aware")).choose(request("r", 10_000), worked_example(), 0.0)
    assert (decision.instance, decision.transfer_from) == ("p2", None)
    assert [one.total for one in decision.candidates] == pytest.approx([0.80, 1.0, 2.2])


def test_engines_that_cannot_fetch_are_never_asked_to() -> None:
    view = worked_example(kv_transfer_bytes_per_second=0.0)
    assert Mooncake(MooncakeParameters()).choose(request("r", 10_000), view, 0.0).transfer_from is None


def test_a_match_shorter_by_exactly_theta_is_fetched_and_one_a_little_longer_is_not() -> None:
    for own, fetches in ((4_000, True), (4_001, False)):
        view = view_over([load_of("p1", pending=90_000), load_of("p2")], {"p1": 8_000, "p2": own}, speed=SPEED, **LINK)
        decision = Mooncake(MooncakeParameters()).choose(request("r", 10_000), view, 0.0)
        assert (decision.instance, decision.transfer_from is not None) == ("p2", fetches)


def test_the_holder_of_the_best_match_never_fetches_from_itself() -> None:
    view = view_over([load_of("p1"), load_of("p2", pending=50_000)], {"p1": 8_000}, speed=SPEED, **LINK)
    decision = Mooncake(MooncakeParameters(theta=1.01)).choose(request("r", 10_000), view, 0.0)
    assert (decision.instance, decision.transfer_from, decision.reason) == ("p1", None, DecisionReason.PREFIX_AFFINITY)


def test_nothing_cached_anywhere_is_the_shortest_queue() -> None:
    view = view_over([load_of("p1", pending=5), load_of("p2")], speed=SPEED, **LINK)
    decision = Mooncake(MooncakeParameters()).choose(request("r", 10_000), view, 0.0)
    assert (decision.instance, decision.reason) == ("p2", DecisionReason.SHORTEST_TTFT)


def test_transfers_share_the_link_of_their_source() -> None:
    busy = worked_example()
    busy.loads["p1"].transfers_out = 9
    decision = Mooncake(MooncakeParameters()).choose(request("r", 10_000), busy, 0.0)
    assert [one.instance for one in decision.candidates] == ["p2", "p3", "p1"]
    assert decision.candidates[1].total == pytest.approx(1.0)  # 0.08 x 10 + 0.2


def test_the_least_busy_of_equal_holders_is_the_source() -> None:
    loads = [load_of("p1", pending=90_000, transfers_out=1), load_of("p2", pending=90_000), load_of("p3")]
    view = view_over(loads, {"p1": 8_000, "p2": 8_000}, speed=SPEED, **LINK)
    assert Mooncake(MooncakeParameters()).choose(request("r", 10_000), view, 0.0).transfer_from == "p2"


def test_the_shorter_rule_computes_what_is_slower_to_fetch() -> None:
    slow = worked_example(kv_transfer_bytes_per_second=1e9)  # 0.1 ms per token, as long as computing it
    threshold = Mooncake(MooncakeParameters()).choose(request("r", 10_000), slow, 0.0)
    shorter = Mooncake(MooncakeParameters(transfer_rule="shorter")).choose(request("r", 10_000), slow, 0.0)
    assert (threshold.instance, shorter.instance) == ("p2", "p2")
    loads = [load_of("p1", pending=90_000), load_of("p3")]
    far = view_over(loads, {"p1": 8_000}, speed=SPEED, **(LINK | {"kv_transfer_bytes_per_second": 1e8}))
    assert Mooncake(MooncakeParameters(transfer_rule="shorter")).choose(request("r", 10_000), far, 0.0).transfer_from is None


def test_the_scheduler_carries_the_transfer_counts_it_and_ends_it() -> None:
    pool = table(2, policy="mooncake", speed=SPEED, window=0, **LINK)
    scheduler = PoolScheduler(pool, "router-0", 1)
    blocks = tuple(range(1, 17))
    first = dispatches(scheduler.submit(request("r1", 9_000, blocks=blocks), 0.0))[0]
    scheduler.first_token("r1", 1.0)
    scheduler.submit(request("busy", 50_000, blocks=(*blocks, 99)), 1.0)
    sent = dispatches(scheduler.submit(request("r2", 9_000, blocks=blocks), 1.0))[0]
    assert (sent.transfer_from, sent.transfer_tokens, sent.hit_tokens, sent.miss_tokens) == (first.instance, 8_192, 8_192, 808)
    source = scheduler.load(first.instance)
    assert source is not None
    assert source.transfers_out == 1
    scheduler.transferred("r2", 1.1)
    assert source.transfers_out == 0
    scheduler.first_token("r2", 1.2)
    assert (source.transfers_out, scheduler.discrepancies()) == (0, ())


def test_with_prefill_and_decode_instances_both_sides_are_named() -> None:
    loads = [
        InstanceLoad(entry=entry("p1", role=Role.PREFILL)),
        InstanceLoad(entry=entry("d1", role=Role.DECODE), decoding=4, decode_tokens=9_000),
        InstanceLoad(entry=entry("d2", role=Role.DECODE), decoding=9, decode_tokens=1_000),
    ]
    by_batch = view_over(loads, decode_base_seconds=0.02, decode_seconds_per_request=0.001)
    decision = Mooncake(MooncakeParameters()).choose(request("r"), by_batch, 0.0)
    assert (decision.instance, decision.decode) == ("p1", "d1")
    by_context = view_over(loads, decode_base_seconds=0.02, decode_seconds_per_context_token=1e-6)
    assert Mooncake(MooncakeParameters()).choose(request("r"), by_context, 0.0).decode == "d2"
