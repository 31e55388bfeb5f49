"""The scheduler's contract with the router: one request at a time, through all its states."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.decisions import Decision
from fairlead.routing.contracts.policies import PoolView, QueuedMove
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal, Scheduler
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import (
    EarlyRejectionFacts,
    EngineFacts,
    InstanceEntry,
    Outlook,
    PoolKey,
    RoutingFacts,
    RoutingTable,
    SessionFacts,
    SloFacts,
)
from fairlead_testing.builders.routing import having_seen


def make_table(instances: int = 3, *, policy: str = "round-robin", version: int = 1, window: int = 1) -> RoutingTable:
    entries = tuple(
        InstanceEntry(id=f"chat-b{index}", address=f"127.40.0.{index + 1}:8000", state=InstanceState.SERVING) for index in range(instances)
    )
    return RoutingTable(
        pool=PoolKey(namespace="default", name="chat"),
        uid="u1",
        version=version,
        generation=1,
        model="m",
        engine=EngineFacts(type="simulated", port=8000),
        routing=RoutingFacts(policy=policy, prefills_in_flight=window),
        session=SessionFacts(),
        slo=SloFacts(),
        early_rejection=EarlyRejectionFacts(),
        instances=entries,
    )


def make_request(name: str, tokens: int = 1024, at: float = 0.0, session: str | None = None) -> RoutingRequest:
    return RoutingRequest(id=name, arrived_at=at, prompt_tokens=tokens, blocks=(1, 2), first_bytes_hash=7, session=session)


def make_scheduler(table: RoutingTable) -> PoolScheduler:
    return PoolScheduler(table, "router-0", 0, sample_rate=1.0)


def one_dispatch(outcomes: tuple[Dispatch | Refusal, ...]) -> Dispatch:
    assert len(outcomes) == 1
    assert isinstance(outcomes[0], Dispatch)
    return outcomes[0]


def test_the_scheduler_fulfils_the_protocol() -> None:
    scheduler: Scheduler = make_scheduler(make_table())
    assert scheduler.in_flight()[0].in_flight == 0


def test_a_request_goes_out_counts_and_leaves_nothing_behind() -> None:
    scheduler = make_scheduler(make_table())
    sent = one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    assert (sent.instance, sent.hit_tokens, sent.miss_tokens) == ("chat-b0", 0, 1024)
    load = scheduler.load("chat-b0")
    assert load is not None
    assert (load.pending_prefill_tokens, load.prefilling) == (1024, 1)
    scheduler.first_token("r1", 0.2)
    assert (load.pending_prefill_tokens, load.decoding, load.decode_tokens) == (0, 1, 1024)
    scheduler.complete("r1", 1.2, 11, 512)
    assert (load.decoding, load.decode_tokens, scheduler.waiting()) == (0, 0, 0)
    records = scheduler.take_records(3.0)
    sample = next(sample for sample in records.loads if sample.instance == "chat-b0" and sample.completed)
    assert (sample.hit_tokens, sample.prompt_tokens, sample.tpot_seconds) == (512, 1024, (0.1,))
    assert sum(sample.prefilled_tokens or 0 for sample in records.loads) == 1024
    assert records.decisions[0].ttft_seconds == 0.2
    assert scheduler.complete("r1", 2.0, 1, None) == ()


def test_a_second_prefill_waits_until_the_first_token_of_the_first() -> None:
    scheduler = make_scheduler(make_table(1))
    one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    assert scheduler.submit(make_request("r2"), 0.0) == ()
    sent = one_dispatch(scheduler.first_token("r1", 0.2))
    assert (sent.request.id, sent.hit_tokens, sent.miss_tokens) == ("r2", 1023, 1)


def test_without_a_window_nothing_waits_in_the_router() -> None:
    scheduler = make_scheduler(make_table(1, window=0))
    for name in ("r1", "r2", "r3"):
        assert one_dispatch(scheduler.submit(make_request(name), 0.0)).request.id == name


def unstreamed(name: str, tokens: int, at: float) -> RoutingRequest:
    return replace(make_request(name, tokens), streamed=False, arrived_at=at)


def test_an_unstreamed_prefill_frees_the_window_after_its_predicted_time() -> None:
    scheduler = make_scheduler(make_table(1))
    one_dispatch(scheduler.submit(replace(make_request("r1", 6250), streamed=False), 0.0))
    assert scheduler.submit(make_request("r2"), 0.0) == ()
    assert scheduler.tick(0.99) == ()
    assert one_dispatch(scheduler.tick(1.0)).request.id == "r2"
    assert scheduler.take_records(2.0).decisions == ()


def test_an_unstreamed_prefill_that_is_tried_again_takes_its_predicted_time_from_then_on() -> None:
    scheduler = make_scheduler(make_table(2))
    first = one_dispatch(scheduler.submit(replace(make_request("r1", 6250), streamed=False), 0.0))
    second = scheduler.retry("r1", 0.5, first.instance)
    assert isinstance(second, Dispatch)
    load = scheduler.load(second.instance)
    assert load is not None
    scheduler.tick(1.0)
    assert (load.prefilling, load.decoding) == (1, 0)
    scheduler.tick(1.5)
    assert (load.prefilling, load.decoding) == (0, 1)


def test_an_unstreamed_prefill_is_not_over_while_its_engine_says_that_it_has_not_begun() -> None:
    scheduler = having_seen(make_scheduler(make_table(1)))
    one_dispatch(scheduler.submit(unstreamed("r1", 6250, 100.0), 100.0))
    assert scheduler.submit(replace(make_request("r2"), arrived_at=100.0), 100.0) == ()
    scheduler.observe_engine("chat-b0", 0.1, 101.0, 1)
    assert scheduler.tick(101.05) == ()
    scheduler.observe_engine("chat-b0", 0.1, 101.9, 1)
    assert scheduler.tick(102.0) == ()
    scheduler.observe_engine("chat-b0", 0.1, 102.1, 0)
    assert one_dispatch(scheduler.tick(102.2)).request.id == "r2"


@pytest.mark.parametrize("waiting", [1, 5, 10**12])
def test_no_engine_keeps_an_unstreamed_prefill_forever_by_what_it_says(waiting: int) -> None:
    scheduler = having_seen(make_scheduler(make_table(1)))
    one_dispatch(scheduler.submit(unstreamed("r1", 625, 100.0), 100.0))
    scheduler.submit(replace(make_request("r2"), arrived_at=100.0), 100.0)
    sent: list[str] = []
    for tenths in range(1, 200):
        now = 100.0 + tenths / 10
        scheduler.observe_engine("chat-b0", 0.1, now, waiting)
        sent += [outcome.request.id for outcome in scheduler.tick(now)]
    assert sent == ["r2"]


def test_before_a_speed_is_measured_an_engine_that_has_begun_gets_the_next_request() -> None:
    """By the declared speed, the first prompt would take a hundred seconds."""
    scheduler = make_scheduler(make_table(1))
    scheduler.observe_engine("chat-b0", 0.0, 99.0, 0)
    one_dispatch(scheduler.submit(unstreamed("r1", 625_000, 100.0), 100.0))
    assert scheduler.submit(replace(make_request("r2"), arrived_at=100.0), 100.0) == ()
    assert scheduler.tick(100.9) == ()
    scheduler.observe_engine("chat-b0", 0.1, 101.0, 0)
    assert one_dispatch(scheduler.tick(101.1)).request.id == "r2"


def test_an_engine_that_says_nothing_has_begun_after_the_predicted_time() -> None:
    scheduler = make_scheduler(make_table(1))
    scheduler.observe_engine("chat-b0", 0.0, 99.0, None)
    one_dispatch(scheduler.submit(unstreamed("r1", 6250, 100.0), 100.0))
    assert scheduler.submit(replace(make_request("r2"), arrived_at=100.0), 100.0) == ()
    scheduler.observe_engine("chat-b0", None, 100.5, None)
    assert scheduler.tick(100.9) == ()
    assert one_dispatch(scheduler.tick(101.1)).request.id == "r2"


def test_an_id_that_comes_again_is_another_prefill() -> None:
    scheduler = make_scheduler(make_table(1))
    again = replace(make_request("r1", 6250), streamed=False)
    one_dispatch(scheduler.submit(again, 0.0))
    scheduler.cancel("r1", 0.5)
    one_dispatch(scheduler.submit(again, 0.5))
    load = scheduler.load("chat-b0")
    assert load is not None
    scheduler.tick(1.0)
    assert (load.prefilling, load.decoding) == (1, 0)


def test_answers_teach_how_long_a_token_takes_where_their_first_one_was_seen() -> None:
    scheduler = make_scheduler(make_table(1, policy="fairlead", window=0))
    scheduler.submit(make_request("seen"), 0.0)
    scheduler.first_token("seen", 0.5)
    scheduler.complete("seen", 2.5, 21, None)
    assert (scheduler.decode_estimate().samples, scheduler.decode_estimate("chat-b0").seconds_per_token) == (1, 0.1)
    scheduler.submit(replace(make_request("unseen"), streamed=False), 3.0)
    scheduler.tick(4.0)
    scheduler.complete("unseen", 5.0, 21, None)
    scheduler.submit(make_request("at once"), 6.0)
    scheduler.first_token("at once", 7.0)
    scheduler.complete("at once", 7.0, 21, None)
    assert scheduler.decode_estimate().samples == 1
    assert scheduler.discrepancies() == ()


def test_a_retry_goes_to_the_next_fallback_and_a_third_failure_is_refused() -> None:
    scheduler = make_scheduler(make_table(3))
    first = one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    second = scheduler.retry("r1", 0.1, first.instance)
    assert isinstance(second, Dispatch)
    assert second.instance == first.fallbacks[0]
    third = scheduler.retry("r1", 0.2, second.instance)
    assert isinstance(third, Dispatch)
    refusal = scheduler.retry("r1", 0.3, third.instance)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.status) == (RejectionReason.UPSTREAM_FAILED, 502)
    assert all(load.prefilling == load.pending_prefill_tokens == 0 for load in scheduler.loads())


def test_instances_that_refuse_the_connection_are_no_attempts_and_are_tried_once() -> None:
    scheduler = make_scheduler(make_table(6))
    sent: Dispatch | Refusal = one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    tried: list[str] = []
    while isinstance(sent, Dispatch):
        tried.append(sent.instance)
        sent = scheduler.retry("r1", 0.1, sent.instance, reached=False)
    assert sent.reason is RejectionReason.UPSTREAM_FAILED
    assert sorted(tried) == sorted(load.entry.id for load in scheduler.loads())


def test_a_retry_of_an_unknown_request_is_a_refusal_that_counts_nowhere() -> None:
    scheduler = make_scheduler(make_table(1))
    refusal = scheduler.retry("ghost", 0.0, "chat-b0")
    assert isinstance(refusal, Refusal)
    assert scheduler.take_records(9.0).rejections == ()


def test_requests_are_held_briefly_when_nobody_serves_and_then_refused_with_503() -> None:
    scheduler = make_scheduler(make_table(0))
    assert scheduler.submit(make_request("r1"), 0.0) == ()
    assert scheduler.tick(4.9) == ()
    (refusal,) = scheduler.tick(5.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.reason, refusal.retry_after_seconds >= 1) == (503, RejectionReason.NO_INSTANCES, True)


def test_a_held_request_is_sent_when_an_instance_appears() -> None:
    scheduler = make_scheduler(make_table(0))
    scheduler.submit(make_request("r1"), 0.0)
    assert one_dispatch(scheduler.update_table(make_table(1, version=2), 1.0)).instance == "chat-b0"


def test_queued_requests_of_a_draining_instance_move_and_dispatched_ones_stay() -> None:
    table = make_table(2)
    scheduler = make_scheduler(table)
    for index in range(4):
        scheduler.submit(make_request(f"r{index}"), 0.0)
    draining = replace(table.instances[0], state=InstanceState.DRAINING, anchors=0)
    assert scheduler.update_table(replace(table, version=2, instances=(draining, table.instances[1])), 1.0) == ()
    source, target = scheduler.load("chat-b0"), scheduler.load("chat-b1")
    assert source is not None
    assert target is not None
    assert (source.prefilling, source.waiting, target.prefilling, target.waiting) == (1, 0, 1, 2)
    records = scheduler.take_records(1.0)
    (move,) = records.reroutes
    assert (move.source, move.target, move.trigger, records.migrations) == ("chat-b0", "chat-b1", "drain", ())


def test_an_older_table_is_ignored() -> None:
    scheduler = make_scheduler(make_table(2, version=5))
    assert scheduler.update_table(make_table(0, version=4), 1.0) == ()
    assert scheduler.table.version == 5


def test_an_instance_removed_from_the_table_is_listed_until_its_last_request_ends() -> None:
    table = make_table(1)
    scheduler = make_scheduler(table)
    one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    scheduler.update_table(replace(table, version=2, instances=()), 0.1)
    scheduler.tick(0.2)
    assert scheduler.in_flight()[0].in_flight == 1
    scheduler.first_token("r1", 0.3)
    scheduler.complete("r1", 0.4, 1, None)
    scheduler.tick(0.5)
    assert scheduler.in_flight() == ()


def test_shutting_down_refuses_what_waits_and_lets_the_rest_finish() -> None:
    scheduler = make_scheduler(make_table(1))
    one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    scheduler.submit(make_request("r2"), 0.0)
    (refusal,) = scheduler.shut_down(0.1)
    assert isinstance(refusal, Refusal)
    assert (refusal.request.id, refusal.reason, refusal.status) == ("r2", RejectionReason.SHUTTING_DOWN, 503)
    assert scheduler.in_flight()[0].in_flight == 1


def test_a_request_given_up_is_refused_while_it_waits_and_goes_on_once_it_was_sent() -> None:
    scheduler = make_scheduler(make_table(1))
    one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    scheduler.submit(make_request("r2"), 0.0)
    assert scheduler.give_up("r1", 3.0) == ()
    (refusal,) = scheduler.give_up("r2", 3.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.request.id, refusal.reason, refusal.status) == ("r2", RejectionReason.QUEUE_TIMEOUT, 429)
    assert refusal.message.startswith("waited 3.0 s")
    assert scheduler.give_up("r2", 3.1) == ()
    assert len(scheduler.take_records(4.0, final=True).rejections) == 1


def failing_on(bad: str, scheduler: PoolScheduler) -> None:
    """Make the present policy raise for requests whose id begins with this text, as a user's own policy may."""
    policy = scheduler._state.policy

    def choose(request: RoutingRequest, view: PoolView, now: float) -> Decision:
        if request.id.startswith(bad):
            raise ZeroDivisionError("in a policy")
        return policy.choose(request, view, now)

    scheduler._state.policy = replace(policy, choose=choose)


