from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.disciplines import InstanceQueue
from fairlead_testing.builders.routing import request
from fairlead_testing.examples import examples


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


def test_a_queue_that_is_never_empty_keeps_nothing_of_what_left_it() -> None:
    queue = InstanceQueue("longest_hit", 2.0)
    for number in range(5000):
        queue.add(tracked(f"r{number}", since=float(number)))
        if number >= 30:
            assert queue.take(float(number)) is not None
    assert len(queue) == 30
    assert len(queue._heap) < 200


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


def due(name: str, prefill_seconds: float, *, at: float = 0.0) -> TrackedRequest:
    """Return a request for the discipline `slack`."""
    return TrackedRequest(request=request(name, at=at), submitted_at=at, waiting_since=at, prefill_microseconds=int(prefill_seconds * 1e6))


def slack_queue(*waiting: TrackedRequest) -> InstanceQueue:
    queue = InstanceQueue("slack", 2.0, ttft_target_seconds=5.0)
    for one in waiting:
        queue.add(one)
    return queue


def test_slack_sends_first_what_must_start_soonest() -> None:
    queue = slack_queue(due("short", 0.5), due("long", 4.0, at=1.0), due("middle", 2.0, at=0.5))
    assert drain(queue, 1.0) == ["long", "middle", "short"]


def test_slack_sends_what_can_no_longer_meet_the_target_last_oldest_first() -> None:
    queue = slack_queue(due("lost", 4.5), due("hopeless", 9.0, at=0.5), due("young", 1.0, at=1.0))
    assert drain(queue, 1.0) == ["young", "lost", "hopeless"]


def test_slack_serves_the_lost_again_when_nobody_else_waits() -> None:
    queue = slack_queue(due("lost", 4.5), due("fine", 1.0))
    first = queue.take(1.0)
    assert first is not None
    assert first.request.id == "fine"
    queue.add(due("new", 1.0, at=1.0))
    queue.remove("new")
    assert drain(queue, 1.0) == ["lost"]


def test_what_gave_up_waiting_late_is_forgotten_while_others_are_always_in_time() -> None:
    queue = slack_queue()
    for number in range(2000):
        queue.add(due(f"fine{number}", 1.0, at=float(number)))
        queue.add(due(f"late{number}", 9.0, at=float(number)))
        taken = queue.take(float(number))
        assert taken is not None
        assert taken.request.id == f"fine{number}"
        queue.remove(f"late{number - 10}")
    assert len(queue._late) < 200


@examples(120)
@given(
    st.sampled_from(("fifo", "longest_hit", "slack")),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 6)), max_size=20),
    st.floats(0, 30),
)
def test_the_order_shown_is_the_order_sent(discipline: str, drawn: list[tuple[int, int, int]], wait: float) -> None:
    queue = InstanceQueue(discipline, 2.0, 5.0)
    now = 0.0
    for number, (hit, pause, seconds) in enumerate(drawn):
        now += pause
        asked = request(f"r{number}", at=now)
        queue.add(
            TrackedRequest(
                request=asked, submitted_at=now, waiting_since=now, hit_tokens=hit * 512, prefill_microseconds=seconds * 1_000_000
            )
        )
    shown = [one.request.id for one in queue.in_order(now + wait)]
    assert drain(queue, now + wait) == shown
    assert len(shown) == len(drawn)
