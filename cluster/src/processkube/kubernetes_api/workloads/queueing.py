"""A queue of keys of objects that controllers must look at. A key is queued only once. It can be queued for a later
time, and again after a failure.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

FIRST_RETRY_SECONDS = 0.005
LONGEST_RETRY_SECONDS = 1000.0
"""Maximum seconds between two retries, as in client-go's default rate limiter."""
SHORTEST_WAIT_SECONDS = 1.0
"""Minimum seconds before a timed look at an object, so that an object is not looked at all the time."""


class WorkQueue(Generic[Item]):
    """A queue of items in the order in which they were added. An item that is already queued is not added again."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._ready: dict[Item, None] = {}
        self._later: list[tuple[datetime, int, Item]] = []
        self._due: dict[Item, datetime] = {}
        self._added = 0
        self._failures: dict[Item, int] = {}

    def add(self, item: Item) -> None:
        self._ready[item] = None

    def add_at(self, item: Item, moment: datetime) -> None:
        """Add the item at the given time, but at the earliest after `SHORTEST_WAIT_SECONDS`."""
        self._defer(item, max(moment, self._clock() + timedelta(seconds=SHORTEST_WAIT_SECONDS)))

    def retry(self, item: Item) -> None:
        """Add the item again after a pause. The pause doubles with each consecutive failure of this item."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        seconds = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(failures, 30))
        self._defer(item, self._clock() + timedelta(seconds=seconds))

    def succeeded(self, item: Item) -> None:
        self._failures.pop(item, None)

    def take(self) -> Item | None:
        """Remove the next item that is due from the queue and return it; None if no item is due."""
        while self._later and self._later[0][0] <= self._clock():
            moment, _, due = heapq.heappop(self._later)
            if self._due.get(due) == moment:
                del self._due[due]
                self.add(due)
        item = next(iter(self._ready), None)
        if item is not None:
            del self._ready[item]
        return item

    def pause_seconds(self) -> float | None:
        """Return the seconds until the next item is due; None if the queue is empty."""
        if self._ready:
            return 0.0
        return max(0.0, (self._later[0][0] - self._clock()).total_seconds()) if self._later else None

    def _defer(self, item: Item, moment: datetime) -> None:
        if item in self._due and self._due[item] <= moment:
            return  # an earlier look decides again when the next one is
        self._due[item] = moment
        self._added += 1
        heapq.heappush(self._later, (moment, self._added, item))