def test_a_request_that_the_policy_fails_on_is_refused_recorded_and_told_of_once() -> None:
    scheduler = make_scheduler(make_table())
    failing_on("bad", scheduler)
    (refusal,) = scheduler.submit(make_request("bad"), 0.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.status) == (RejectionReason.POLICY_FAILED, 500)
    assert not scheduler._state.requests
    one_dispatch(scheduler.submit(make_request("good"), 0.1))
    with pytest.raises(ZeroDivisionError) as raised:
        scheduler.tick(0.2)
    assert raised.value.__notes__ == ["for request bad"]
    assert scheduler.tick(0.3) == ()
    (recorded,) = scheduler.take_records(1.5, final=True).rejections
    assert (recorded.reason, recorded.count, recorded.sample_request) == (RejectionReason.POLICY_FAILED, 1, "bad")


def test_a_held_request_that_the_policy_fails_on_is_refused_and_holds_up_no_other() -> None:
    table = replace(make_table(0), outlook=Outlook.COMING)
    scheduler = make_scheduler(table)
    for name in ("bad", "good"):
        assert scheduler.submit(make_request(name), 0.0) == ()
    failing_on("bad", scheduler)
    outcomes = scheduler.update_table(replace(make_table(1, version=2), outlook=Outlook.COMING), 1.0)
    told = {outcome.request.id: outcome for outcome in outcomes}
    assert isinstance(told["good"], Dispatch)
    assert isinstance(told["bad"], Refusal)
    assert (told["bad"].status, "failed on this request" in told["bad"].message) == (500, True)
    with pytest.raises(ZeroDivisionError):
        scheduler.tick(1.1)
    assert scheduler.tick(1.2) == ()


