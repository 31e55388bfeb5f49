"""Instances whose engine makes no progress get no request that another instance can serve, and sessions leave them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import Role
from fairlead.reports.bindings import BindingReason
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import dispatches, entries, request, table

POLICIES = ("fairlead", "ear", "dualmap", "sticky", "preble", "round-robin")


def scheduler_of(policy: str, instances: int = 3, window: int = 0) -> PoolScheduler:
    return PoolScheduler(table(entries(instances), policy=policy, window=window), "router-0", 0, sample_rate=0.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_session_leaves_a_stalled_engine_and_says_why(policy: str) -> None:
    scheduler = scheduler_of(policy)
    [sent] = dispatches(scheduler.submit(request("r0", 1600, blocks=(1, 2), session="s"), 0.0))
    scheduler.first_token("r0", 0.2)
    scheduler.complete("r0", 0.3, 10, None)
    scheduler.take_records(0.4)
    scheduler.instance_stalled(sent.instance, 1.0, stalled=True)
    assert scheduler.broken(1.0) == (sent.instance,)
    for number in range(20):
        [again] = dispatches(scheduler.submit(request(f"n{number}", 1600, blocks=(1, 2), session="s", at=2.0 + number), 2.0 + number))
        assert again.instance != sent.instance
        scheduler.first_token(again.request.id, 2.5 + number)
        scheduler.complete(again.request.id, 2.6 + number, 10, None)
    if scheduler.binding("s") is not None:
        moves = scheduler.take_records(30.0).migrations
        assert [move.trigger for move in moves if move.source == sent.instance] == [BindingReason.ENGINE_STALLED]


def test_what_waits_for_a_stalled_engine_is_placed_elsewhere() -> None:
    scheduler = scheduler_of("round-robin", 2, window=1)
    for index in range(6):
        scheduler.submit(request(f"r{index}", 1024), 0.0)
    scheduler.instance_stalled("i00", 0.1, stalled=True)
    stalled, other = scheduler.load("i00"), scheduler.load("i01")
    assert stalled is not None
    assert other is not None
    assert (stalled.waiting, other.waiting) == (0, 4)
    assert {move.trigger for move in scheduler.take_records(1.0).reroutes} == {"engine-stalled"}


def test_a_request_without_a_byte_goes_elsewhere_and_its_session_with_it() -> None:
    scheduler = scheduler_of("sticky")
    [sent] = dispatches(scheduler.submit(request("r0", 1600, session="s"), 0.0))
    scheduler.instance_stalled(sent.instance, 11.0, stalled=True)
    scheduler.instance_failed(sent.instance, 11.0, Fault.STALLED, "r0")
    again = scheduler.retry("r0", 11.0, sent.instance)
    assert isinstance(again, Dispatch)
    assert again.instance != sent.instance
    [move] = scheduler.take_records(12.0).migrations
    assert (move.source, move.target, move.trigger) == (sent.instance, again.instance, BindingReason.ENGINE_STALLED)


def test_where_every_engine_is_stalled_none_keeps_a_request_away() -> None:
    scheduler = scheduler_of("fairlead")
    for instance in ("i00", "i01", "i02"):
        scheduler.instance_stalled(instance, 0.0, stalled=True)
    assert dispatches(scheduler.submit(request("r0", 1600), 0.0))
    scheduler.instance_stalled("i01", 1.0, stalled=False)
    sent = [one.instance for number in range(5) for one in dispatches(scheduler.submit(request(f"n{number}", 1600), 1.0))]
    assert sent == ["i01"] * 5


def test_an_engine_in_the_place_of_a_stalled_one_is_not_stalled() -> None:
    scheduler = scheduler_of("fairlead", 1)
    scheduler.instance_stalled("i00", 0.0, stalled=True)
    before = scheduler.table
    [entry] = before.instances
    scheduler.update_table(replace(before, version=2, instances=(replace(entry, address="10.9.9.9:8000"),)), 1.0)
    assert scheduler.broken(1.0) == ()


def test_decode_instances_that_are_stalled_decode_nothing_new() -> None:
    instances = tuple(replace(one, role=Role.PREFILL if number < 1 else Role.DECODE) for number, one in enumerate(entries(3)))
    scheduler = PoolScheduler(table(instances, policy="fairlead", window=0), "router-0", 0, sample_rate=0.0)
    scheduler.instance_stalled("i01", 0.0, stalled=True)
    sent = [one.decode for number in range(10) for one in dispatches(scheduler.submit(request(f"r{number}", 1600), 0.0))]
    assert set(sent) == {"i02"}


@given(
    st.lists(st.tuples(st.sampled_from(("i00", "i01", "i02")), st.booleans()), max_size=12),
    st.sampled_from(sorted(set(BUILT_IN.names) - {"static-pd"})),
)
def test_no_policy_sends_anything_to_a_stalled_engine_while_another_serves(changes: list[tuple[str, bool]], policy: str) -> None:
    scheduler, stalled = scheduler_of(policy), set[str]()
    for number, (instance, is_stalled) in enumerate(changes):
        scheduler.instance_stalled(instance, float(number), stalled=is_stalled)
        (stalled.add if is_stalled else stalled.discard)(instance)
        [sent] = dispatches(scheduler.submit(request(f"r{number}", 800, session=f"s{number % 3}", at=float(number)), float(number)))
        assert sent.instance not in stalled or len(stalled) == 3
        scheduler.first_token(sent.request.id, number + 0.1)
        scheduler.complete(sent.request.id, number + 0.2, 5, None)


def test_the_work_under_way_names_the_longest_prefill_and_the_longest_that_took_its_time() -> None:
    scheduler = scheduler_of("round-robin", 1)
    scheduler.submit(request("long", 62_500, blocks=(1,)), 0.0)
    scheduler.submit(request("short", 6250, blocks=(2,)), 0.0)
    given = scheduler.take_given("i00")
    assert (given.requests, given.prefilled_seconds) == (2, 0.0)
    assert given.longest_prefill_seconds == pytest.approx(10.0, rel=0.1)
    scheduler.first_token("short", 0.1)
    assert scheduler.take_given("i00").prefilled_seconds == 0.0, "so soon it was in a cache"
    scheduler.first_token("long", 9.0)
    assert scheduler.take_given("i00").prefilled_seconds == pytest.approx(10.0, rel=0.1)
    assert scheduler.take_given("i00").prefilled_seconds == 0.0
