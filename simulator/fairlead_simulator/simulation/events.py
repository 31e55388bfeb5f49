"""The planned events of one run, on its virtual clock."""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

Happening = Callable[[Any, float], None]


class EventQueue:
    """A queue of events, ordered by time and, among equal times, by when they were planned, so that a run depends only
    on its inputs.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Happening, Any]] = []
        self._sequence = 0

    def at(self, time: float, happen: Happening, payload: Any) -> None:
        """Plan a call `happen(payload, time)` for when the clock reaches `time`."""
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, happen, payload))

    def next_at(self) -> float:
        """Return the time at which the next event is due; infinity if there is no event."""
        return self._heap[0][0] if self._heap else inf

    def let_happen(self) -> float:
        """Execute the next event and return its time."""
        now, _, happen, payload = heappop(self._heap)
        happen(payload, now)
        return now