def test_a_first_token_is_counted_though_the_policy_fails_to_learn_from_it() -> None:
    scheduler = make_scheduler(make_table(1))
    policy = scheduler._state.policy

    def learn(instance: str, now: float) -> None:
        raise ZeroDivisionError("in a policy")

    def choose(request: RoutingRequest, view: PoolView, now: float) -> Decision:
        return replace(policy.choose(request, view, now), learn=learn)

    scheduler._state.policy = replace(policy, choose=choose)
    one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    assert scheduler.submit(make_request("r2"), 0.0) == ()
    assert one_dispatch(scheduler.first_token("r1", 0.5)).request.id == "r2"
    with pytest.raises(ZeroDivisionError) as raised:
        scheduler.tick(0.6)
    assert raised.value.__notes__ == ["for request r1"]
    scheduler.complete("r1", 0.7, 2, None)
    (decision,) = scheduler.take_records(1.0, final=True).decisions
    assert decision.ttft_seconds == 0.5


def test_a_policy_that_fails_to_rebalance_at_every_look_stops_no_clock() -> None:
    class Failing:
        def rebalance(self, *_: object) -> Sequence[QueuedMove]:
            raise ZeroDivisionError("in a policy")

    scheduler = make_scheduler(make_table(1))
    scheduler._state.policy = replace(scheduler._state.policy, rebalances=Failing(), sweeps=True)
    one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    assert scheduler.submit(make_request("r2"), 0.0) == ()
    limit = scheduler._state.parameters.queue_timeout_seconds
    assert scheduler.tick(limit - 1.0) == ()
    with pytest.raises(ZeroDivisionError):
        scheduler.tick(limit - 0.5)
    scheduler._state.failures.keep(ZeroDivisionError("at a request in between"))
    (refusal,) = scheduler.tick(limit)
    assert isinstance(refusal, Refusal)


