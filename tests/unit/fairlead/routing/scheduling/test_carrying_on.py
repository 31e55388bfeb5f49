"""Answers that continue at another instance after they have begun: where, with which counts, and with which records."""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import HANDED_OVER, KeptFor
from fairlead.reports.moves import MoveOutcome
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead_testing.builders.routing import dispatches, entries, request, table
from fairlead_testing.worlds.router_wire import Wire


def begun(scheduler: PoolScheduler, name: str = "r0", session: str | None = None) -> Dispatch:
    """Return a request of 1600 tokens whose first token came after 0.2 s, and 30 of whose tokens came until 1 s."""
    [sent] = dispatches(scheduler.submit(request(name, 1600, blocks=(1, 2), session=session), 0.0))
    scheduler.first_token(name, 0.2)
    scheduler.generated(name, 1.0, 30)
    return sent


def scheduler_of(policy: str = "sticky", instances: int = 3) -> PoolScheduler:
    return PoolScheduler(table(entries(instances), policy=policy), "router-0", 0, sample_rate=1.0)


def test_the_rest_is_computed_elsewhere_and_its_price_is_recorded() -> None:
    scheduler = scheduler_of()
    sent = begun(scheduler, session="s")
    again = scheduler.carry_on("r0", 1.0, sent.instance, carried_tokens=30, why="lost")
    assert again is not None
    assert again.instance != sent.instance
    assert again.miss_tokens == 1630
    left, target = scheduler.load(sent.instance), scheduler.load(again.instance)
    assert left is not None
    assert target is not None
    assert (left.decoding, left.decode_tokens) == (0, 0)
    assert (target.prefilling, target.pending_prefill_tokens) == (1, 1630)
    assert not scheduler.discrepancies()
    scheduler.first_token("r0", 1.4)
    assert (target.prefilling, target.decoding) == (0, 1)
    scheduler.complete("r0", 3.0, 100, None)
    records = scheduler.take_records(4.0, final=True)
    [decision] = records.decisions
    [one] = decision.continuations
    assert (one.source, one.target, one.why) == (sent.instance, again.instance, "lost")
    assert (one.carried_tokens, one.computed_tokens, one.after_seconds) == (30, 1630, 1.0)
    assert one.gap_seconds == pytest.approx(0.4)
    assert decision.kept is KeptFor.MOVED
    assert decision.ttft_seconds == pytest.approx(0.2), "the first token's, and at the instance that gave it"
    assert decision.served_by == sent.instance
    [move] = records.migrations
    assert (move.source, move.target, move.outcome) == (sent.instance, again.instance, MoveOutcome.COMPLETED)
    assert move.actual_ttft_seconds == pytest.approx(0.4)
    assert not scheduler.discrepancies()


def test_an_answer_may_go_on_more_than_once_and_not_where_it_failed() -> None:
    scheduler = scheduler_of("least-request")
    sent = begun(scheduler)
    second = scheduler.carry_on("r0", 1.0, sent.instance, carried_tokens=30, why="lost")
    assert second is not None
    third = scheduler.carry_on("r0", 1.1, second.instance, carried_tokens=30, why="refused")
    assert third is not None
    assert len({sent.instance, second.instance, third.instance}) == 3
    scheduler.first_token("r0", 2.0)
    scheduler.complete("r0", 3.0, 100, None)
    [decision] = scheduler.take_records(4.0, final=True).decisions
    gaps = [one.gap_seconds for one in decision.continuations]
    assert gaps == [None, pytest.approx(1.0)], "the pause lasts from the first loss on"


def test_instances_that_refuse_the_connection_are_no_tries() -> None:
    scheduler = scheduler_of("least-request", 8)
    left = begun(scheduler).instance
    for number in range(7):
        again = scheduler.carry_on("r0", 1.0 + number / 10, left, carried_tokens=30, why="refused" if number else "lost")
        assert again is not None
        left = again.instance
    assert scheduler.carry_on("r0", 2.0, left, carried_tokens=30, why="refused") is None
    decision = scheduler.fail("r0", 2.0)
    assert not decision
    assert not scheduler.discrepancies()


