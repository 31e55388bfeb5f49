from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.routing.accounting import TrackedRequest
from fairlead.routing.queues import InstanceQueue
from routing_builders import request


def tracked(name: str, hit: int = 0, since: float = 0.0) -> TrackedRequest:
    return TrackedRequest(request=request(name), submitted_at=since, waiting_since=since, hit_tokens=hit)


def drain(queue: InstanceQueue, now: float) -> list[str]:
    names = []
    while (taken := queue.take(now)) is not None:
        names.append(taken.request.id)
    return names


def filled(discipline: str) -> InstanceQueue:
    queue = InstanceQueue(discipline, 2.0)
    for number, hit in enumerate((0, 512, 2048, 512)):
        queue.add(tracked(f"r{number}", hit, since=float(number)))
    return queue


def test_fifo_sends_in_order_of_arrival() -> None:
    assert drain(filled("fifo"), 100.0) == ["r0", "r1", "r2", "r3"]


def test_longest_hit_sends_the_most_cached_first_and_arrival_breaks_ties() -> None:
    assert drain(filled("longest_hit"), 1.9) == ["r2", "r1", "r3", "r0"]


def test_what_waited_past_the_age_bound_goes_first_oldest_first() -> None:
    assert drain(filled("longest_hit"), 3.0) == ["r0", "r1", "r2", "r3"]
    assert drain(filled("longest_hit"), 2.5) == ["r0", "r2", "r1", "r3"]


def test_a_removed_request_is_not_sent_and_removing_it_again_is_harmless() -> None:
    queue = filled("longest_hit")
    queue.remove("r2")
    queue.remove("r2")
    assert "r2" not in queue
    assert drain(queue, 0.0) == ["r1", "r3", "r0"]
    assert queue.take(0.0) is None


def test_a_request_removed_and_added_again_is_sent_once() -> None:
    queue = filled("longest_hit")
    queue.remove("r1")
    queue.add(tracked("r1", 4096, since=9.0))
    assert drain(queue, 0.0) == ["r1", "r2", "r3", "r0"]


@settings(max_examples=80)
@given(
    st.sampled_from(["fifo", "longest_hit"]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=20),
    st.floats(0, 30),
)
def test_the_order_shown_is_the_order_sent(discipline: str, drawn: list[tuple[int, int]], wait: float) -> None:
    queue = InstanceQueue(discipline, 2.0)
    now = 0.0
    for number, (hit, pause) in enumerate(drawn):
        now += pause
        queue.add(tracked(f"r{number}", hit * 512, since=now))
    shown = [one.request.id for one in queue.in_order(now + wait)]
    assert drain(queue, now + wait) == shown
    assert len(shown) == len(drawn)