def test_time_lost_at_an_engine_that_failed_is_not_recorded_as_time_in_the_queue() -> None:
    scheduler = PoolScheduler(make_table(2), "router-0", 1, sample_rate=1.0)
    sent = one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    assert isinstance(scheduler.retry("r1", 300.0, sent.instance, reached=True), Dispatch)
    scheduler.first_token("r1", 301.0)
    scheduler.complete("r1", 301.5, 2, None)
    (decision,) = scheduler.take_records(302.0).decisions
    assert (decision.queued_seconds, decision.ttft_seconds) == (0.0, 301.0)


def test_a_policy_that_fails_as_it_is_told_a_table_changes_nothing() -> None:
    class Failing:
        def table_changed(self, table: RoutingTable) -> None:
            raise ZeroDivisionError("in a policy")

    scheduler = make_scheduler(make_table(1))
    working = scheduler._state.policy
    scheduler._state.policy = replace(working, follows_table=Failing())
    with pytest.raises(ZeroDivisionError):
        scheduler.update_table(make_table(2, version=2), 0.0)
    assert [row.instance for row in scheduler.in_flight()] == ["chat-b0"]
    scheduler._state.policy = working
    scheduler.update_table(make_table(2, version=2), 1.0)
    assert [row.instance for row in scheduler.in_flight()] == ["chat-b0", "chat-b1"]


