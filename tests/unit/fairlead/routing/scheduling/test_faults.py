"""Who caused a failure: engines and clients that fail in every way, in virtual time.

Requests that engines cannot serve must not make a pool unusable for other clients, and an engine that fails must not
attract requests that other engines would serve.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_testing.builders.routing import request, table
from fairlead_testing.examples import examples

POISONS = ("status", "answer", "lost", "timeout", "slow-status", "flaky", "mid-stream", "hang-up", "refused", "mixed")
TICK_SECONDS = 0.1
POLICIES = ("fairlead", "least-loaded", "round-robin", "dualmap", "sticky", "ear")


@dataclass(kw_only=True)
class Asked:
    """A client's request: what it makes engines do, and its outcome."""

    name: str
    client: str
    kind: str
    seconds: float
    streamed: bool
    sent: list[str] = field(default_factory=list)
    outcome: str = ""


class Fleet:
    """A scheduler, engines that serve or fail requests, and a clock.

    `bad` engines fail every request with this fault within milliseconds. Every engine answers queries about itself once
    a second.
    """

    def __init__(self, engines: int, policy: str, *, seed: int = 1, bad: dict[str, Fault] | None = None) -> None:
        self.now = 1000.0
        self.scheduler = PoolScheduler(table(engines, policy=policy, window=0), "router-0", seed)
        self.draw = Random(seed)
        self.bad = bad or {}
        self.asked: dict[str, Asked] = {}
        self.open_ticks: Counter[str] = Counter()
        """For each instance, the number of ticks at which its circuit was open."""
        self.later: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()
        self.again: dict[str, Callable[[], None]] = {}
        self.after(0.0, self.tick)
        self.after(0.0, self.scrape)

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        heappush(self.later, (self.now + seconds, next(self.numbers), what))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.later and self.later[0][0] <= until:
            self.now, _, what = heappop(self.later)
            what()
        self.now = until

    def tick(self) -> None:
        self.see(self.scheduler.tick(self.now))
        broken = self.scheduler.broken(self.now)
        if len(broken) < len(self.scheduler.loads()):  # else it keeps nothing away
            self.open_ticks.update(broken)
        self.after(TICK_SECONDS, self.tick)

    def scrape(self) -> None:
        for load in self.scheduler.loads():
            self.scheduler.instance_heard(load.entry.id, self.now)
        for one in self.asked.values():
            if one.outcome == "streaming":
                self.scheduler.generated(one.name, self.now, int(10 * (self.now - 999)))
        self.after(1.0, self.scrape)

    def ask(self, client: str, kind: str = "good", *, seconds: float = 20.0, streamed: bool = False) -> Asked:
        number = next(self.numbers)
        kind = self.draw.choice(POISONS[:-1]) if kind == "mixed" else kind
        one = Asked(name=f"r{number}", client=client, kind=kind, seconds=seconds, streamed=streamed)
        self.asked[one.name] = one
        self.see(self.scheduler.submit(request(one.name, 200, session=client, at=self.now, streamed=streamed), self.now))
        return one

    def arrive(self, after: float, client: str, **how: Any) -> None:
        """Schedule a request that arrives later."""

        def ask() -> None:
            self.ask(client, **how)

        self.after(after, ask)

    def loop(self, client: str, pause: float, kind: str = "good", **how: Any) -> None:
        """Run a client that sends a request, waits for its end, pauses, and repeats this."""

        def ask() -> None:
            one = self.ask(client, kind, **how)
            self.again[one.name] = lambda: self.after(pause, ask)
            if one.outcome in ("refused", "failed"):
                self.ended(one, one.outcome)

        self.after(self.draw.random() * pause, ask)

    def ended(self, one: Asked, outcome: str) -> None:
        one.outcome = outcome
        again = self.again.pop(one.name, None)
        if again is not None:
            again()

    def see(self, outcomes: tuple[Dispatch | Refusal, ...]) -> None:
        for outcome in outcomes:
            one = self.asked[outcome.request.id]
            if isinstance(outcome, Refusal):
                self.ended(one, "refused" if outcome.status != 502 else "failed")
            else:
                one.sent.append(outcome.instance)
                self.serve(one, outcome.instance)

    def serve(self, one: Asked, instance: str) -> None:
        attempt = len(one.sent)
        kind = one.kind
        if instance in self.bad:
            self.after(0.002, lambda: self.fail(one, instance, self.bad[instance], attempt))
        elif kind == "good" or (kind == "flaky" and attempt > 1):
            if one.streamed:
                self.after(min(0.5, one.seconds / 2), lambda: self.first_token(one, attempt))
            self.after(one.seconds, lambda: self.complete(one, attempt))
        elif kind == "mid-stream":
            self.after(0.2, lambda: self.first_token(one, attempt))
            self.after(0.4, lambda: self.fail(one, instance, Fault.ANSWER, attempt))
        elif kind == "refused":
            self.after(0.002, lambda: self.refuse(one, instance, attempt))
        else:
            fault = {"lost": Fault.LOST, "timeout": Fault.TIMEOUT, "answer": Fault.ANSWER}.get(kind, Fault.STATUS)
            seconds = {"timeout": 5.0, "slow-status": 3.0 * self.draw.random()}.get(kind, 0.005)
            self.after(seconds, lambda: self.fail(one, instance, fault, attempt))
            if kind == "hang-up":
                self.after(0.007, lambda: self.hang_up(one))

    def is_current(self, one: Asked, attempt: int) -> bool:
        return len(one.sent) == attempt and one.outcome in ("", "streaming")

    def first_token(self, one: Asked, attempt: int) -> None:
        if self.is_current(one, attempt):
            one.outcome = "streaming"
            self.see(self.scheduler.first_token(one.name, self.now))

    def complete(self, one: Asked, attempt: int) -> None:
        if self.is_current(one, attempt):
            outcomes = self.scheduler.complete(one.name, self.now, 10, None)
            self.ended(one, "served")
            self.see(outcomes)

    def fail(self, one: Asked, instance: str, fault: Fault, attempt: int) -> None:
        if not self.is_current(one, attempt):
            return
        if fault is Fault.REFUSED:
            self.refuse(one, instance, attempt)
            return
        self.scheduler.instance_failed(instance, self.now, fault, one.name)
        if one.outcome == "streaming":
            outcomes = self.scheduler.fail(one.name, self.now)
            self.ended(one, "failed")
            self.see(outcomes)
        else:
            self.see((self.scheduler.retry(one.name, self.now, instance, reached=fault is not Fault.UNREACHED),))

    def refuse(self, one: Asked, instance: str, attempt: int) -> None:
        if self.is_current(one, attempt):
            again = self.scheduler.second_opinion(one.name, self.now, instance, counts=True)
            if again is not None:
                self.see((again,))
                return
            outcomes = self.scheduler.decline(one.name, self.now)
            self.ended(one, "declined")
            self.see(outcomes)

    def hang_up(self, one: Asked) -> None:
        if one.outcome == "":
            outcomes = self.scheduler.cancel(one.name, self.now)
            self.ended(one, "cancelled")
            self.see(outcomes)

    def of(self, client: str) -> list[Asked]:
        return [one for one in self.asked.values() if one.client.startswith(client)]

    def tries_at(self, instance: str) -> int:
        return sum(one.sent.count(instance) for one in self.asked.values())


