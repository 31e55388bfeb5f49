"""Priority classes in an instance's queue: strict between priorities, the pool's discipline within one."""

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
from fairlead.tables import PriorityClass
from fairlead_testing.builders.routing import load_of, table

DISCIPLINES = ("fifo", "longest_hit", "slack", "deadline")
HIGH_AND_LOW = (PriorityClass(name="high", priority=10), PriorityClass(name="low", priority=-10))


class Line:
    """A queue of an idle engine with a target of 5 s. While it is `calm`, late requests may go."""

    def __init__(self, discipline: str, declared: tuple[PriorityClass, ...] = HIGH_AND_LOW, *, calm: bool = True) -> None:
        self.calm = calm
        rules = DeadlineRules(
            late_share=0.0,
            late_may_go=lambda: self.calm,
            found_late=self._found_late,
            has_time=lambda: True,
            decode_share=lambda load: 0.0,
            speed=lambda: 6250.0,
        )
        parameters = QueueParameters(queue_discipline=discipline)
        self.queue: Queue = build_queue(parameters, table(1), load_of("i0"), rules, PriorityClasses(declared))

    def _found_late(self, tracked: TrackedRequest) -> None:
        tracked.late = True

    def add(self, name: str, of: str, seconds: float = 1.0, hit: int = 0) -> TrackedRequest:
        request = RoutingRequest(id=name, arrived_at=0.0, prompt_tokens=100, blocks=(), first_bytes_hash=0, priority_class=of)
        tracked = TrackedRequest(request=request, submitted_at=0.0, prefill_microseconds=round(1e6 * seconds), hit_tokens=hit)
        self.queue.add(tracked)
        return tracked

    def take(self, now: float = 0.0) -> str | None:
        tracked = self.queue.take(now)
        return None if tracked is None else tracked.request.id


def asking(of: str) -> RoutingRequest:
    return RoutingRequest(id="asking", arrived_at=0.0, prompt_tokens=1, blocks=(), first_bytes_hash=0, priority_class=of)


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_a_higher_priority_goes_first_whatever_the_discipline(discipline: str) -> None:
    line = Line(discipline)
    for name, of in (("l", "low"), ("d", "default"), ("h", "high")):
        line.add(name, of, seconds={"l": 0.1, "d": 0.5, "h": 2.0}[name], hit={"l": 90, "d": 50, "h": 0}[name])
    assert [line.take(), line.take(), line.take(), line.take()] == ["h", "d", "l", None]


def test_late_requests_go_before_a_lower_priority_also_when_there_is_no_time_to_spare() -> None:
    line = Line("deadline", calm=False)
    line.add("late", "high", seconds=9.0)
    assert line.take() is None, "beyond saturation a late request waits"
    line.add("low", "low")
    assert line.take() == "late"
    assert line.take() == "low"


def test_late_requests_of_the_lowest_priority_wait_for_time_to_spare() -> None:
    line = Line("deadline", calm=False)
    line.add("late", "low", seconds=9.0)
    line.add("high", "high")
    assert [line.take(), line.take()] == ["high", None]


def test_nothing_goes_while_the_highest_priority_rests() -> None:
    rests = DeadlineRules(
        late_share=0.0,
        late_may_go=lambda: True,
        found_late=lambda tracked: None,
        has_time=lambda: True,
        decode_share=lambda load: 0.5,
        speed=lambda: 6250.0,
    )
    load = load_of("i0")
    load.last_first_token_at = 0.0
    queue = build_queue(QueueParameters(queue_discipline="deadline"), table(1), load, rests, PriorityClasses(HIGH_AND_LOW))
    for name, of, microseconds in (("h", "high", 1_000_000), ("l", "low", 10_000)):
        request = RoutingRequest(id=name, arrived_at=0.0, prompt_tokens=100, blocks=(), first_bytes_hash=0, priority_class=of)
        queue.add(TrackedRequest(request=request, submitted_at=0.0, prefill_microseconds=microseconds))
    assert queue.take(0.1) is None
    taken = queue.take(1.1)
    assert taken is not None
    assert taken.request.id == "h"


def test_what_is_overtaken_is_told_by_class_and_forgotten_when_it_leaves() -> None:
    line = Line("deadline")
    line.add("l", "low", seconds=2.0)
    line.add("late", "low", seconds=9.0)
    line.add("d", "default", seconds=1.0)
    line.queue.find_late(0.0)
    assert line.queue.overtaken_by(asking("high")) == Overtaken(3, 12_000_000, 9_000_000)
    assert line.queue.overtaken_by(asking("default")) == Overtaken(2, 11_000_000, 9_000_000)
    assert line.queue.overtaken_by(asking("low")) == Overtaken()
    line.queue.remove("late")
    assert line.take() == "d"
    assert line.queue.overtaken_by(asking("high")) == Overtaken(1, 2_000_000, 0)


def test_without_classes_nothing_is_overtaken() -> None:
    line = Line("fifo", ())
    line.add("l", "low")
    assert line.queue.overtaken_by(asking("high")) == Overtaken()


@given(
    st.sampled_from(DISCIPLINES),
    st.lists(st.tuples(st.sampled_from(["high", "default", "low"]), st.floats(0.01, 3.0), st.booleans(), st.floats(0.0, 0.5)), max_size=40),
)
def test_never_is_one_sent_while_a_higher_priority_waits_and_all_are_sent(
    discipline: str, steps: list[tuple[str, float, bool, float]]
) -> None:
    line = Line(discipline, calm=False)
    classes = PriorityClasses(HIGH_AND_LOW)
    waiting: dict[str, TrackedRequest] = {}
    now = 0.0

    def take() -> bool:
        taken = line.queue.take(now)
        if taken is None:
            return False
        del waiting[taken.request.id]
        ranks = [classes.rank(one.request.priority_class) for one in waiting.values()]
        assert all(rank >= classes.rank(taken.request.priority_class) for rank in ranks)
        return True

    for number, (of, seconds, takes, later) in enumerate(steps):
        now += later
        waiting[f"r{number}"] = line.add(f"r{number}", of, seconds)
        if takes:
            take()
        expected = [one for one in waiting.values() if one.request.priority_class != "high"]
        late = sum(one.prefill_microseconds for one in expected if one.late)
        found = line.queue.overtaken_by(asking("high"))
        assert found == Overtaken(len(expected), sum(one.prefill_microseconds for one in expected), late)
        assert len(line.queue) == len(waiting) == len(line.queue.in_order(now))
    line.calm = True
    while take():
        pass
    assert not waiting


@given(
    st.sampled_from(DISCIPLINES),
    st.lists(st.tuples(st.floats(0.01, 3.0), st.booleans(), st.floats(0.0, 0.5), st.integers(0, 99)), max_size=40),
    st.booleans(),
)
def test_with_one_class_in_use_the_order_is_that_of_a_pool_without_classes(
    discipline: str, steps: list[tuple[float, bool, float, int]], calm: bool
) -> None:
    plain, classed = Line(discipline, (), calm=calm), Line(discipline, calm=calm)
    now = 0.0
    for number, (seconds, takes, later, hit) in enumerate(steps):
        now += later
        for line in (plain, classed):
            line.add(f"r{number}", "default", seconds, hit)
        if takes:
            assert plain.take(now) == classed.take(now)
    assert [one.request.id for one in plain.queue.in_order(now)] == [one.request.id for one in classed.queue.in_order(now)]