def test_a_queued_request_of_which_the_policy_cannot_say_where_it_may_be_is_placed_again() -> None:
    class Failing:
        def placements(self, request: RoutingRequest) -> tuple[str, ...]:
            raise ZeroDivisionError("in a policy")

    scheduler = make_scheduler(make_table(1))
    one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    assert scheduler.submit(make_request("r2"), 0.0) == ()
    scheduler._state.policy = replace(scheduler._state.policy, restricts_placement=Failing())
    assert one_dispatch(scheduler.update_table(make_table(2, version=2), 1.0)).request.id == "r2"


def test_a_circuit_opens_after_three_failures_and_lets_one_probe_through() -> None:
    scheduler = make_scheduler(make_table(2, window=0))
    for _ in range(3):
        scheduler.instance_failed("chat-b0", 0.0)
    assert [one_dispatch(scheduler.submit(make_request(f"r{index}"), 0.1)).instance for index in range(3)] == ["chat-b1"] * 3
    chosen = [one_dispatch(scheduler.submit(make_request(f"s{index}"), 1.0)).instance for index in range(4)]
    assert sorted(chosen) == ["chat-b0", *["chat-b1"] * 3]
    scheduler.first_token(f"s{chosen.index('chat-b0')}", 1.1)
    chosen = [one_dispatch(scheduler.submit(make_request(f"t{index}"), 1.2)).instance for index in range(4)]
    assert sorted(chosen) == ["chat-b0", "chat-b0", "chat-b1", "chat-b1"]


def test_with_every_circuit_open_requests_are_sent_as_if_none_were() -> None:
    scheduler = make_scheduler(make_table(2, window=0))
    for instance in ("chat-b0", "chat-b1"):
        for _ in range(3):
            scheduler.instance_failed(instance, 0.0)
    chosen = [one_dispatch(scheduler.submit(make_request(f"r{index}"), 0.1)).instance for index in range(4)]
    assert sorted(chosen) == ["chat-b0", "chat-b0", "chat-b1", "chat-b1"]
    scheduler.first_token("r0", 0.2)
    assert {one_dispatch(scheduler.submit(make_request(f"s{index}"), 0.3)).instance for index in range(3)} == {chosen[0]}