@pytest.mark.parametrize(("clients", "pause"), [(0, 1.0), (1, 1.0), (2, 0.5), (4, 0.1)])
@pytest.mark.parametrize("kind", ["status", "answer", "timeout", "slow-status", "refused", "hang-up"])
def test_requests_that_every_engine_fails_take_nothing_from_others(kind: str, clients: int, pause: float) -> None:
    fleet = Fleet(2, "fairlead")
    for index in range(77):
        fleet.arrive(0.7 * index, "good")
    for number in range(clients):
        fleet.loop(f"poison{number}", pause, kind)
    fleet.run(90.0)
    served = fleet.of("good")
    assert [one.outcome for one in served] == ["served"] * 77
    assert all(len(one.sent) == 1 for one in served)
    assert fleet.open_ticks == {}
    assert all(len(one.sent) <= 2 for one in fleet.of("poison"))


@pytest.mark.parametrize("fault", [Fault.STATUS, Fault.ANSWER, Fault.LOST, Fault.REFUSED, Fault.UNREACHED])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seconds", [0.4, 8.0])
def test_an_engine_that_fails_all_it_gets_at_once_gets_no_more_than_its_probes(policy: str, fault: Fault, seconds: float) -> None:
    fleet = Fleet(4, policy, bad={"i00": fault})
    for number in range(12):
        fleet.loop(f"client{number}", 0.01, seconds=seconds, streamed=bool(number % 2))
    fleet.run(45.0)
    assert {one.outcome for one in fleet.asked.values()} <= {"served", "streaming", ""}
    assert fleet.tries_at("i00") <= 12 + 3 * 4 + 10, "those under way when it began, those that open the circuit, and probes"
    assert all(len(one.sent) <= 2 for one in fleet.asked.values())


