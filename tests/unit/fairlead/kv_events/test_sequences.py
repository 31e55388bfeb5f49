"""Sequence numbers of batches: gaps, replays, restarts and repetitions."""

import random

from hypothesis import given
from hypothesis import strategies as st

from fairlead.kv_events.sequences import SequenceTracker, SourceState, Step
from fairlead_testing.examples import examples


def tracker(*, can_replay: bool = True) -> SequenceTracker[str]:
    return SequenceTracker(can_replay=can_replay)


def after(*numbers: int, can_replay: bool = True) -> SequenceTracker[str]:
    """Return a tracker that received these batches; each batch's timestamp is its number."""
    made = tracker(can_replay=can_replay)
    for number in numbers:
        assert made.live(number, float(number), f"b{number}").batches == (f"b{number}",)
    return made


def test_batches_in_order_are_applied_at_once() -> None:
    assert tracker().state is SourceState.WAITING
    assert after(0, 1, 2).state is SourceState.CURRENT


def test_a_gap_asks_for_a_replay_from_the_batch_before_it() -> None:
    made = after(0, 1)
    assert made.live(4, 4.0, "b4") == Step(replay_from=1)
    assert made.state.value == "replaying"
    assert made.replayed(1, 1.0, "b1") == Step()
    assert made.replayed(2, 2.0, "b2") == Step(batches=("b2",))
    assert made.live(5, 5.0, "b5") == Step()
    assert made.replayed(3, 3.0, "b3") == Step(batches=("b3", "b4", "b5"))
    assert made.replay_ended() == Step()
    assert made.state.value == "current"


def test_a_late_listener_asks_for_everything() -> None:
    assert tracker().live(7, 7.0, "b7") == Step(replay_from=0)


def test_what_a_replay_no_longer_has_is_lost_and_the_source_cleared() -> None:
    made = after(0, 1)
    made.live(6, 6.0, "b6")
    assert made.replayed(4, 4.0, "b4") == Step() and made.replayed(5, 5.0, "b5") == Step()
    assert made.replay_ended() == Step(reset=True, replay_from=0)  # batch 1 did not come: is it the same engine?
    assert made.replayed(4, 4.0, "b4") == Step() and made.replayed(5, 5.0, "b5") == Step()
    assert made.replay_ended() == Step(batches=("b4", "b5", "b6"), reset=True)
    assert made.state is SourceState.INCOMPLETE
    assert (made.counts.lost, made.counts.gaps, made.counts.restarts) == (2, 1, 0), "batches 0 and 1 were applied"
    assert made.live(7, 7.0, "b7") == Step(batches=("b7",))


def test_holes_in_a_replay_are_asked_for_as_long_as_it_brings_something() -> None:
    made = after(0)
    assert made.live(9, 9.0, "b9") == Step(replay_from=0)
    for number in (0, 1, 2, 5, 6):
        made.replayed(number, float(number), f"b{number}")
    assert made.replay_ended() == Step(replay_from=2)
    assert made.replayed(2, 2.0, "b2") == Step()
    assert made.replayed(3, 3.0, "b3") == Step(batches=("b3",))
    assert made.replay_ended() == Step(replay_from=3)
    assert made.replayed(3, 3.0, "b3") == Step()
    assert made.replay_ended().reset, "this one brought nothing: batch 4 is lost"
    assert (made.counts.lost, made.state) == (3, SourceState.INCOMPLETE)


def test_what_comes_during_a_replay_waits_for_its_end() -> None:
    made = after(0, 1, 2)
    made.reconnected()
    assert made.live(3, 3.0, "b3") == Step()
    assert made.replayed(2, 2.0, "b2") == Step()
    assert made.replay_ended() == Step(batches=("b3",))


def test_without_replay_a_gap_is_final() -> None:
    made = after(0, 1, can_replay=False)
    assert made.live(4, 4.0, "b4") == Step(batches=("b4",), reset=True)
    assert made.state is SourceState.INCOMPLETE


def test_a_source_that_was_cleared_is_complete_again() -> None:
    made = after(0, can_replay=False)
    made.live(2, 2.0, "b2")
    made.cleared()
    assert made.state is SourceState.CURRENT


def test_a_repeated_batch_is_passed_over() -> None:
    made = after(0, 1, 2)
    assert made.live(1, 1.0, "b1") == Step()
    assert made.counts.repeated == 1


def test_number_0_with_a_later_stamp_is_a_restart() -> None:
    made = after(0, 1, 2)
    assert made.live(0, 9.0, "new") == Step(batches=("new",), reset=True)
    assert made.counts.restarts == 1 and made.state is SourceState.CURRENT


def test_a_restart_of_which_the_beginning_was_missed_is_replayed() -> None:
    made = after(0, 1, 2, 3)
    assert made.live(2, 9.2, "n2") == Step(reset=True, replay_from=0)
    made.replayed(0, 9.0, "n0")
    assert made.replayed(1, 9.1, "n1") == Step(batches=("n1", "n2"))