def test_with_every_circuit_open_a_request_does_not_go_through_all_that_cannot_be_reached() -> None:
    scheduler = make_scheduler(make_table(9, window=0))
    for load in scheduler.loads():
        for _ in range(3):
            scheduler.instance_failed(load.entry.id, 0.0)
    outcome: Dispatch | Refusal = one_dispatch(scheduler.submit(make_request("r"), 0.1))
    tries = 0
    while isinstance(outcome, Dispatch):
        tries += 1
        scheduler.instance_failed(outcome.instance, 0.1)
        outcome = scheduler.retry("r", 0.1, outcome.instance, reached=False)
    assert tries == 3


def test_a_half_open_instance_gets_a_single_request_even_when_its_window_has_room_for_more() -> None:
    scheduler = make_scheduler(make_table(2, window=2, policy="sticky"))
    home = one_dispatch(scheduler.submit(make_request("r0", session="s"), 0.0)).instance
    for _ in range(3):
        scheduler.instance_failed(home, 0.0)
    sent = [scheduler.submit(make_request(f"r{index}", session="s"), 1.0) for index in range(1, 6)]
    assert [outcome.instance for outcomes in sent for outcome in outcomes if isinstance(outcome, Dispatch)].count(home) == 1


def test_requests_queued_for_an_instance_whose_circuit_opens_move_to_another() -> None:
    scheduler = make_scheduler(make_table(2))
    for index in range(6):
        scheduler.submit(make_request(f"r{index}"), 0.0)
    for _ in range(3):
        scheduler.instance_failed("chat-b0", 0.1)
    broken, healthy = scheduler.load("chat-b0"), scheduler.load("chat-b1")
    assert broken is not None
    assert healthy is not None
    assert (broken.waiting, healthy.waiting) == (0, 4)
    assert {move.trigger for move in scheduler.take_records(1.0).reroutes} == {"instance-lost"}


def test_a_hotspot_moves_queued_requests_within_their_pair_and_their_sessions_with_them() -> None:
    table = make_table(2, policy="dualmap")
    scheduler = having_seen(make_scheduler(table))
    for index in range(3):
        scheduler.submit(replace(make_request(f"w{index}", 30_000, session=f"w{index}"), blocks=(index,)), 0.0)
    for load in scheduler.loads():
        assert load.waiting <= 2
    scheduler.take_records(0.0)
    held = {load.entry.id: load.pending_prefill_tokens for load in scheduler.loads()}
    busy, idle = max(held, key=lambda name: held[name]), min(held, key=lambda name: held[name])
    first = next(name for name in ("w0", "w1", "w2") if (home := scheduler.binding(name)) is not None and home.instance == idle)
    scheduler.first_token(first, 4.0)
    scheduler.complete(first, 4.5, 2, None)
    scheduler.tick(4.6)
    records = scheduler.take_records(5.0)
    (move,) = records.migrations
    assert (move.source, move.target, move.trigger, records.reroutes) == (busy, idle, "hotspot", ())
    assert move.benefit_seconds is not None
    assert move.benefit_seconds > 0
    assert [(change.instance, change.previous, change.reason) for change in records.bindings] == [(idle, busy, "hotspot")]
    home = scheduler.binding(move.session)
    assert home is not None
    assert home.instance == idle
    scheduler.first_token(move.request, 6.0)
    (outcome,) = scheduler.take_records(7.0).migration_outcomes
    assert (outcome.id, outcome.outcome, outcome.actual_ttft_seconds) == (move.id, "completed", 6.0)


def test_under_the_papers_preset_queues_are_looked_at_only_when_a_request_comes() -> None:
    moved = {}
    for preset in ("dualmap", "dualmap-paper"):
        table = make_table(2, policy="dualmap")
        table = replace(table, routing=replace(table.routing, parameters={"preset": preset}))
        scheduler = having_seen(make_scheduler(table))
        for index in range(3):
            scheduler.submit(replace(make_request(f"w{index}", 30_000, session=f"w{index}"), blocks=(index,)), 0.0)
        scheduler.take_records(0.0)
        held = {load.entry.id: load.pending_prefill_tokens for load in scheduler.loads()}
        alone = min(held, key=lambda name: held[name])
        first = next(name for name in ("w0", "w1", "w2") if (home := scheduler.binding(name)) is not None and home.instance == alone)
        scheduler.first_token(first, 4.0)
        scheduler.tick(4.6)
        moved[preset] = len(scheduler.take_records(5.0).migrations)
    assert moved == {"dualmap": 1, "dualmap-paper": 0}


