"""Turns of tasks in progress in the `deadline` discipline: which turns are left out, which go first, and how long first
turns may have to wait for them.
"""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.deadline import STEP_SECONDS, DeadlineQueue, DeadlineRules
from fairlead.routing.queues.turns import Tenants
from fairlead_testing.builders.routing import load_of
from fairlead_testing.examples import examples

TARGET = 5.0
SHARE = 0.1


class Line:
    """The queue of a full pool on an engine without decodes. Late requests get no time of their own."""

    def __init__(self, *, in_turn: bool = False) -> None:
        rules = DeadlineRules(
            late_share=0.0,
            late_may_go=lambda: False,
            found_late=lambda tracked: None,
            has_time=lambda: False,
            decode_share=lambda load: 0.0,
            speed=lambda: 6250.0,
            new_task_share=SHARE,
        )
        self.queue = DeadlineQueue(load_of("i0"), TARGET, rules, Tenants().turns("i0") if in_turn else None)

    def first_turn(self, name: str, seconds: float, at: float = 0.0, tenant: str = "") -> None:
        self._add(name, seconds, at, tenant, continues=False)

    def next_turn(self, name: str, seconds: float, at: float = 0.0, tenant: str = "") -> None:
        self._add(name, seconds, at, tenant, continues=True)

    def _add(self, name: str, seconds: float, at: float, tenant: str, *, continues: bool) -> None:
        asked = RoutingRequest(id=name, arrived_at=at, prompt_tokens=100, blocks=(), first_bytes_hash=0, tenant=tenant)
        tracked = TrackedRequest(request=asked, submitted_at=at, waiting_since=at, continues=continues)
        tracked.prefill_microseconds = round(1e6 * (seconds - STEP_SECONDS))
        self.queue.add(tracked)

    def take(self, now: float) -> str | None:
        tracked = self.queue.take(now)
        return None if tracked is None else tracked.request.id


def test_a_first_turn_is_left_out_where_not_all_can_be_in_time_though_it_is_the_shorter_one() -> None:
    line = Line()
    line.first_turn("begins", 2.0)
    line.next_turn("goes on", 4.0)
    assert [line.take(0.0), line.take(4.0)] == ["goes on", None]


def test_a_late_turn_of_a_task_goes_before_first_turns_that_can_be_in_time() -> None:
    line = Line()
    line.next_turn("late", 6.0)
    line.first_turn("begins", 1.0)
    assert line.take(0.0) == "late"


def test_a_late_first_turn_goes_before_nothing() -> None:
    line = Line()
    line.first_turn("late", 6.0)
    line.first_turn("begins", 1.0)
    assert [line.take(0.0), line.take(1.0)] == ["begins", None]


def test_a_late_turn_waits_for_turns_of_other_tasks_for_about_the_target_and_then_goes_first() -> None:
    line = Line()
    line.next_turn("late", 6.0)
    line.next_turn("in time", 1.0)
    assert line.take(0.0) == "in time"
    line.next_turn("in time again", 1.0, at=4.6)
    assert line.take(4.6) == "late"


def test_of_late_turns_the_oldest_goes_first_for_none_may_wait_until_it_is_refused() -> None:
    line = Line()
    line.next_turn("old and long", 9.0)
    line.next_turn("short", 6.0, at=1.0)
    assert [line.take(1.0), line.take(10.0)] == ["old and long", "short"]


def test_where_several_tenants_wait_their_turns_decide() -> None:
    """Otherwise a tenant that marks every request as a next turn would get the other tenants' time."""
    line = Line(in_turn=True)
    for number in range(5):
        line.next_turn(f"greedy{number}", 6.0, tenant="greedy")
    line.first_turn("fair", 1.0, tenant="fair")
    assert line.take(0.0) == "fair"


def test_a_tenant_alone_has_its_own_tasks_finished_first() -> None:
    line = Line(in_turn=True)
    line.next_turn("late", 6.0, tenant="only")
    line.first_turn("begins", 1.0, tenant="only")
    assert line.take(0.0) == "late"


LENGTHS = st.floats(min_value=0.2, max_value=8.0)


@examples(200)
@given(st.lists(LENGTHS, min_size=1, max_size=4), st.lists(LENGTHS, min_size=60, max_size=60))
def test_first_turns_always_get_their_share_however_many_late_turns_of_tasks_there_are(begins: list[float], goes_on: list[float]) -> None:
    line = Line()
    lengths = {f"begins{place}": seconds for place, seconds in enumerate(begins)}
    lengths |= {f"goes on{place}": max(5.0, seconds) for place, seconds in enumerate(goes_on)}
    for name, seconds in lengths.items():
        (line.first_turn if name.startswith("begins") else line.next_turn)(name, seconds)
    now, waited = 0.0, 0.0
    waiting = set(lengths) - {f"goes on{place}" for place in range(60)}
    while waiting:
        taken = line.take(now)
        assert taken is not None, "there are late turns enough"
        now += lengths[taken]
        if taken in waiting:
            waiting.remove(taken)
            waited = 0.0
        else:
            waited += lengths[taken]
            shortest = min(lengths[one] for one in waiting)
            assert SHARE * waited <= shortest + SHARE * max(lengths.values()) + 1e-6
