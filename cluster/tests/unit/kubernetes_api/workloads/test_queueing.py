"""Keys wait in a queue, each once, and after each failure for longer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from processkube.kubernetes_api.workloads.queueing import WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def test_items_come_in_order_and_once() -> None:
    queue = WorkQueue[str](Clock())
    for item in ("a", "b", "a"):
        queue.add(item)
    assert [queue.take(), queue.take(), queue.take()] == ["a", "b", None]


def test_of_two_moments_the_earlier_one_counts() -> None:
    clock = Clock()
    queue = WorkQueue[str](clock)
    queue.add_at("a", clock.now + timedelta(seconds=60))
    queue.add_at("a", clock.now + timedelta(seconds=5))
    queue.add_at("a", clock.now + timedelta(seconds=30))
    assert queue.take() is None
    assert queue.pause_seconds() == 5
    clock.advance(5)
    assert queue.take() == "a"
    clock.advance(60)
    assert queue.take() is None, "what was later is forgotten: the look at 5 s said when to look again"


def test_a_moment_that_has_passed_waits_for_a_second_so_that_nothing_is_looked_at_without_end() -> None:
    clock = Clock()
    queue = WorkQueue[str](clock)
    queue.add_at("a", clock.now - timedelta(hours=1))
    assert queue.take() is None
    assert queue.pause_seconds() == 1


def test_failures_in_a_row_wait_twice_as_long_each_up_to_a_limit() -> None:
    clock = Clock()
    queue = WorkQueue[str](clock)
    pauses = []
    for _ in range(20):
        queue.retry("a")
        pauses.append(queue.pause_seconds())
        clock.advance(1000)
        assert queue.take() == "a"
    assert pauses[:3] == [0.005, 0.01, 0.02]
    assert pauses[-1] == 1000
    queue.succeeded("a")
    queue.retry("a")
    assert queue.pause_seconds() == 0.005
