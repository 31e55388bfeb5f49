"""The planned events of one run, on its virtual clock."""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

Happening = Callable[[Any, float], None]


class EventQueue:
    """A queue of planned events in order of time. Events with the same time happen in the order in which they were
    planned, so that a run depends only on its inputs.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Happening, Any]] = []
        self._sequence = 0

    def at(self, time: float, happen: Happening, payload: Any) -> None:
        """Plan an event: `happen(payload, time)` is called when the clock reaches `time`."""
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, happen, payload))

    def next_at(self) -> float:
        """Return the time of the next event in seconds; infinity if no event is planned."""
        return self._heap[0][0] if self._heap else inf

    def let_happen(self) -> float:
        """Execute the next event, and return its time in seconds."""
        now, _, happen, payload = heappop(self._heap)
        happen(payload, now)
        return now