def test_two_broken_engines_of_four_are_found_and_hardly_a_client_hears_of_it() -> None:
    fleet = Fleet(4, "least-loaded", bad={"i00": Fault.STATUS, "i01": Fault.STATUS})
    for number in range(12):
        fleet.loop(f"client{number}", 0.01, seconds=0.4, streamed=True)
    fleet.run(60.0)
    outcomes = Counter(one.outcome for one in fleet.asked.values())
    assert outcomes["failed"] <= 12
    assert outcomes["served"] > 1500
    assert fleet.tries_at("i00") + fleet.tries_at("i01") <= 80


def test_an_engine_that_works_again_is_used_again() -> None:
    fleet = Fleet(2, "least-loaded", bad={"i00": Fault.STATUS})
    for number in range(6):
        fleet.loop(f"client{number}", 0.01, seconds=0.4, streamed=True)
    fleet.run(30.0)
    fleet.bad = {}
    fleet.run(31.0)
    before = fleet.tries_at("i00")
    fleet.run(10.0)
    assert fleet.tries_at("i00") - before > 50


def test_with_nobody_else_to_try_it_an_engine_of_its_own_goes_on() -> None:
    fleet = Fleet(1, "fairlead")
    for number in range(4):
        fleet.loop(f"poison{number}", 0.05, "status")
    fleet.loop("good", 0.5, seconds=2.0)
    fleet.run(60.0)
    assert {one.outcome for one in fleet.of("good")} <= {"served", ""}


