"""Checks the sequence numbers of batches: detects lost and repeated batches, and restarts of the engine.

An engine numbers its batches from 0 and stamps each batch with its clock. A PUB/SUB socket loses batches that a slow or
late subscriber does not read in time. So a subscriber asks the engine to repeat all batches from a certain number on. A
restarted engine begins at 0 again with an empty cache. Its batches have later timestamps than all earlier batches; this
distinguishes them from repeated batches.

The caller owns sockets and time: it passes in the received messages and carries out the returned `Step`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from fairlead.plausibility import MOST_INTEGER

MOST_WAITING = 100_000
"""Maximum number of batches kept while a replay runs; vLLM's own queue has the same bound."""

Batch = TypeVar("Batch")


class SourceState(StrEnum):
    """The degree to which the events of a source can be trusted."""

    WAITING = "waiting"
    """No batch has arrived yet."""
    CURRENT = "current"
    REPLAYING = "replaying"
    """Missing batches were requested; batches that arrive meanwhile wait."""
    INCOMPLETE = "incomplete"
    """Batches were lost permanently, so the source may hold blocks that the index does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[Batch]):
    """The next things for the caller to do, in this order: clear the source if `reset`, apply the batches, ask for a
    replay.

    If a replay is requested while an earlier replay runs, the earlier replay is abandoned.
    """

    batches: tuple[Batch, ...] = ()
    reset: bool = False
    replay_from: int | None = None


@dataclass(slots=True, kw_only=True)
class SequenceCounts:
    """Counts of a source's batches that were applied, lost or repeated, and of its gaps, replays and restarts."""

    applied: int = 0
    repeated: int = 0
    lost: int = 0
    gaps: int = 0
    replays: int = 0
    restarts: int = 0


