"""Several routers, one of which decides: what each counts, sends and reports, and what happens when a connection
breaks.
"""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reports.moves import MoveOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.decisions import Decision
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest, TraceContext
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import decider_of
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import EarlyRejectionFacts, PoolKey, RoutingTable
from fairlead_testing.builders.routing import entry, request, table
from fairlead_testing.worlds.router_wire import Wire

ONE = table([entry("i0")], policy="min-ttft", window=1, speed=1000.0)
TWO = table([entry("i0"), entry("i1")], policy="fairlead", window=1, speed=1000.0)


def routers(used: RoutingTable, count: int = 3) -> tuple[SharedScheduler, list[SharedScheduler], list[Wire]]:
    """Return the deciding router, its fronts, and their connections."""
    made = [SharedScheduler(used, f"router-{number}", number, sample_rate=1.0) for number in range(count)]
    for scheduler in made:
        scheduler.know_routers(count)
    decider, *fronts = made
    return decider, fronts, [Wire(front, decider, 0.0) for front in fronts]


def asked(name: str, tokens: int = 1000, session: str | None = None, at: float = 0.0) -> RoutingRequest:
    return request(name, tokens, session=session, at=at)


def sent(outcomes: tuple[Dispatch | Refusal, ...]) -> list[tuple[str, str]]:
    assert all(isinstance(outcome, Dispatch) for outcome in outcomes)
    return [(outcome.request.id, outcome.instance) for outcome in outcomes if isinstance(outcome, Dispatch)]


def test_a_front_waits_for_the_decider_and_sends_what_that_says() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    assert front.submit(asked("a"), 0.0) == ()
    assert front.waiting() == 1
    assert sent(wire.carry(0.1)) == [("a", "i0")]
    assert (front.waiting(), decider.waiting()) == (0, 0)
    for scheduler in (front, decider):
        load = scheduler.load("i0")
        assert load is not None
        assert (load.prefilling, load.pending_prefill_tokens) == (1, 1000)
    front.first_token("a", 1.0)
    front.complete("a", 2.0, 10, 0)
    wire.carry(2.0)
    for scheduler in (front, decider):
        assert scheduler.discrepancies() == ()
        assert scheduler.load("i0").decoding == 0  # type: ignore[union-attr]


def test_what_warms_an_heir_is_no_demand_whoever_decides() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    front.submit(asked("a"), 0.0)
    front.submit(replace(asked("warms"), warms=True), 0.0)
    wire.carry(0.1)
    arrivals = [sample.requests for scheduler in (front, decider) for sample in scheduler.take_records(1.0, final=True).arrivals]
    assert arrivals == [1]


def test_a_trace_is_shown_once_by_the_router_that_decided_and_its_engine_hears_of_it() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    trace = TraceContext(trace_id="4b" * 16, span_id="0a" * 8)
    front.submit(replace(asked("a"), trace=trace), 0.0)
    (dispatch,) = wire.carry(0.1)
    assert isinstance(dispatch, Dispatch)
    assert dispatch.traced
    front.first_token("a", 1.0)
    wire.carry(1.0)
    front.complete("a", 2.0, 10, 0)
    wire.carry(2.0)
    records = decider.take_records(3.0, final=True)
    ((shown,), (decision,)) = records.traced, records.decisions
    assert (shown.request.trace, shown.decision) == (trace, decision.id)
    assert (shown.first_token_at, shown.ended_at, shown.output_tokens) == (1.0, 2.0, 10)
    assert front.take_records(3.0, final=True).traced == ()


def test_an_instance_has_one_prefill_at_a_time_from_all_routers_together() -> None:
    decider, (front, other), (wire, other_wire) = routers(ONE)
    assert sent(decider.submit(asked("own"), 0.0)) == [("own", "i0")]
    front.submit(asked("a"), 0.0)
    other.submit(asked("b"), 0.1)
    assert wire.carry(0.1) == ()
    assert other_wire.carry(0.2) == ()
    assert decider.waiting() == 2
    assert decider.first_token("own", 1.0) == (), "the next is another router's"
    assert sent(wire.carry(1.0)) == [("a", "i0")]
    front.first_token("a", 2.0)
    wire.carry(2.0)
    assert sent(other_wire.carry(2.0)) == [("b", "i0")]