@examples(25, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    engines=st.integers(1, 4),
    policy=st.sampled_from(POLICIES),
    kind=st.sampled_from(POISONS),
    poisons=st.integers(1, 4),
    pause=st.sampled_from([0.05, 0.5, 2.0]),
    seconds=st.sampled_from([0.3, 5.0, 20.0]),
    every=st.sampled_from([0.2, 0.7, 3.0]),
    streamed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_no_requests_of_one_client_make_others_refused_or_take_more_than_their_share(
    engines: int,
    policy: str,
    kind: str,
    poisons: int,
    pause: float,
    seconds: float,
    every: float,
    streamed: bool,
    seed: int,
) -> None:
    fleet = Fleet(engines, policy, seed=seed)
    for index in range(int(30 / every)):
        fleet.arrive(index * every, "good", seconds=seconds, streamed=streamed)
    for number in range(poisons):
        fleet.loop(f"poison{number}", pause, kind)
    fleet.run(30.0)
    poisoned, tries = (sum(len(one.sent) for one in fleet.of(name)) for name in ("poison", ""))
    assert sum(fleet.open_ticks.values()) * TICK_SECONDS / (30.0 * engines) <= poisoned / tries
    fleet.run(25.0)
    assert {one.outcome for one in fleet.of("good")} <= {"served"}
    assert fleet.scheduler.discrepancies() == ()


@pytest.mark.parametrize("request_id", [None, "never", "over"])
def test_a_refusal_of_what_is_no_more_in_flight_opens_no_circuit(request_id: str | None) -> None:
    scheduler = PoolScheduler(table(2, policy="least-loaded"), "router-0", 1)
    scheduler.submit(request("over", 200, at=1000.0), 1000.0)
    scheduler.cancel("over", 1000.1)
    for _ in range(9):
        scheduler.instance_failed("i00", 1000.2, Fault.REFUSED, request_id)
    assert (scheduler.broken(1000.3), scheduler.loads()[0].broken_until) == ((), 0.0)
    for _ in range(9):
        scheduler.instance_failed("i00", 1000.4, Fault.LOST, request_id)
    assert scheduler.broken(1000.5) == ("i00",)


def _work_of_a_failure(open_cases: int) -> int:
    """Return the number of calls and resumptions in the scheduler when another request fails on its second instance."""
    scheduler = PoolScheduler(table(2, policy="round-robin", window=0), "router-0", 1)
    again: Dispatch | Refusal | None = None
    for number in range(open_cases + 1):
        (dispatch,) = scheduler.submit(request(f"r{number}", 200, at=1000.0), 1000.0)
        assert isinstance(dispatch, Dispatch)
        scheduler.instance_failed(dispatch.instance, 1000.0, Fault.STATUS, dispatch.request.id)
        again = scheduler.retry(dispatch.request.id, 1000.0, dispatch.instance)
    assert isinstance(again, Dispatch)
    for load in scheduler.loads():
        for _ in range(3):
            scheduler.instance_failed(load.entry.id, 1000.0, Fault.UNREACHED)
    calls = 0

    def count_call(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count_call)
    try:
        scheduler.instance_failed(again.instance, 1000.0, Fault.STATUS, again.request.id)
    finally:
        sys.setprofile(None)
    return calls


def test_a_failure_among_many_costs_no_more_than_among_few() -> None:
    assert _work_of_a_failure(300) == _work_of_a_failure(3)


def _asked(scheduler: PoolScheduler, within: tuple[str, ...] | None = None) -> Dispatch:
    (dispatch,) = scheduler.submit(replace(request("r", 200, at=1000.0), within=within), 1000.0)
    assert isinstance(dispatch, Dispatch)
    return dispatch


def test_a_refused_request_may_go_beyond_the_instances_that_it_was_for_and_stays_free_to() -> None:
    scheduler = PoolScheduler(table(4, policy="least-loaded"), "router-0", 1)
    assert _asked(scheduler, ("i01",)).instance == "i01"
    assert scheduler.second_opinion("r", 1000.1, "i01", counts=False) is None
    again = scheduler.second_opinion("r", 1000.1, "i01", counts=False, beyond=("i02", "i03"))
    assert again is not None
    assert again.instance == "i02"
    scheduler.instance_failed("i02", 1000.2, Fault.LOST, "r")
    last = scheduler.retry("r", 1000.2, "i02")
    assert isinstance(last, Dispatch)
    assert last.instance == "i03"


def test_an_instance_that_was_passed_over_is_no_attempt() -> None:
    scheduler = PoolScheduler(table(5, policy="least-loaded"), "router-0", 1)
    instance = _asked(scheduler).instance
    sent = []
    for _ in range(2):
        other = scheduler.second_opinion("r", 1000.1, instance, counts=False, reached=False)
        assert other is not None
        instance = other.instance
    while True:
        sent.append(instance)
        scheduler.instance_failed(instance, 1000.2, Fault.LOST, "r")
        again = scheduler.retry("r", 1000.2, instance)
        if isinstance(again, Refusal):
            break
        instance = again.instance
    assert sent == ["i02", "i03", "i04"]
    assert scheduler.discrepancies() == ()


def failed_everywhere(scheduler: PoolScheduler, name: str, at: float) -> Refusal:
    """Return the outcome of a request that every instance answers with a 500."""
    [sent] = scheduler.submit(request(name, 200, session=name, at=at), at)
    while isinstance(sent, Dispatch):
        scheduler.instance_failed(sent.instance, at, Fault.STATUS, name)
        sent = scheduler.retry(name, at, sent.instance)
    return sent


def test_clients_are_kept_from_repeating_a_request_only_while_the_instances_that_failed_it_serve_others() -> None:
    scheduler = PoolScheduler(table(2, policy="fairlead", window=0), "router-0", 1)
    assert failed_everywhere(scheduler, "alone", 1.0).is_final
    outage = [failed_everywhere(scheduler, f"outage{number}", 2.0 + number) for number in range(5)]
    assert [one.is_final for one in outage] == [False] * 5
    assert all("serve other" not in one.message for one in outage)
    served: set[str] = set()
    for number in range(20):
        [sent] = scheduler.submit(request(f"good{number}", 200, session=f"good{number}", at=10.0), 10.0)
        assert isinstance(sent, Dispatch)
        scheduler.complete(sent.request.id, 11.0, 10, None)
        served.add(sent.instance)
    assert served == {load.entry.id for load in scheduler.loads()}
    again = failed_everywhere(scheduler, "poison", 12.0)
    assert again.is_final
    assert "which serve other requests" in again.message