class SequenceTracker(Generic[Batch]):
    """Puts the batches of one source in order.

    Without `can_replay`, a gap is final at once. `most_waiting` bounds the batches kept during a replay. `first` is the
    number of the source's first batch; with None, the first batch may have any number, as in a recording that begins in
    the middle.
    """

    def __init__(self, *, can_replay: bool, first: int | None = 0, most_waiting: int = MOST_WAITING) -> None:
        self._can_replay = can_replay
        self._most_waiting = most_waiting
        self._next = first
        self._newest_stamp: float | None = None
        """Timestamp of the batch before `_next`; None if unknown."""
        self._waiting: dict[int, tuple[float, Batch]] = {}
        self._replaying = False
        self._asked_at: int | None = None
        """The first missing number at the time when the replay was requested."""
        self._asked_stamp: float | None = None
        """Timestamp of the batch before `_asked_at`."""
        self._recognised = True
        """Whether the replay contained the batch before `_next` unchanged; if not, the engine has restarted."""
        self._incomplete = False
        self._taken: tuple[int, float] | None = None
        """Set if a replay did not contain the batch before `_next`. It has the number that was expected before that
        replay, and the timestamp of the batch before that number. Batches below that number were applied and are not
        lost, unless the engine turns out to have restarted.
        """
        self.counts = SequenceCounts()

    @property
    def state(self) -> SourceState:
        if self._replaying:
            return SourceState.REPLAYING
        if self._incomplete:
            return SourceState.INCOMPLETE
        return SourceState.CURRENT if self.counts.applied else SourceState.WAITING

    def follows(self, number: int, stamp: float) -> bool:
        """Return whether this published batch is the next expected batch and no other batch waits; if so, count it as
        applied. This is the fast path of `live`, for the usual case.
        """
        if number != self._next or self._replaying or self._waiting:
            return False
        self._next = number + 1
        self._newest_stamp = stamp
        self.counts.applied += 1
        return True

    def live(self, number: int, stamp: float, batch: Batch) -> Step[Batch]:
        """Handle a published batch. `stamp` is its time by the engine's own clock, in seconds."""
        if self._next is None:
            self._next = number
        if self.follows(number, stamp):
            return Step(batches=(batch,))
        if number < self._next:
            if self._newest_stamp is None or stamp <= self._newest_stamp:
                self.counts.repeated += 1
                return Step()
            return self._restarted(number, stamp, batch)
        self._note_restart(number, stamp)
        self._waiting[number] = (stamp, batch)
        if self._replaying:
            return self.replay_ended() if len(self._waiting) > self._most_waiting else Step()
        self.counts.gaps += 1
        return self._ask() if self._can_replay else self._give_up()

    def replayed(self, number: int, stamp: float, batch: Batch) -> Step[Batch]:
        """Handle a batch of the requested replay."""
        if not self._replaying or self._next is None:
            self.counts.repeated += 1
            return Step()
        if number < self._next:
            if self._newest_stamp is not None and stamp > self._newest_stamp:
                return self._restarted(number, stamp, batch)  # while nobody heard it
            self._recognised |= stamp == self._newest_stamp
            self.counts.repeated += 1
            return Step()
        self._note_restart(number, stamp)
        self._waiting.setdefault(number, (stamp, batch))
        return Step(batches=self._in_line())

    def replay_ended(self) -> Step[Batch]:
        """End the replay, either after its end marker or because the caller stopped it.

        An engine that does not have the last applied batch has restarted, or has sent more batches since then than it
        keeps. Then all batches that the engine has are requested. A long replay may have holes, because vLLM's socket
        drops batches that a busy reader does not read in time. As long as each replay brings some missing batches, the
        batches that are still missing are requested again. Otherwise they are lost.
        """
        if not self._replaying:
            return Step()
        self._replaying = False
        if not self._recognised:
            assert self._asked_at is not None
            assert self._asked_stamp is not None
            has_nothing_newer = not self._waiting and self._next == self._asked_at
            self._next, self._newest_stamp = 0, None
            self._incomplete = False  # what was lost before no longer matters: the source is cleared
            if has_nothing_newer:  # it has not even sent as many
                self.counts.restarts += 1
                return Step(reset=True)
            self._taken = (self._asked_at, self._asked_stamp)
            return Step(reset=True, replay_from=self._ask().replay_from)
        batches = self._in_line()
        if not self._waiting:
            return Step(batches=batches)
        if self._next == self._asked_at or len(self._waiting) > self._most_waiting:
            return self._give_up()
        return Step(batches=batches, replay_from=self._ask().replay_from)

    def unanswered(self) -> Step[Batch]:
        """Request the replay once more, because the replay has not arrived."""
        return self._ask() if self._replaying else Step()

    def reconnected(self) -> Step[Batch]:
        """Handle a new connection after an interruption. Only a replay shows whether batches were missed or the engine
        restarted.
        """
        return self._ask() if self._can_replay and self._next is not None else Step()

    @property
    def waiting(self) -> int:
        """Number of received batches that cannot be applied before an earlier, missing batch."""
        return len(self._waiting)

    def cleared(self) -> None:
        """Record that the source reported an empty cache: earlier losses no longer matter."""
        self._incomplete = False

    def _note_restart(self, number: int, stamp: float) -> None:
        """Record a restart of the engine: a number that was already taken has arrived with a later timestamp."""
        if self._taken is not None and number < self._taken[0] and stamp > self._taken[1]:
            self._taken = None
            self.counts.restarts += 1

    def _restarted(self, number: int, stamp: float, batch: Batch) -> Step[Batch]:
        self.counts.restarts += 1
        self._taken = None
        self._next, self._newest_stamp = 0, None
        self._replaying = self._incomplete = False
        self._waiting = {number: (stamp, batch)}
        if number == 0:
            return Step(batches=self._in_line(), reset=True)
        self.counts.gaps += 1
        step = self._ask() if self._can_replay else self._give_up()
        return Step(batches=step.batches, reset=True, replay_from=step.replay_from)

    def _ask(self) -> Step[Batch]:
        """Request a replay that starts with the batch before the first missing batch. That batch's timestamp shows
        whether the engine restarted.
        """
        assert self._next is not None
        self.counts.replays += 1
        self._asked_at, self._asked_stamp = self._next, self._newest_stamp
        self._replaying = True
        self._recognised = self._newest_stamp is None
        return Step(replay_from=max(0, self._next - 1))

    def _give_up(self) -> Step[Batch]:
        """Stop waiting for missing batches: continue after the last hole, and have the source cleared. Received batches
        between two holes are not used either, because they are as uncertain as the batches before them.
        """
        assert self._next is not None
        batches: tuple[Batch, ...] = ()
        applied_below, self._taken = 0 if self._taken is None else self._taken[0], None
        while self._waiting:
            earliest = min(self._waiting)
            self.counts.lost = min(MOST_INTEGER, self.counts.lost + max(0, earliest - max(self._next, applied_below)))
            self._next = earliest
            batches = self._in_line()
        self._incomplete = True
        return Step(batches=batches, reset=True)

    def _in_line(self) -> tuple[Batch, ...]:
        """Remove and return the waiting batches that follow the last applied batch without a gap."""
        batches: list[Batch] = []
        assert self._next is not None
        while (kept := self._waiting.pop(self._next, None)) is not None:
            self._newest_stamp = kept[0]
            batches.append(kept[1])
            self._next += 1
        self.counts.applied += len(batches)
        return tuple(batches)