def test_under_the_codes_preset_a_busy_instance_gets_no_prefill_beside_others() -> None:
    """Four prefills may be in flight. The first two requests are within the threshold of 15,625 tokens. The others wait
    until the last first token is a second old.
    """
    table = make_table(1, policy="dualmap", window=4)
    speed = replace(table.engine, prefill_tokens_per_second=6250.0)
    coded = replace(table, engine=speed, routing=replace(table.routing, parameters={"preset": "dualmap-code"}))
    for one, expected in ((replace(table, engine=speed), [1, 1, 1, 1]), (coded, [1, 1, 0, 0])):
        scheduler = having_seen(make_scheduler(one))
        sent = [len(scheduler.submit(replace(make_request(f"r{index}", 8_000), blocks=(index,)), 0.0)) for index in range(4)]
        assert sent == expected
    assert len(scheduler.first_token("r0", 1.0)) == 1, "8,000 tokens are in flight, and a first token came"
    assert scheduler.first_token("r1", 4.0)[0].request.id == "r3"
    scheduler.submit(replace(make_request("late", 100), blocks=(9,)), 6.5)
    assert scheduler.tick(6.5) == (), "no first token for 2.5 s"


def test_a_session_whose_host_drains_gets_a_new_home_with_one_record() -> None:
    table = make_table(2, policy="ear")
    scheduler = make_scheduler(table)
    scheduler.submit(make_request("r1", session="s"), 0.0)
    scheduler.first_token("r1", 0.1)
    scheduler.complete("r1", 0.2, 1, None)
    draining = replace(table.instances[0], state=InstanceState.DRAINING, anchors=0)
    scheduler.update_table(replace(table, version=2, instances=(draining, table.instances[1])), 1.0)
    assert one_dispatch(scheduler.submit(make_request("r2", session="s"), 2.0)).instance == "chat-b1"
    records = scheduler.take_records(3.0)
    (move,) = records.migrations
    assert (move.session, move.trigger, move.tokens_recomputed, records.reroutes) == ("s", "drain", 1023, ())
    assert [change.reason for change in records.bindings] == ["cold", "drain"]
    assert (records.bindings[1].based_on, records.bindings[1].after) == (0, records.bindings[0].id)


def test_a_session_follows_its_retried_request_to_the_instance_that_served_it() -> None:
    scheduler = make_scheduler(make_table(2, policy="ear"))
    scheduler.submit(make_request("r1", session="s"), 0.0)
    retried = scheduler.retry("r1", 0.1, "chat-b0")
    assert isinstance(retried, Dispatch)
    home = scheduler.binding("s")
    assert home is not None
    assert home.instance == retried.instance == "chat-b1"
    (move,) = scheduler.take_records(1.0).migrations
    assert move.trigger == "instance-lost"


def test_a_request_without_a_home_that_is_retried_elsewhere_is_rerouted_not_migrated() -> None:
    scheduler = make_scheduler(make_table(2))
    scheduler.submit(make_request("r1", session="s"), 0.0)
    retried = scheduler.retry("r1", 0.1, "chat-b0")
    assert isinstance(retried, Dispatch)
    scheduler.first_token("r1", 0.5)
    records = scheduler.take_records(1.0)
    (move,) = records.reroutes
    assert (move.session, move.request, move.source, move.target, move.trigger) == ("s", "r1", "chat-b0", retried.instance, "instance-lost")
    assert (move.outcome, move.actual_ttft_seconds, records.migrations, records.bindings) == ("completed", 0.5, (), ())


def test_a_request_held_while_nobody_serves_is_rerouted_when_somebody_does() -> None:
    table = make_table(1)
    scheduler = make_scheduler(table)
    for name in ("r1", "r2"):
        scheduler.submit(make_request(name), 0.0)
    scheduler.update_table(replace(table, version=2, instances=()), 0.1)
    (other,) = make_table(2).instances[1:]
    scheduler.update_table(replace(table, version=3, instances=(other,)), 0.2)
    (move,) = scheduler.take_records(1.0).reroutes
    assert (move.request, move.source, move.target, move.trigger) == ("r2", "chat-b0", "chat-b1", "instance-lost")