def test_a_session_is_bound_before_its_second_turn_comes_to_another_router() -> None:
    decider, (front, other), (wire, other_wire) = routers(TWO)
    front.submit(asked("a", session="s"), 0.0)
    ((_, home),) = sent(wire.carry(0.0))
    front.first_token("a", 1.0)
    front.complete("a", 1.1, 10, 0)
    wire.carry(1.1)
    other.submit(asked("b", 1100, session="s", at=1.2), 1.2)
    assert sent(other_wire.carry(1.2)) == [("b", home)]
    assert [change.session for change in decider.take_records(5.0, final=True).bindings] == ["s"]
    assert front.take_records(5.0, final=True).bindings == ()


def test_without_a_decider_a_front_decides_what_waits_and_late_verdicts_change_nothing() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    decider.submit(asked("own"), 0.0)
    front.submit(asked("a"), 0.0)
    wire.carry(0.1)
    assert decider.waiting() == 1
    decider.first_token("own", 0.4)
    (verdict,) = wire.verdicts.said
    assert sent(wire.part(0.5)) == [("a", "i0")]
    assert (decider.waiting(), decider.load("i0").prefilling) == (0, 0), "it counts there no more"  # type: ignore[union-attr]
    assert front.hear(verdict, 0.7) == ()
    assert sent(front.submit(asked("b"), 0.8)) == [], "it queues behind what it sent itself"
    assert sent(front.first_token("a", 1.0)) == [("b", "i0")]


def failing_on(bad: str, scheduler: SharedScheduler) -> None:
    """Make the present policy raise for requests whose id begins with this text, as a user's own policy may."""
    policy = scheduler._state.policy

    def choose(request: RoutingRequest, view: PoolView, now: float) -> Decision:
        if request.id.startswith(bad):
            raise ZeroDivisionError("in a policy")
        return policy.choose(request, view, now)

    scheduler._state.policy = replace(policy, choose=choose)


def ends(outcomes: tuple[Dispatch | Refusal, ...]) -> dict[str, int]:
    """Return the outcome of each request: 0 if it is sent, the status if it is refused."""
    return {outcome.request.id: outcome.status if isinstance(outcome, Refusal) else 0 for outcome in outcomes}


def test_a_request_that_the_policy_fails_on_strands_no_other_when_the_decider_is_gone() -> None:
    _, (front, _), (wire, _) = routers(TWO)
    failing_on("bad", front)
    for name in ("good", "bad", "last"):
        front.submit(asked(name), 0.0)
    assert ends(wire.part(0.1)) == {"good": 0, "bad": 500, "last": 0}
    assert front.waiting() == 0
    with pytest.raises(ZeroDivisionError):
        front.tick(0.2)
    assert front.tick(0.3) == ()


def test_a_request_of_a_front_that_the_policy_fails_on_is_refused_to_that_front() -> None:
    decider, (front, _), (wire, _) = routers(TWO)
    failing_on("bad", decider)
    for name in ("bad", "good"):
        front.submit(asked(name), 0.0)
    assert ends(wire.carry(0.1)) == {"bad": 500, "good": 0}
    assert decider._state.guests.keys() == {"good"}
    with pytest.raises(ZeroDivisionError):
        decider.tick(0.2)
    assert decider.discrepancies() == front.discrepancies() == ()


def test_a_decider_sends_its_own_requests_while_it_has_those_of_others() -> None:
    decider, (front, _), (wire, _) = routers(TWO)
    front.submit(asked("a"), 0.0)
    wire.carry(0.0)
    assert [name for name, _ in sent(decider.submit(asked("own"), 0.1))] == ["own"]
    assert wire.carry(0.1) == ()


def test_what_is_refused_of_a_front_that_leaves_is_told_to_nobody() -> None:
    decider, (front, _), (wire, _) = routers(TWO)
    for name in ("own", "other"):
        decider.submit(asked(name), 0.0)
    front.submit(asked("bad"), 0.0)
    wire.carry(0.1)
    (waits,) = (load.entry.id for load in decider.loads() if load.waiting)
    failing_on("bad", decider)
    for _ in range(3):
        decider.instance_failed(waits, 0.2)
    assert decider.waiting() == 0
    assert ends(wire.part(0.3)) == {"bad": 0}, "its own router decides"
    assert wire.decided == []


def test_a_request_whose_id_is_in_flight_at_the_decider_stays_with_its_front() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    decider.submit(asked("same"), 0.0)
    front.submit(asked("same", 500), 0.1)
    assert wire.carry(0.1) == ()
    assert front.waiting() == 1
    front.cancel("same", 0.2)
    wire.carry(0.2)
    assert (front.waiting(), in_flight(decider)) == (0, {"i0": 1})


