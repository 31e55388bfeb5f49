"""Lanes send the two cargoes side by side, so that a failing batch slows only its own lane. History keeps its order."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead_router.reporting.spool import Cargo

LANES = (Cargo.HISTORY, Cargo.SAMPLES, Cargo.SAMPLES)
POST_BATCHES = 1_000
"""Most consecutive batches sent as one post."""
ATTEMPTS_AT_A_FAULT = 5
"""A batch is set aside after it made the API fail (500) this often, if the API accepts other batches."""
SHORTEST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class Lane:
    """The state of one lane: how many batches it sends at once, how often its current lone batch failed, and
    its pause.
    """

    cargo: Cargo
    most_batches: int = POST_BATCHES
    faults: int = 0
    _pause: float = SHORTEST_PAUSE_SECONDS

    def pause(self) -> float:
        """Seconds to wait after a failure, longer each time."""
        now, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        return now

    def went_well(self) -> None:
        """A post was accepted: send more batches at once again, without pauses."""
        self.most_batches = min(POST_BATCHES, self.most_batches * 2)
        self.faults, self._pause = 0, SHORTEST_PAUSE_SECONDS

    def halve(self, batches: int) -> None:
        """One of these `batches` may be at fault: send half as many at once, to find it and to deliver the others."""
        self.most_batches = max(1, batches // 2)
        self.faults = 0

    def failed_alone(self) -> bool:
        """Count a failure of a lone batch.

        Returns whether it failed often enough to be at fault, if the API accepts others.
        """
        self.faults += 1
        return self.faults >= ATTEMPTS_AT_A_FAULT