def test_the_rest_is_not_decoded_where_the_answer_broke_off_though_its_next_prefill_was_not_reached() -> None:
    roles = [Role.PREFILL] * 3 + [Role.DECODE] * 3
    parts = [replace(one, role=role) for one, role in zip(entries(6), roles, strict=True)]
    scheduler = PoolScheduler(table(parts, policy="least-request"), "router-0", 0, sample_rate=1.0)
    sent = begun(scheduler)
    assert sent.decode is not None
    again = scheduler.carry_on("r0", 1.0, sent.decode, carried_tokens=30, why="lost")
    assert again is not None
    third = scheduler.carry_on("r0", 1.1, again.instance, carried_tokens=30, why="refused")
    assert third is not None
    assert sent.decode not in (again.decode, third.decode)
    assert not scheduler.discrepancies()


def test_whether_an_answer_can_go_on_is_known_before_it_has_to() -> None:
    scheduler = scheduler_of("least-request", 2)
    sent = begun(scheduler)
    assert scheduler.can_carry_on("r0", 1.0, sent.instance)
    assert not scheduler.can_carry_on("nobody", 1.0, sent.instance)
    alone = scheduler_of("least-request", 1)
    assert not alone.can_carry_on("r0", 1.0, begun(alone).instance)
    assert not alone.discrepancies()
    assert scheduler.carry_on("r0", 1.0, sent.instance, carried_tokens=30, why=HANDED_OVER) is not None, "asking changed nothing"


def test_without_another_instance_nothing_changes() -> None:
    scheduler = scheduler_of("least-request", 1)
    sent = begun(scheduler)
    assert scheduler.carry_on("r0", 1.0, sent.instance, carried_tokens=30, why="lost") is None
    load = scheduler.load(sent.instance)
    assert load is not None
    assert load.decoding == 1
    scheduler.fail("r0", 1.0)
    assert not scheduler.discrepancies()
    assert scheduler.carry_on("r0", 1.0, sent.instance, carried_tokens=30, why="lost") is None, "it has ended"


def test_what_a_draining_instance_hands_over_is_no_failure_of_it() -> None:
    scheduler = scheduler_of()
    sent = begun(scheduler, session="s")
    leaving = [replace(one, state=InstanceState.DRAINING) if one.id == sent.instance else one for one in entries(3)]
    scheduler.update_table(table(leaving, policy="sticky", version=2), 0.9)
    again = scheduler.carry_on("r0", 1.0, sent.instance, carried_tokens=30, why=HANDED_OVER)
    assert again is not None
    scheduler.first_token("r0", 1.5)
    scheduler.complete("r0", 2.0, 60, None)
    records = scheduler.take_records(3.0, final=True)
    assert sum(sample.failed for sample in records.loads) == 0
    assert [move.trigger for move in records.migrations] == [BindingReason.DRAIN]


def test_a_decider_follows_an_answer_that_its_front_carries_on() -> None:
    used = table(entries(3), policy="least-request")
    decider, front = (SharedScheduler(used, f"router-{number}", number, sample_rate=1.0) for number in range(2))
    wire = Wire(front, decider, 0.0)
    front.submit(request("r0", 1600, blocks=(1, 2)), 0.0)
    [sent] = dispatches(wire.carry(0.0))
    front.first_token("r0", 0.2)
    again = front.carry_on("r0", 1.0, sent.instance, carried_tokens=30, why="stalled", unlike="seed")
    assert again is not None
    wire.carry(1.0)
    for scheduler in (decider, front):
        load = scheduler.load(again.instance)
        assert load is not None
        assert load.prefilling == 1
    front.first_token("r0", 1.3)
    front.complete("r0", 2.0, 90, None)
    wire.carry(2.0)
    [decision] = decider.take_records(3.0, final=True).decisions
    [one] = decision.continuations
    assert (one.source, one.target, one.why, one.unlike) == (sent.instance, again.instance, "stalled", "seed")
    assert one.gap_seconds is not None
    assert not decider.discrepancies()
    assert not front.discrepancies()