def test_a_decider_that_is_asked_again_counts_what_was_sent_meanwhile() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    front.submit(asked("a"), 0.0)
    wire.carry(0.0)
    front.submit(asked("b"), 0.1)
    wire.part(0.2)
    load = decider.load("i0")
    assert load is not None
    assert (load.prefilling, load.waiting) == (0, 0)
    assert front.waiting() == 1
    again = Wire(front, decider, 0.5)
    again.carry(0.5)
    assert (load.prefilling, load.waiting) == (1, 1)
    front.first_token("a", 1.0)
    assert sent(again.carry(1.0)) == [("b", "i0")]
    assert decider.discrepancies() == front.discrepancies() == ()


def test_requests_that_decode_are_told_to_a_new_decider_too() -> None:
    decider, (front, _), (wire, _) = routers(TWO)
    front.submit(asked("a"), 0.0)
    wire.carry(0.0)
    front.first_token("a", 1.0)
    front.generated("a", 1.5, 7)
    wire.part(2.0)
    again = Wire(front, decider, 3.0)
    again.carry(3.0)
    assert sum(load.decode_tokens for load in decider.loads()) == 1000
    front.complete("a", 4.0, 10, 0)
    again.carry(4.0)
    assert sum(load.decode_tokens for load in decider.loads()) == 0
    assert decider.discrepancies() == ()


def test_a_front_tries_again_at_once_and_the_decider_counts_it_there() -> None:
    decider, (front, _), (wire, _) = routers(TWO)
    front.submit(asked("a", session="s"), 0.0)
    ((_, first),) = sent(wire.carry(0.0))
    front.instance_failed(first, 0.1)
    outcome = front.retry("a", 0.1, first)
    assert isinstance(outcome, Dispatch)
    assert outcome.instance != first
    wire.carry(0.1)
    assert {load.entry.id: load.prefilling for load in decider.loads()} == {first: 0, outcome.instance: 1}
    records = decider.take_records(5.0, final=True)
    assert [(move.source, move.target) for move in records.migrations] == [(first, outcome.instance)]
    kept = front.take_records(5.0, final=True)
    assert (kept.migrations, kept.reroutes, kept.bindings) == ((), (), ())


def test_a_request_tried_again_at_an_instance_that_the_decider_does_not_know_is_counted_by_its_front_alone() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    front.submit(asked("a"), 0.0)
    wire.carry(0.0)
    front.update_table(replace(ONE, version=2, instances=TWO.instances), 0.1)
    outcome = front.retry("a", 0.2, "i0")
    assert isinstance(outcome, Dispatch)
    wire.carry(0.2)
    assert (in_flight(front), in_flight(decider)) == ({"i0": 0, "i1": 1}, {"i0": 0})
    front.complete("a", 2.0, 5, 0)
    wire.carry(2.0)
    assert front.discrepancies() == decider.discrepancies() == ()


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_proxys_own_choice_teaches_the_decider_nothing_of_prefills(meanwhile: bool) -> None:
    decider, (front, _), (wire, _) = routers(TWO)
    front.submit(asked("a"), 0.0)
    ((_, first),) = sent(wire.carry(0.0))
    if meanwhile:
        wire.part(1.0)
    served = "i1" if first == "i0" else "i0"
    front.retry("a", 3.0, first, to=served)
    wire = Wire(front, decider, 3.0) if meanwhile else wire
    wire.carry(3.0)
    front.first_token("a", 3.001)
    wire.carry(3.001)
    for one in (front, decider):
        load = one.load(served)
        assert load is not None
        assert (load.decoding, load.prefill_pace, one.prefill_estimate().samples) == (1, 1.0, 0)
        assert one.discrepancies() == ()


def test_a_request_that_no_instance_could_serve_ends_at_both() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    front.submit(asked("a"), 0.0)
    wire.carry(0.0)
    assert isinstance(front.retry("a", 0.1, "i0"), Refusal)
    wire.carry(0.1)
    assert sum(load.prefilling for load in (*front.loads(), *decider.loads())) == 0


@pytest.mark.parametrize("known", [False, True])
def test_a_client_that_goes_away_takes_its_request_along(known: bool) -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    decider.submit(asked("own"), 0.0)
    front.submit(asked("a"), 0.0)
    if known:
        wire.carry(0.1)
    front.cancel("a", 0.2)
    wire.carry(0.2)
    assert (front.waiting(), decider.waiting()) == (0, 0)
    decider.first_token("own", 1.0)
    assert wire.carry(1.0) == ()