def test_after_a_reconnection_the_overlapping_batch_tells_whether_the_engine_restarted() -> None:
    same = after(0, 1, 2)
    assert same.reconnected() == Step(replay_from=2)
    assert same.replayed(2, 2.0, "b2") == Step() and same.replay_ended() == Step()
    other = after(0, 1, 2)
    other.reconnected()
    assert other.replayed(2, 9.2, "n2") == Step(reset=True, replay_from=0)
    other.replayed(0, 9.0, "n0")
    assert other.replayed(1, 9.1, "n1") == Step(batches=("n1", "n2"))


def test_an_engine_that_does_not_know_our_last_batch_is_another_one() -> None:
    made = after(0, 1, 2)
    made.reconnected()
    assert made.replay_ended() == Step(reset=True)
    assert made.live(0, 9.0, "new") == Step(batches=("new",))


def test_an_engine_that_has_nothing_of_what_it_is_asked_for_has_restarted_and_is_complete_again() -> None:
    made = after(0, 1, 2)
    made.live(9, 9.0, "b9")
    made.replayed(2, 2.0, "b2")
    assert made.replay_ended().reset
    assert made.state is SourceState.INCOMPLETE
    made.reconnected()
    assert made.replay_ended() == Step(reset=True)
    assert (made.state, made.counts.restarts) == (SourceState.CURRENT, 1)


def test_an_engine_that_has_only_what_comes_next_is_asked_for_everything() -> None:
    made = after(0, 1, 2)
    made.reconnected()
    assert made.replayed(3, 3.0, "b3") == Step(batches=("b3",))
    assert made.replay_ended() == Step(reset=True, replay_from=0)
    made.replayed(3, 3.0, "b3")
    assert made.replay_ended() == Step(batches=("b3",), reset=True)
    assert (made.state, made.counts.restarts, made.counts.lost) == (SourceState.INCOMPLETE, 0, 0)


def test_a_whole_replay_from_the_beginning_makes_an_incomplete_source_complete() -> None:
    made = after(0)
    made.live(2, 2.0, "b2")
    made.replayed(0, 0.0, "b0")
    assert made.replay_ended().reset and made.state is SourceState.INCOMPLETE
    made.reconnected()
    assert made.live(4, 9.4, "n4") == Step()
    assert made.replay_ended() == Step(reset=True, replay_from=0)
    for number in range(4):
        made.replayed(number, 9.0 + number / 10, f"n{number}")
    assert made.replay_ended() == Step()
    assert (made.state, made.counts.restarts, made.counts.lost) == (SourceState.CURRENT, 1, 1)


def test_what_a_restarted_engine_no_longer_has_is_lost_from_its_own_beginning() -> None:
    made = after(0, 1, 2, 3)
    made.live(6, 9.6, "n6")
    assert made.replayed(5, 9.5, "n5") == Step()
    assert made.replay_ended() == Step(reset=True, replay_from=0)
    for number in (2, 3, 4):
        made.replayed(number, 9.0 + number / 10, f"n{number}")
    assert made.replay_ended() == Step(batches=("n2", "n3", "n4", "n5", "n6"), reset=True)
    assert (made.counts.lost, made.counts.restarts) == (2, 1)


@examples(300)
@given(seed=st.integers(0, 10**6), restarts=st.integers(0, 2), loss=st.sampled_from([0.0, 0.2, 0.7]), short=st.booleans())
def test_after_any_loss_a_replay_brings_everything_back(seed: int, restarts: int, loss: float, short: bool) -> None:
    """In the end, the batches applied since the last reset are those published since the engine's last start, in
    order.
    """
    chance = random.Random(seed)
    made: SequenceTracker[tuple[int, int]] = SequenceTracker(can_replay=True)
    applied: list[tuple[int, int]] = []
    published: list[tuple[float, tuple[int, int]]] = []
    clock = 0.0

    def take(step: Step[tuple[int, int]]) -> None:
        if step.reset:
            applied.clear()
        applied.extend(step.batches)
        if step.replay_from is not None:
            for number, (stamp, batch) in enumerate(published):
                if number >= step.replay_from:
                    again = made.replayed(number, stamp, batch)
                    take(again)
                    if again.replay_from is not None:
                        return
            take(made.replay_ended())

    for life in range(restarts + 1):
        published = []
        take(made.reconnected())
        for number in range(chance.randint(1, 12)):
            clock += 1.0
            published.append((clock, (life, number)))
            for _ in range(chance.choice([1, 1, 1, 2])):
                if chance.random() >= loss:
                    if short and made.follows(number, clock):
                        applied.append((life, number))
                    else:
                        take(made.live(number, clock, (life, number)))
        take(made.reconnected())
    if made.counts.applied:
        assert applied == [batch for _, batch in published]
    assert made.counts.lost == 0


def test_a_replay_that_does_not_come_is_asked_for_again() -> None:
    made = after(0, 1)
    assert made.unanswered() == Step()
    assert made.live(4, 4.0, "b4") == Step(replay_from=1)
    assert made.unanswered() == Step(replay_from=1)
    assert made.waiting == 1 and made.counts.replays == 2


def test_a_replay_is_given_up_when_more_waits_for_it_than_may() -> None:
    made: SequenceTracker[str] = SequenceTracker(can_replay=True, most_waiting=2)
    made.live(0, 0.0, "b0")
    for number in (2, 3):
        assert not made.live(number, float(number), f"b{number}").batches
    assert made.live(4, 4.0, "b4") == Step(reset=True, replay_from=0)