def test_a_table_with_parameters_that_cannot_be_used_changes_nothing() -> None:
    scheduler = make_scheduler(make_table(2))
    bad = make_table(0, version=2)
    bad = replace(bad, routing=replace(bad.routing, parameters={"queue_limit": "many"}))
    with pytest.raises(InvalidInput, match="queue_limit: 'many' cannot be used"):
        scheduler.update_table(bad, 1.0)
    assert scheduler.table.version == 1
    assert len(scheduler.loads()) == 2


def test_a_lost_instance_comes_back_with_an_empty_cache() -> None:
    table = make_table(1)
    scheduler = make_scheduler(table)
    scheduler.submit(make_request("r1"), 0.0)
    scheduler.first_token("r1", 0.1)
    lost = replace(table.instances[0], state=InstanceState.LOST)
    scheduler.update_table(replace(table, version=2, instances=(lost,)), 1.0)
    scheduler.update_table(replace(table, version=3), 2.0)
    assert one_dispatch(scheduler.submit(make_request("r2"), 3.0)).hit_tokens == 0


def test_an_instance_that_moved_to_another_address_has_an_empty_cache() -> None:
    table = make_table(1)
    scheduler = make_scheduler(table)
    scheduler.submit(make_request("r1"), 0.0)
    scheduler.first_token("r1", 0.1)
    elsewhere = replace(table.instances[0], address="127.40.9.9:8000")
    scheduler.update_table(replace(table, version=2, instances=(elsewhere,)), 1.0)
    sent = one_dispatch(scheduler.submit(make_request("r2"), 3.0))
    assert (sent.hit_tokens, sent.address) == (0, "127.40.9.9:8000")


@pytest.mark.parametrize(("early", "hits"), [(True, 1023), (False, 0)])
def test_early_prefixes_let_the_next_of_a_burst_see_the_prefix(early: bool, hits: int) -> None:
    table = make_table(1, window=0)
    scheduler = make_scheduler(replace(table, routing=replace(table.routing, parameters={"early_prefixes": early})))
    one_dispatch(scheduler.submit(make_request("r1"), 0.0))
    assert one_dispatch(scheduler.submit(make_request("r2"), 0.0)).hit_tokens == hits


def test_the_same_request_id_cannot_be_in_flight_twice() -> None:
    scheduler = make_scheduler(make_table(1))
    scheduler.submit(make_request("r1"), 0.0)
    with pytest.raises(ValueError, match="request 'r1' is already in flight"):
        scheduler.submit(make_request("r1"), 0.0)


def test_another_pools_table_is_refused() -> None:
    scheduler = make_scheduler(make_table(1))
    other = replace(make_table(1, version=2), pool=PoolKey(namespace="default", name="other"))
    with pytest.raises(ValueError, match="a table of pool default/other was given to the scheduler of default/chat"):
        scheduler.update_table(other, 1.0)


def test_a_recreated_pool_starts_without_sessions_and_caches() -> None:
    scheduler = make_scheduler(make_table(1, policy="ear"))
    scheduler.submit(make_request("r1", session="s"), 0.0)
    scheduler.first_token("r1", 0.1)
    scheduler.update_table(replace(make_table(1, policy="ear"), uid="u2"), 1.0)
    assert scheduler.binding("s") is None
    assert scheduler.choose(make_request("r2"), 1.0) is not None
    scheduler.cancel("r1", 1.0)
    assert one_dispatch(scheduler.submit(make_request("r3"), 2.0)).hit_tokens == 0


def test_a_request_refused_while_its_client_leaves_is_not_told_of_again() -> None:
    table = make_table(2)
    scheduler = make_scheduler(replace(table, routing=replace(table.routing, parameters={"queue_limit": 1})))
    for index in range(4):
        scheduler.submit(make_request(f"r{index}"), 0.0)
    for _ in range(3):
        scheduler.instance_failed("chat-b0", 0.1)
    assert scheduler.waiting() == 1
    scheduler.cancel("r2", 0.1)
    assert scheduler.tick(0.1) == ()
    (record,) = scheduler.take_records(1.0).rejections
    assert (record.reason, record.sample_request) == (RejectionReason.QUEUE_FULL, "r2")