def test_refusals_come_back_to_the_front_that_asked() -> None:
    decider, (front, _), (wire, _) = routers(replace(ONE, instances=(replace(ONE.instances[0], state=InstanceState.LOST, anchors=0),)))
    front.submit(asked("a"), 0.0)
    wire.carry(0.0)
    assert decider.held().requests == 1
    assert front.held().requests == 0
    assert decider.tick(30.0) == ()
    (refusal,) = wire.carry(30.0)
    assert isinstance(refusal, Refusal)
    assert front.waiting() == 0
    assert [record.count for record in decider.take_records(60.0).rejections] == [1]
    assert front.take_records(60.0).rejections == ()


def test_a_request_may_be_refused_after_its_prefill_by_the_decider_alone() -> None:
    """The decider knows all decodes, but the front's own gate would know only some of them."""
    split = table(
        [entry("p0", role=Role.PREFILL), entry("d0", role=Role.DECODE)],
        policy="min-ttft",
        speed=1000.0,
        rejection=EarlyRejectionFacts(mode="AfterPrefill"),
        decode_base_seconds=0.01,
        decode_seconds_per_request=0.08,
    )
    decider, (front, _), (wire, _) = routers(split)
    refused: list[str] = []
    for number in range(4):
        name = f"r{number}"
        front.submit(asked(name), float(number))
        heard = wire.carry(float(number))
        refused += [outcome.request.id for outcome in heard if isinstance(outcome, Refusal)]
        assert front.first_token(name, number + 0.5) == ()
        refused += [outcome.request.id for outcome in wire.carry(number + 0.5) if isinstance(outcome, Refusal)]
    assert refused
    assert "r0" not in refused
    assert decider.discrepancies() == front.discrepancies() == ()


def test_the_decider_reports_what_instances_do_and_each_router_what_came_to_it() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    front.submit(asked("a"), 0.0)
    wire.carry(0.0)
    front.first_token("a", 1.0)
    wire.carry(1.0)
    front.complete("a", 2.0, 10, 0)
    wire.carry(2.0)
    told, kept = decider.take_records(9.0), front.take_records(9.0)
    assert (sum(sample.completed for sample in told.loads), kept.loads) == (1, ())
    assert ([sample.judged for sample in told.slo_samples], kept.slo_samples) == ([1], ())
    assert (told.arrivals, [sample.requests for sample in kept.arrivals]) == ((), [1])
    assert [record.request for record in told.decisions] == ["a"]
    assert told.decisions[0].ttft_seconds == 1.0
    assert kept.decisions == ()
    wire.part(10.0)
    assert front.take_records(12.0).loads, "on its own it tells of instances again"


def test_a_decider_takes_those_that_do_not_ask_to_send_as_much_as_those_that_do() -> None:
    decider, _, (wire, other_wire) = routers(ONE, 3)
    decider.know_routers(6)
    assert decider.routers == 2
    decider.know_routers(3)
    assert decider.routers == 1
    wire.part(0.0)
    other_wire.part(0.0)
    assert decider.routers == 3


def test_a_decider_that_stops_refuses_its_own_requests_only() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    decider.submit(asked("running"), 0.0)
    decider.submit(asked("own"), 0.0)
    front.submit(asked("a"), 0.0)
    wire.carry(0.1)
    assert [outcome.request.id for outcome in decider.shut_down(0.2)] == ["own"]
    assert wire.carry(0.2) == ()
    assert front.waiting() == 1
    assert sent(wire.part(0.3)) == [("a", "i0")]


def test_a_request_given_up_by_its_front_is_forgotten_by_the_decider() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    decider.submit(asked("own"), 0.0)
    front.submit(asked("a"), 0.0)
    wire.carry(0.1)
    (refusal,) = front.give_up("a", 9.0)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.message.startswith("waited 9.0 s")) == (RejectionReason.QUEUE_TIMEOUT, True)
    wire.carry(9.0)
    assert (front.waiting(), decider.waiting()) == (0, 0)


def test_a_front_that_stops_refuses_what_it_asked_for_and_tells_so() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    decider.submit(asked("own"), 0.0)
    front.submit(asked("a"), 0.0)
    wire.carry(0.1)
    assert [outcome.request.id for outcome in front.shut_down(0.2)] == ["a"]
    wire.carry(0.2)
    assert decider.waiting() == 0


def in_flight(scheduler: SharedScheduler) -> dict[str, int]:
    return {row.instance: row.in_flight for row in scheduler.in_flight()}


