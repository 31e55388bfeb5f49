"""Lanes: batches are sent side by side, history in its order, and a batch that fails makes only its lane slower."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead_router.reporting.spool import Cargo

LANES = (Cargo.HISTORY, Cargo.SAMPLES, Cargo.SAMPLES)
POST_BATCHES = 1_000
"""Most neighbouring batches that are sent as one post."""
ATTEMPTS_AT_A_FAULT = 5
"""So often one batch may make the API fail (500) that takes others, before it is set aside."""
SHORTEST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class Lane:
    """How one lane fares: how many batches it sends at once, failures of the lone batch it is at, and how long it
    pauses.
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
        """Send more at once again, without pauses."""
        self.most_batches = min(POST_BATCHES, self.most_batches * 2)
        self.faults, self._pause = 0, SHORTEST_PAUSE_SECONDS

    def halve(self, batches: int) -> None:
        """One of this many batches may be at fault: the fewer are sent together, the sooner it is seen which, and
        the sooner they are taken.
        """
        self.most_batches = max(1, batches // 2)
        self.faults = 0

    def failed_alone(self) -> bool:
        """A lone batch made the API fail; whether so often that it is to blame, if the API takes anything else."""
        self.faults += 1
        return self.faults >= ATTEMPTS_AT_A_FAULT
