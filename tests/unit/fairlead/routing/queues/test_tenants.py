"""Tenants in an instance's queue: service is shared among them, and the pool's discipline applies within each."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.priority_classes import PriorityClasses
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.requests import Overtaken, RoutingRequest
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.building import build_queue
from fairlead.routing.queues.deadline import DeadlineRules
from fairlead.routing.queues.queueing import Queue
from fairlead.routing.queues.turns import MOST_AWAY, Tenants
from fairlead.tables import PriorityClass
from fairlead_testing.builders.routing import load_of, table

IN_TURN = ("fifo", "longest_hit", "slack")
DISCIPLINES = (*IN_TURN, "deadline")
TARGET_SECONDS = 5.0


class Line:
    """A queue of an idle engine with a target of 5 s. While it is `calm`, late requests may go."""

    def __init__(
        self, discipline: str, *, fairly: bool = True, calm: bool = True, classes: tuple[PriorityClass, ...] = (), credit: float = 0.0
    ) -> None:
        self.calm = calm
        self.tenants = Tenants(credit)
        self.sent: Counter[str] = Counter()
        """The microseconds of service that each tenant has had."""
        rules = DeadlineRules(
            late_share=0.0,
            late_may_go=lambda: self.calm,
            found_late=self._found_late,
            has_time=lambda: True,
            decode_share=lambda load: 0.0,
            speed=lambda: 6250.0,
        )
        self.queue: Queue = build_queue(
            QueueParameters(queue_discipline=discipline),
            table(1),
            load_of("i0"),
            rules,
            PriorityClasses(classes),
            self.tenants if fairly else None,
        )

    def _found_late(self, tracked: TrackedRequest) -> None:
        tracked.late = True

    def add(self, name: str, tenant: str, seconds: float = 1.0, *, at: float = 0.0, hit: int = 0, of: str = "default") -> TrackedRequest:
        asked = asking(tenant, name, at=at, of=of)
        tracked = TrackedRequest(
            request=asked, submitted_at=at, prefill_microseconds=round(1e6 * seconds), hit_tokens=hit, waiting_since=at
        )
        self.queue.add(tracked)
        return tracked

    def take(self, now: float = 0.0) -> str | None:
        tracked = self.queue.take(now)
        if tracked is None:
            return None
        self.sent[tracked.request.tenant] += tracked.prefill_microseconds
        return tracked.request.id


def asking(tenant: str, name: str = "asking", *, at: float = 0.0, of: str = "default") -> RoutingRequest:
    return RoutingRequest(id=name, arrived_at=at, prompt_tokens=100, blocks=(), first_bytes_hash=0, priority_class=of, tenant=tenant)


@pytest.mark.parametrize("discipline", IN_TURN)
def test_who_has_had_less_goes_first_and_by_work_not_by_number(discipline: str) -> None:
    line = Line(discipline)
    for number in range(3):
        line.add(f"long{number}", "a", 2.0)
    for number in range(4):
        line.add(f"short{number}", "b", 1.0)
    assert [line.take() for _ in range(7)] == ["long0", "short0", "short1", "long1", "short2", "short3", "long2"]


@pytest.mark.parametrize("discipline", IN_TURN)
def test_without_credit_who_was_away_saves_nothing_up_and_goes_next(discipline: str) -> None:
    line = Line(discipline)
    for number in range(9):
        line.add(f"a{number}", "a")
    for _ in range(5):
        line.take()
    for number in range(3):
        line.add(f"b{number}", "b")
    assert [line.take() for _ in range(6)] == ["b0", "a5", "b1", "a6", "b2", "a7"]


@pytest.mark.parametrize("discipline", IN_TURN)
def test_who_was_away_saves_up_its_credit(discipline: str) -> None:
    line = Line(discipline, credit=2.0)
    for number in range(9):
        line.add(f"a{number}", "a")
    for _ in range(5):
        line.take()
    for number in range(5):
        line.add(f"b{number}", "b")
    assert [line.take() for _ in range(6)] == ["b0", "b1", "b2", "a5", "b3", "a6"]


@pytest.mark.parametrize("discipline", IN_TURN)
def test_who_leaves_after_more_than_its_turn_is_not_served_anew_at_once(discipline: str) -> None:
    line = Line(discipline)
    line.add("long", "a", 2.5)
    for number in range(5):
        line.add(f"b{number}", "b")
    assert line.take() == "long"
    line.add("again", "a")
    assert [line.take() for _ in range(5)] == ["b0", "b1", "b2", "again", "b3"]


def test_the_deadline_discipline_leaves_out_first_what_is_beyond_a_tenants_turn() -> None:
    plain, fair = Line("deadline", fairly=False, calm=False), Line("deadline", calm=False)
    for line in (plain, fair):
        for number in range(8):
            line.add(f"flood{number}", "a", 0.8)
        for number in range(2):
            line.add(f"other{number}", "b", 1.0)
    assert not {one.request.id for one in plain.queue.in_order(0.0)[:5]} & {"other0", "other1"}, "the shortest are planned"
    taken = []
    now = 0.0
    while (name := fair.take(now)) is not None:
        taken.append(name)
        now += 0.85 if name.startswith("flood") else 1.05
    assert {"other0", "other1"} <= set(taken)
    assert now <= TARGET_SECONDS


def test_time_that_a_tenant_does_not_need_is_planned_for_the_others() -> None:
    line = Line("deadline", calm=False)
    line.add("other", "b", 1.0)
    for number in range(3):
        line.add(f"flood{number}", "a", 1.0)
    now, taken = 0.0, []
    while (name := line.take(now)) is not None:
        taken.append(name)
        now += 1.05
    assert len(taken) == 4


def test_a_late_request_goes_once_the_others_have_had_as_much() -> None:
    line = Line("deadline", calm=False)
    line.add("late", "b", 6.0)
    now, before = 0.0, 0
    for number in range(30):
        line.add(f"flood{number}", "a", 1.0, at=now)
        name = line.take(now)
        now += 1.0
        if name == "late":
            break
        before += 1
    assert before == 6, "seconds of the other tenant"
    assert name == "late"


def test_of_late_requests_the_tenant_that_has_had_less_sends_first() -> None:
    line = Line("deadline")
    for number in range(2):
        line.add(f"a{number}", "a", 6.0)
    line.add("b", "b", 7.0)
    assert [line.take(), line.take(), line.take()] == ["a0", "b", "a1"]


def test_turns_are_taken_within_a_priority() -> None:
    line = Line("fifo", classes=(PriorityClass(name="high", priority=1),))
    for number in range(2):
        line.add(f"l{number}", "a")
        line.add(f"h{number}", "a", of="high")
    line.add("hb", "b", of="high")
    line.add("lb", "b")
    assert [line.take() for _ in range(6)] == ["h0", "hb", "h1", "l0", "lb", "l1"]
    line.add("l", "a", 2.0)
    line.add("l2", "b", 1.0)
    line.add("h", "a", 4.0, of="high")
    assert line.queue.overtaken_by(asking("b", of="high")) == Overtaken(3, 7_000_000, 0)
    assert line.queue.overtaken_by(asking("a", of="high")) == Overtaken(2, 3_000_000, 0)


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_what_lies_beyond_a_tenants_turn_would_be_sent_after_it(discipline: str) -> None:
    line = Line(discipline)
    for number in range(4):
        line.add(f"a{number}", "a")
    assert line.queue.overtaken_by(asking("b")) == Overtaken(4, 4_000_000, 0)
    assert line.queue.overtaken_by(asking("a")) == Overtaken()
    line.add("b0", "b")
    assert line.queue.overtaken_by(asking("b")) == Overtaken(3, 3_000_000, 0)
    assert line.queue.overtaken_by(asking("a")) == Overtaken()
    line.queue.remove("a3")
    assert line.queue.overtaken_by(asking("b")) == Overtaken(2, 2_000_000, 0)
    assert line.tenants.are_others("a")
    line.queue.remove("b0")
    assert not line.tenants.are_others("a")


def test_what_is_late_is_told_apart_in_what_is_overtaken() -> None:
    line = Line("deadline", calm=False)
    line.add("able", "a", 2.0)
    line.add("late", "a", 6.0)
    line.queue.find_late(0.0)
    assert line.queue.overtaken_by(asking("b")) == Overtaken(2, 8_000_000, 6_000_000)


def test_tenants_that_left_are_forgotten() -> None:
    turns = Tenants().turns("i0")
    turns.waits(waiting("stays"))
    for number in range(2 * MOST_AWAY):
        one = waiting(f"t{number}")
        turns.waits(one)
        turns.sent(one)
    assert len(turns.away) == MOST_AWAY


def waiting(tenant: str) -> TrackedRequest:
    return TrackedRequest(request=asking(tenant, tenant), submitted_at=0.0, prefill_microseconds=1)


STEPS = st.lists(st.tuples(st.floats(0.01, 7.0), st.booleans(), st.floats(0.0, 0.9), st.integers(0, 99), st.integers(0, 5)), max_size=50)


@given(st.sampled_from(DISCIPLINES), STEPS, st.booleans())
def test_one_tenant_alone_has_exactly_the_order_of_a_pool_without_fairness(
    discipline: str, steps: list[tuple[float, bool, float, int, int]], calm: bool
) -> None:
    plain, fair = Line(discipline, fairly=False, calm=calm), Line(discipline, calm=calm, credit=20.0)
    now = 0.0
    for number, (seconds, takes, later, hit, removed) in enumerate(steps):
        now += later
        for line in (plain, fair):
            line.add(f"r{number}", "a", seconds, at=now, hit=hit)
            if not removed:
                line.queue.remove(f"r{number // 2}")
        if takes:
            assert plain.take(now) == fair.take(now)
    assert [one.request.id for one in plain.queue.in_order(now)] == [one.request.id for one in fair.queue.in_order(now)]


@given(st.sampled_from(IN_TURN), st.lists(st.floats(0.01, 3.0), min_size=4, max_size=60), st.integers(2, 4))
def test_with_equal_backlogs_tenants_differ_by_at_most_one_request(discipline: str, lengths: list[float], tenants: int) -> None:
    line = Line(discipline)
    left = Counter[str]()
    for number, seconds in enumerate(lengths):
        tenant = f"t{number % tenants}"
        line.add(f"r{number}", tenant, seconds, hit=number % 7)
        left[tenant] += 1
    now = 0.0
    while all(left[f"t{number}"] for number in range(tenants)):
        name = line.take(now)
        assert name is not None
        left[f"t{int(name[1:]) % tenants}"] -= 1
        served = [line.sent[f"t{number}"] for number in range(tenants)]
        assert max(served) - min(served) <= 1e6 * max(lengths) + 1
        now += 0.1


@given(st.lists(st.tuples(st.floats(0.05, 2.0), st.floats(0.05, 2.0)), min_size=40, max_size=80))
def test_tenants_that_always_have_some_waiting_differ_by_a_target_of_work_at_most(lengths: list[tuple[float, float]]) -> None:
    """This is for the deadline discipline, which plans a target ahead, even for late requests."""
    line = Line("deadline", calm=False)
    now = 0.0
    added = 0
    for ours, theirs in lengths:
        for tenant, seconds in (("a", ours), ("b", theirs)):
            for _ in range(3):
                line.add(f"r{added}", tenant, seconds, at=now)
                added += 1
        before = sum(line.sent.values())
        line.take(now)
        now += (sum(line.sent.values()) - before) / 1e6 + 0.05
        assert abs(line.sent["a"] - line.sent["b"]) <= 1e6 * (TARGET_SECONDS + 2 * 2.0)


@given(
    st.sampled_from(DISCIPLINES),
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0.01, 7.0), st.booleans(), st.floats(0.0, 0.5)), max_size=50),
)
def test_all_that_waits_is_sent_once_and_counted_until_then(discipline: str, steps: list[tuple[str, float, bool, float]]) -> None:
    line = Line(discipline, calm=False)
    left: set[str] = set()
    now = 0.0
    for number, (tenant, seconds, takes, later) in enumerate(steps):
        now += later
        line.add(f"r{number}", tenant, seconds, at=now)
        left.add(f"r{number}")
        if takes and (name := line.take(now)) is not None:
            left.remove(name)
        assert {one.request.id for one in line.queue.in_order(now)} == left
        assert line.queue.overtaken_by(asking("new")).requests <= len(left) == len(line.queue)
    line.calm = True
    while (name := line.take(now)) is not None:
        left.remove(name)
    assert not left
    assert not line.tenants.are_others("nobody")


@given(st.sampled_from(DISCIPLINES), st.lists(st.floats(0.05, 6.5), min_size=1, max_size=12), st.floats(0.1, 3.0))
def test_a_tenant_waits_for_no_more_of_a_flood_than_it_asks_for_itself(discipline: str, wanted: list[float], flood: float) -> None:
    """It may additionally wait for a target of work and one request, whatever the requests are and however long the
    flood is.
    """
    line = Line(discipline, calm=False)
    now = 0.0
    flooded = 0
    for number, seconds in enumerate(wanted):
        line.add(f"wanted{number}", "b", seconds)
    waited = set(wanted)
    left = len(wanted)
    while left:
        for _ in range(3):
            line.add(f"flood{flooded}", "a", flood, at=now)
            flooded += 1
        name = line.take(now)
        assert name is not None
        left -= name.startswith("wanted")
        now += 0.05 + (flood if name.startswith("flood") else wanted[int(name[6:])])
        assert line.sent["a"] <= 1e6 * (sum(wanted) + TARGET_SECONDS + 2 * max(flood, *waited, 0.0))