def test_a_request_for_an_instance_of_a_newer_table_is_sent_and_counted_all_the_same() -> None:
    decider, (front, _), (wire, _) = routers(ONE)
    newer = replace(TWO, version=2, instances=(TWO.instances[1],))
    decider.update_table(newer, 0.0)
    front.submit(asked("a"), 0.1)
    assert sent(wire.carry(0.1)) == [("a", "i1")]
    assert in_flight(front) == {"i0": 0, "i1": 1}
    assert {load.entry.role for load in front.loads()} == {Role.BOTH}
    wire.part(0.2)
    decider.tick(0.2)
    assert in_flight(decider) == {"i1": 0}
    assert [sent(front.submit(asked("b"), 0.3)), in_flight(front)] == [[("b", "i0")], {"i0": 1, "i1": 1}]
    again = Wire(front, decider, 0.4)
    again.carry(0.4)
    assert in_flight(decider) == {"i0": 1, "i1": 1}, "the older table's instance too"
    assert {load.entry.role for load in decider.loads()} == {Role.BOTH}
    front.update_table(newer, 0.5)
    front.first_token("a", 1.0)
    for name in ("a", "b"):
        front.complete(name, 2.0, 5, 0)
    again.carry(2.0)
    for scheduler in (front, decider):
        scheduler.tick(3.0)
        assert in_flight(scheduler) == {"i1": 0}
        assert scheduler.discrepancies() == ()


def test_a_divided_request_for_instances_of_a_newer_table_is_counted_on_both() -> None:
    split = table([entry("p0", role=Role.PREFILL), entry("d0", role=Role.DECODE)], policy="min-ttft", speed=1000.0)
    decider, (front, _), (wire, _) = routers(split)
    fresh = (entry("p1", role=Role.PREFILL), entry("d1", role=Role.DECODE))
    decider.update_table(replace(split, version=2, instances=fresh), 0.0)
    front.submit(asked("a"), 0.1)
    assert sent(wire.carry(0.1)) == [("a", "p1")]
    assert in_flight(front) == {"d0": 0, "d1": 1, "p0": 0, "p1": 1}
    assert {load.entry.id: load.entry.role for load in front.loads() if load.entry.id in ("p1", "d1")} == {
        "p1": Role.PREFILL,
        "d1": Role.DECODE,
    }
    front.prefilled("a", 0.2)
    assert in_flight(front) == {"d0": 0, "d1": 1, "p0": 0, "p1": 0}
    front.complete("a", 2.0, 5, 0)
    wire.carry(2.0)
    front.tick(3.0)
    assert in_flight(front) == {"d0": 0, "p0": 0}
    assert front.discrepancies() == decider.discrepancies() == ()


def test_each_request_is_carried_by_the_router_that_it_came_to() -> None:
    decider, (front, other), (wire, other_wire) = routers(TWO)
    assert len(sent(decider.submit(asked("own"), 0.0))) == 1
    front.submit(asked("a"), 0.1)
    other.submit(asked("b"), 0.2)
    wire.carry(0.3)
    other_wire.carry(0.3)

    def carried() -> list[int]:
        return [sum(row.in_flight for row in scheduler.carried()) for scheduler in (decider, front, other)]

    assert sum(in_flight(decider).values()) == 3
    assert carried() == [1, 1, 0], "the third waits at the decider for an instance"
    decider.first_token("own", 1.0)
    front.first_token("a", 1.0)
    wire.carry(1.0)
    other_wire.carry(1.0)
    assert carried() == [1, 1, 1]


def test_moves_of_requests_that_go_back_to_their_router_are_left_open() -> None:
    decider, (front, _), (wire, _) = routers(TWO)
    front.submit(asked("a", session="s"), 0.0)
    ((_, first),) = sent(wire.carry(0.0))
    front.retry("a", 0.1, first)
    wire.carry(0.1)
    wire.part(0.2)
    records = decider.take_records(9.0, final=True)
    assert [move.outcome for move in records.migrations] == [MoveOutcome.UNDERWAY]


def test_routers_that_know_each_other_agree_on_who_decides() -> None:
    names = [f"router-{number}" for number in range(5)]
    pools = [PoolKey(namespace="default", name=f"chat-{number}") for number in range(200)]
    chosen = {pool: decider_of(pool, names) for pool in pools}
    assert chosen == {pool: decider_of(pool, names[::-1]) for pool in pools}
    assert set(chosen.values()) == set(names), "pools are spread over the routers"
    without = [name for name in names if name != "router-2"]
    moved = {pool for pool in pools if decider_of(pool, without) != chosen[pool]}
    assert moved == {pool for pool in pools if chosen[pool] == "router-2"}
