"""Requests for a pool without an instance: held within bounds, in order, and each answered exactly once."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.loads import HeldDemand
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import EarlyRejectionFacts, HoldingFacts, Outlook, RoutingTable
from fairlead_testing.builders.routing import dispatches, entries, refusals, request, table
from fairlead_testing.examples import examples

COMING = replace(table(0), outlook=Outlook.COMING, holding=HoldingFacts(hold_for_seconds=120.0, held_requests=20))


def scheduler_of(of: RoutingTable, *, held_bytes: int = 2**20) -> PoolScheduler:
    return PoolScheduler(of, "router-0", 0, sample_rate=1.0, settings=SchedulerSettings(held_bytes=held_bytes, held_limit=5))


def with_instances(of: RoutingTable, count: int) -> RoutingTable:
    return replace(of, version=of.version + 1, instances=entries(count))


def test_twenty_requests_at_zero_are_all_sent_in_order_when_an_instance_starts_after_a_minute_and_a_half() -> None:
    scheduler = scheduler_of(COMING)
    for number in range(20):
        assert scheduler.submit(request(f"r{number:02d}", at=0.1 * number), 0.1 * number) == ()
    assert scheduler.tick(89.0) == ()
    assert scheduler.held() == HeldDemand(requests=20, prompt_tokens=20 * 1024)
    sent = [one.request.id for one in dispatches(scheduler.update_table(with_instances(COMING, 1), 90.0))]
    now = 90.0
    while len(sent) < 20:
        now += 0.2
        sent += [one.request.id for one in dispatches(scheduler.first_token(sent[-1], now))]
    assert sent == [f"r{number:02d}" for number in range(20)]
    assert scheduler.held() == HeldDemand()


def test_a_hold_counts_as_waiting_in_the_ttft_and_in_the_decision_but_not_against_the_queue_timeout() -> None:
    scheduler = scheduler_of(replace(COMING, routing=replace(COMING.routing, parameters={"queue_timeout_seconds": 5.0})))
    for name in ("r1", "r2"):
        scheduler.submit(request(name, at=10.0), 10.0)
    (first,) = dispatches(scheduler.update_table(with_instances(scheduler.table, 1), 70.0))
    assert scheduler.tick(74.0) == ()
    scheduler.first_token(first.request.id, 71.0)
    scheduler.complete("r1", 72.0, 5, None)
    decision = next(one for one in scheduler.take_records(75.0, final=True).decisions if one.request == "r1")
    assert (decision.queued_seconds, decision.held_seconds, decision.ttft_seconds) == (60.0, 60.0, 61.0)


def test_what_waits_in_a_queue_after_the_hold_has_its_own_limit() -> None:
    scheduler = scheduler_of(replace(COMING, routing=replace(COMING.routing, parameters={"queue_timeout_seconds": 5.0})))
    for name in ("r1", "r2"):
        scheduler.submit(request(name), 0.0)
    scheduler.update_table(with_instances(scheduler.table, 1), 60.0)
    (refusal,) = refusals(scheduler.tick(65.0))
    assert (refusal.request.id, refusal.reason) == ("r2", RejectionReason.QUEUE_TIMEOUT)
    assert refusal.message.startswith("waited 5.0 s")


def test_a_request_that_no_instance_comes_for_is_refused_after_the_hold() -> None:
    scheduler = scheduler_of(COMING)
    scheduler.submit(request("r1"), 0.0)
    assert scheduler.tick(119.9) == ()
    (refusal,) = refusals(scheduler.tick(120.0))
    assert (refusal.status, refusal.reason) == (503, RejectionReason.NO_INSTANCES)
    assert "waited 120.0 s" in refusal.message


def test_a_held_request_given_up_is_refused_as_nobody_came_in_time() -> None:
    scheduler = scheduler_of(COMING)
    scheduler.submit(request("r1"), 0.0)
    (refusal,) = refusals(scheduler.give_up("r1", 30.0))
    assert (refusal.status, refusal.reason) == (503, RejectionReason.NO_INSTANCES)
    assert "waited 30.0 s" in refusal.message
    assert scheduler.held() == HeldDemand()


def test_only_as_many_as_the_spec_says_are_held_and_a_client_that_leaves_makes_room() -> None:
    scheduler = scheduler_of(COMING)
    outcomes = [outcome for number in range(21) for outcome in scheduler.submit(request(f"r{number}"), 0.0)]
    (refusal,) = refusals(outcomes)
    assert (refusal.request.id, refusal.status, refusal.reason) == ("r20", 503, RejectionReason.NO_INSTANCES)
    scheduler.cancel("r3", 1.0)
    assert scheduler.submit(request("later"), 1.0) == ()


def test_held_bodies_are_bounded_in_bytes() -> None:
    scheduler = scheduler_of(COMING, held_bytes=1000)
    assert scheduler.submit(replace(request("r1"), body_bytes=900), 0.0) == ()
    assert len(refusals(scheduler.submit(replace(request("r2"), body_bytes=101), 0.0))) == 1
    assert scheduler.submit(replace(request("r3"), body_bytes=100), 0.0) == ()


@pytest.mark.parametrize(("opens_at", "retry_after"), [(None, 60.0), (7_200.0, 7_200.0), (0.5, 1.0)])
def test_a_closed_pool_refuses_at_once_and_says_when_it_opens(opens_at: float | None, retry_after: float) -> None:
    scheduler = scheduler_of(replace(table(0), outlook=Outlook.CLOSED, opens_at=opens_at))
    (refusal,) = refusals(scheduler.submit(request("r1"), 0.0))
    assert (refusal.status, refusal.reason, refusal.retry_after_seconds) == (503, RejectionReason.SCALED_TO_ZERO, retry_after)
    assert ("a schedule starts instances" in refusal.message) == (opens_at is not None)


def test_held_requests_are_refused_when_the_pool_is_closed_meanwhile() -> None:
    scheduler = scheduler_of(COMING)
    scheduler.submit(request("r1"), 0.0)
    (refusal,) = refusals(scheduler.update_table(replace(COMING, version=2, outlook=Outlook.CLOSED), 3.0))
    assert refusal.reason is RejectionReason.SCALED_TO_ZERO


def test_a_pool_that_serves_takes_requests_whatever_the_outlook_without_instances() -> None:
    scheduler = scheduler_of(replace(table(1), outlook=Outlook.CLOSED))
    assert len(dispatches(scheduler.submit(request("r1"), 0.0))) == 1


def test_early_rejection_does_not_refuse_a_request_for_the_time_in_which_it_was_held() -> None:
    parameters = {"queue_discipline": "deadline"}
    scheduler = scheduler_of(
        replace(COMING, early_rejection=EarlyRejectionFacts(mode="Load"), routing=replace(COMING.routing, parameters=parameters))
    )
    for number in range(5):
        scheduler.submit(request(f"r{number}"), 0.0)
    sent = [one.request.id for one in dispatches(scheduler.update_table(with_instances(scheduler.table, 1), 60.0))]
    now = 60.0
    while len(sent) < 5 and now < 70.0:
        now += 0.2
        outcomes = [*scheduler.first_token(sent[-1], now), *scheduler.tick(now)]
        assert refusals(outcomes) == []
        sent += [one.request.id for one in dispatches(outcomes)]
    assert len(sent) == 5


ARRIVE, LEAVE, PASS, OPEN, CLOSE, LOSE = "arrive", "leave", "time", "open", "close", "lose"


@examples(200)
@given(st.lists(st.tuples(st.sampled_from([ARRIVE, ARRIVE, ARRIVE, LEAVE, PASS, OPEN, CLOSE, LOSE]), st.integers(0, 40)), max_size=60))
def test_the_hold_is_bounded_in_order_and_answers_each_request_exactly_once(steps: list[tuple[str, int]]) -> None:
    now, version, arrived = 0.0, 1, 0
    scheduler = scheduler_of(COMING, held_bytes=3000)
    waiting: list[str] = []
    answered: set[str] = set()
    window = replace(COMING, routing=replace(COMING.routing, prefills_in_flight=0))

    def take(outcomes: tuple[Dispatch | Refusal, ...]) -> None:
        for instance in ("i00", "i01"):
            sent = [one.request.id for one in dispatches(outcomes) if one.instance == instance]
            assert sent == [name for name in waiting if name in sent], "each instance gets them in the order of their arrival"
        for outcome in outcomes:
            assert outcome.request.id not in answered, "nobody is answered twice"
            answered.add(outcome.request.id)
            waiting.remove(outcome.request.id)

    for what, number in steps:
        if what == ARRIVE:
            arrived += 1
            waiting.append(f"r{arrived}")
            take(scheduler.submit(replace(request(f"r{arrived}", at=now), body_bytes=50 * number), now))
        elif what == LEAVE and waiting:
            gone = waiting.pop(number % len(waiting))
            answered.add(gone)
            take(scheduler.cancel(gone, now))
        elif what == PASS:
            now += 5.0 * number
            take(scheduler.tick(now))
        elif what in (OPEN, CLOSE, LOSE):
            version += 1
            outlook = {OPEN: Outlook.COMING, CLOSE: Outlook.CLOSED, LOSE: Outlook.UNKNOWN}[what]
            instances = entries(1 + number % 2) if what == OPEN and number % 3 else ()
            take(scheduler.update_table(replace(window, version=version, outlook=outlook, instances=instances), now))
        demand = scheduler.held()
        assert demand.requests == len(waiting) <= 20
        assert demand.prompt_tokens == 1024 * len(waiting)
    take(scheduler.shut_down(now))
    assert waiting == []
    assert scheduler.held() == HeldDemand()
